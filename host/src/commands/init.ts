import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { basename, dirname, join, relative, resolve } from 'node:path'
import { type Command, expectNone, parse } from '@integration-host/cli/command'
import { UsageError } from '@integration-host/cli/exit-code'
import { plain, print } from '@integration-host/cli/terminal'
import { COMMAND_LINE } from '@integration-host/shared/command-line'
import installation from '../../../package.json' with { type: 'json' }
import { COMPANY } from '../story.ts'

const ROOT = join(import.meta.dirname, '../../..')
const TEMPLATE = join(import.meta.dirname, '../../template')

/**
 * The files that have another name in the template than in the project. npm would omit a file named `.gitignore` from
 * the package, and a `tsconfig.json` in the template would take effect in the checkout.
 */
const RENAMED = [
  ['gitignore', '.gitignore'],
  ['tsconfig.project.json', 'tsconfig.json'],
] as const

export const init: Command = {
  summary: 'make a project with a process of your own',
  usage: 'FOLDER',
  help: `Makes a project in a new or empty folder, or in one in which npm has only installed packages: a process that creates an invoice in a company's books, its test, the settings for the
type check, and a compose file that runs the image with your processes.

Examples:
  integration-host init my-processes`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {})
    rejectUrlAndJson(values)
    const [given, ...rest] = positionals
    if (given === undefined) throw new UsageError('The folder of the new project is needed')
    expectNone(rest)
    const folder = resolve(given)
    const installed = requireEmpty(folder)
    cpSync(TEMPLATE, folder, { recursive: true })
    for (const [from, to] of RENAMED) renameSync(join(folder, from), join(folder, to))
    const manifest = merged(packageJson(folder), installed)
    writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)
    const enter = relative(process.cwd(), folder)
    await print(
      terminal,
      plain(`Made a project in ${folder}. Next:`),
      '',
      ...(enter === '' ? [] : [`  cd ${enter}`]),
      '  npm install',
      `  ${COMMAND_LINE} dev`,
      '',
      'And in another terminal, in the same folder:',
      '',
      `  ${COMMAND_LINE} transactions queue sale-1 --realm ${COMPANY.realm} --data '{"customer": "Ada", "amount": 66}'`,
      '',
      'processes/invoice.ts is the process that runs, and `npm test` tests it; README.md describes the project.',
    )
    return 0
  },
}

interface Manifest {
  readonly dependencies?: Readonly<Record<string, string>>
  readonly devDependencies?: Readonly<Record<string, string>>
}

/** The files that `npm install PACKAGE` creates in an empty folder. */
const OF_NPM = new Set(['node_modules', 'package.json', 'package-lock.json'])

/**
 * Creates the folder if it is missing. Returns the `package.json` that npm has created in the folder when a package was
 * installed; `null` if the folder is empty.
 *
 * @throws {UsageError} the folder has other files, or cannot be used.
 */
function requireEmpty(folder: string): Manifest | null {
  const found = statSync(folder, { throwIfNoEntry: false })
  if (found?.isDirectory() === false) throw new UsageError(`${plain(folder)} is not a folder`)
  try {
    mkdirSync(folder, { recursive: true })
  } catch (error) {
    throw new UsageError(
      `${plain(folder)} cannot be made (${(error as NodeJS.ErrnoException).code})`,
    )
  }
  const names = readdirSync(folder)
  if (names.some((name) => !OF_NPM.has(name)))
    throw new UsageError(
      `${plain(folder)} is not empty, so nothing was written. Name a new folder, for example: integration-host init my-processes`,
    )
  const manifest = join(folder, 'package.json')
  return existsSync(manifest) ? (JSON.parse(readFileSync(manifest, 'utf8')) as Manifest) : null
}

/** Returns the manifest of a new project. Packages that are already installed keep their versions. */
const merged = (project: Manifest, installed: Manifest | null): Manifest => ({
  ...installed,
  ...project,
  dependencies: { ...project.dependencies, ...installed?.dependencies },
  devDependencies: { ...project.devDependencies, ...installed?.devDependencies },
})

const packageJson = (folder: string) => ({
  name:
    basename(folder)
      .toLowerCase()
      .replaceAll(/[^a-z0-9._-]+/g, '-')
      .replace(/^[._-]+/, '') || 'processes',
  private: true,
  type: 'module',
  scripts: {
    dev: 'integration-host dev',
    start: 'integration-host start',
    // An older Node finds no tests in TypeScript, and passes. The program names the Node that it needs, and fails.
    pretest: 'integration-host --version',
    test: 'node --test',
    check: 'tsc',
  },
  engines: { node: installation.engines.node },
  dependencies: { 'integration-host': sourceOf(folder) },
  devDependencies: pick(installation.devDependencies, ['@types/node', 'typescript']),
})

const pick = <Name extends string>(
  versions: Readonly<Record<Name, string>>,
  names: readonly Name[],
) => Object.fromEntries(names.map((name) => [name, versions[name]]))

/**
 * Returns the value with which the project's package.json depends on this package: the version of the package, or the
 * path of a tarball relative to `folder`. In the checkout, the value is the path of the tarball that `npm run pack`
 * builds. If the package was installed from a tarball, npm has recorded the path of this tarball in the lockfile in
 * `node_modules`.
 */
function sourceOf(folder: string): string {
  const modules = dirname(ROOT)
  if (basename(modules) !== 'node_modules')
    return fileSpecifier(folder, join(ROOT, 'dist', `integration-host-${installation.version}.tgz`))
  const lockfile = join(modules, '.package-lock.json')
  if (!existsSync(lockfile)) return installation.version
  const { packages } = JSON.parse(readFileSync(lockfile, 'utf8')) as {
    packages?: Readonly<Record<string, { readonly resolved?: string } | undefined>>
  }
  const resolved = packages?.[`node_modules/${basename(ROOT)}`]?.resolved ?? ''
  return resolved.startsWith('file:')
    ? fileSpecifier(folder, resolve(dirname(modules), resolved.slice('file:'.length)))
    : installation.version
}

const fileSpecifier = (folder: string, tarball: string): string =>
  `file:${relative(folder, tarball)}`

/**
 * Rejects `--url` and `--json`, which only commands on an installation have. @throws {UsageError} if one of them is
 * given.
 */
export function rejectUrlAndJson(values: {
  readonly url?: unknown
  readonly json?: unknown
}): void {
  for (const name of ['url', 'json'] as const)
    if (values[name] !== undefined) throw new UsageError(`Unknown option '--${name}'`)
}
