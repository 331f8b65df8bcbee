import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { COMMAND_LINE } from '@integration-host/shared/command-line'
import { expect, it } from 'vitest'
import manifest from '../package.json' with { type: 'json' }

const root = join(import.meta.dirname, '..')

/**
 * Returns the commands in a text that may download a program whose version and hash are not pinned. `npx` is allowed
 * with `--no`, which only runs what is installed, and with a package in a local file.
 */
function downloads(text: string): readonly string[] {
  const commands = [
    ...text.matchAll(/\bnpx(?:\s+-[-\w=.]+)*\s+(?:integration-host|[\w@/.-]+@[\w.^~]+)/g),
    ...text.matchAll(/\bnpx\s+(?:--yes|-y)\s(?!--package \.\/).*/g),
    ...text.matchAll(
      /\b(?:npm (?:exec|x)|p?npm dlx|pnpx|pnx|yarn dlx|bunx|npm init|npm create) [\w@-].*/g,
    ),
  ]
  return commands.map(([command]) => command).filter((command) => !/\s--no\s/.test(command))
}

it.each([
  'npx integration-host doctor',
  'npx\nintegration-host dev',
  'npx --loglevel=error integration-host',
  'npx pnpm@12 install',
  'npx --yes cowsay',
  'pnpm dlx integration-host',
  'npm exec integration-host',
])('the check finds a command that may download a program: %j', (command) => {
  expect(downloads(`Run \`${command}\`.`)).toHaveLength(1)
})

it('no text of the repository has a command that may download a program from a package registry', () => {
  const files = textFiles()
  expect(files.length).toBeGreaterThan(500)
  const found = files.flatMap(({ file, text }) =>
    downloads(text).map((command) => `${file}: ${command}`),
  )
  expect(found).toEqual([])
})

/** Returns the commands in a text that write a key or a password to a file that other users of the machine may read. */
function readableSecrets(text: string): readonly string[] {
  const lines = text.replaceAll('\\\n', ' ').split('\n')
  return lines.filter(
    (line) =>
      (/(?:openssl rand|keys new|console password|service-secrets|pg_dump).*[^<]>>? *[\w./]+/.test(
        line,
      ) ||
        /\bcp [\w./]*\.env\.example/.test(line)) &&
      !/umask 077/.test(line) &&
      // The folder was made with this mask.
      !/> backup\//.test(line),
  )
}

it.each([
  'openssl rand -base64 32 > transfer.key',
  'integration-host keys new --id erp \\\n  --scope a > key',
  'integration-host console password ada >> users',
  'cp .env.example .env',
])('the check finds a command that writes a secret to a readable file: %j', (command) => {
  expect(readableSecrets(command)).toHaveLength(1)
})

it('no document has a command that writes a secret to a file which other users of the machine can read', () => {
  expect(textFiles().flatMap(({ text }) => readableSecrets(text))).toEqual([])
})

it('the commands that the programs print run an installed program only', () => {
  expect(downloads(COMMAND_LINE)).toEqual([])
  expect(COMMAND_LINE).toMatch(/^npx --no -- /)
})

it('packageManager names the hash of pnpm, which scripts/pnpm.mjs and Corepack compare', () => {
  expect(manifest.packageManager).toMatch(/^pnpm@\d+\.\d+\.\d+\+sha512\.[0-9a-f]{128}$/)
})

/** Returns the texts of the repository except this file. */
const textFiles = (): readonly { readonly file: string; readonly text: string }[] =>
  globSync(['**/*', '**/.*', '.ci/*'], {
    cwd: root,
    exclude: (name) => /(?:^|[/\\])(?:node_modules|dist|data|out|\.git)$/.test(name),
  })
    .filter((file) => /\.(?:md|m?[jt]sx?|json|ya?ml|sh|env|example)$|ockerfile$|^\.ci./.test(file))
    .filter((file) => file !== join('tests', 'command-line.test.ts'))
    .map((file) => ({ file, text: readFileSync(join(root, file), 'utf8') }))
