/*
 * Runs the pnpm version of "packageManager" in the working directory. Plain JavaScript without dependencies, for Node 18.
 *
 *   node scripts/pnpm.mjs install --frozen-lockfile
 *
 * npm ignores the hash in "packageManager", so this program compares the downloaded package with it before any of the
 * package's code runs. pnpm's native program is a dependency of that package with an exact version; npm compares it
 * with the hash that the registry reports.
 */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { constants, tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const npmOptions = [
  '--prefer-offline',
  '--ignore-scripts',
  '--loglevel=error',
  '--no-update-notifier',
  // With its default settings, npm retries for more than a minute without a network before it reports the failure.
  '--fetch-retry-mintimeout=2000',
  '--fetch-retry-maxtimeout=8000',
]

/**
 * The signal that this process has received. The signal is sent to the whole process group, so it also ends the running
 * child, after which this process removes its folder.
 *
 * @type {NodeJS.Signals | undefined}
 */
let received
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP'])) {
  process.on(signal, () => (received = signal))
}

const folder = mkdtempSync(join(tmpdir(), 'integration-host-pnpm-'))
try {
  process.exitCode = await main(process.argv.slice(2))
} finally {
  rmSync(folder, { recursive: true, force: true })
}

/**
 * @param {string[]} args
 * @returns {Promise<number>} the exit code
 */
async function main(args) {
  const { name, digest } = pinnedPackage()
  const packed = await run('npm', ['pack', ...npmOptions, name], ['ignore', 'ignore', 2])
  if (packed !== 0) return packed
  const [file = ''] = readdirSync(folder)
  const found = createHash('sha512')
    .update(readFileSync(join(folder, file)))
    .digest('hex')
  if (found !== digest) {
    console.error(
      `The package ${name} that was downloaded does not have the hash that "packageManager" in package.json names, so ` +
        `none of its code was run. Its sha512 is ${found}.`,
    )
    return 1
  }
  // Without a package.json here, npm would install into the nearest parent folder that has one.
  writeFileSync(join(folder, 'package.json'), '{ "private": true }')
  const install = ['install', '--no-audit', '--no-fund', '--include=optional', ...npmOptions]
  const installed = await run('npm', [...install, `./${file}`], ['ignore', 'ignore', 2])
  if (installed !== 0) return installed
  const entry = join(folder, 'node_modules/pnpm/bin/pnpm.mjs')
  return run(process.execPath, [entry, ...args], 'inherit', process.cwd())
}

/** Returns the name with the version, and the SHA-512 in hexadecimal. */
function pinnedPackage() {
  const root = dirname(dirname(fileURLToPath(import.meta.url)))
  /** @type {{ packageManager: string }} */
  const { packageManager } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const [, name, digest] = /^(pnpm@\d[^+]*)\+sha512\.([0-9a-f]{128})$/.exec(packageManager) ?? []
  if (name === undefined) {
    throw new Error(
      `"packageManager" must be pnpm@<version>+sha512.<hash>, and is ${packageManager}`,
    )
  }
  return { name, digest }
}

/**
 * @param {string} program
 * @param {string[]} args
 * @param {import('node:child_process').StdioOptions} stdio
 * @param {string} cwd
 * @returns {Promise<number>} the exit code, or 128 + the signal's number if a signal ended the program
 */
function run(program, args, stdio, cwd = folder) {
  return new Promise((resolve) => {
    const child = spawn(program, args, { cwd, stdio })
    child.on('error', (error) => {
      console.error(`${program} is needed to install the dependencies: ${error.message}`)
      resolve(1)
    })
    child.on('exit', (code, signal) => {
      const endedBy = received ?? signal
      resolve(endedBy === null ? (code ?? 1) : 128 + constants.signals[endedBy])
    })
  })
}
