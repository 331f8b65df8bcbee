import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const root = join(import.meta.dirname, '..')
const bench = join(root, 'bench')
const stampFile = join(bench, 'node_modules/.installed')

/**
 * Installs the dependencies of bench/pnpm-lock.yaml if they are not installed. The benchmarks are not part of the
 * workspace, so scripts/bootstrap.mjs does not install their dependencies.
 *
 * @throws {Error} if the installer fails; the installer prints the reason on standard error
 */
export function installBench(): void {
  const wanted = currentHash()
  if (installedHash() === wanted) return
  console.error('Installing the dependencies of bench/…')
  const { status, error } = spawnSync(
    process.execPath,
    [join(root, 'scripts/pnpm.mjs'), 'install', '--frozen-lockfile', '--loglevel=error'],
    { cwd: bench, stdio: ['ignore', 2, 2] },
  )
  if (status !== 0)
    throw new Error(`installing the dependencies of bench/ failed: ${error?.message ?? status}`)
  writeFileSync(stampFile, wanted)
}

/** Returns a hash of every file that determines the result of an install. */
function currentHash(): string {
  const hash = createHash('sha256')
  for (const file of ['package.json', 'pnpm-lock.yaml', 'pnpm-workspace.yaml'])
    hash.update(readFileSync(join(bench, file)))
  return hash.digest('hex')
}

/** Returns the hash that was stored at the last install; `null` before the first install. */
function installedHash(): string | null {
  try {
    return readFileSync(stampFile, 'utf8')
  } catch {
    return null
  }
}
