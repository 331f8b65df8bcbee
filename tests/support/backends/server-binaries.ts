import { execFile } from 'node:child_process'
import { access, constants, readdir, realpath } from 'node:fs/promises'
import { delimiter, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { labels, type BackendKind } from './backend.ts'
import { reasonOf } from './probes.ts'

const run = promisify(execFile)

const packages: Record<BackendKind, string> = {
  postgres: 'postgresql',
  redis: 'redis-server',
  rabbitmq: 'rabbitmq-server',
}

/**
 * Returns the folder of each server's programs. Missing programs are installed with apt-get where that is possible.
 *
 * @throws {Error} that names every server that is not installed
 */
export async function serverFolders(
  kinds: readonly BackendKind[],
): Promise<ReadonlyMap<BackendKind, string>> {
  const folders = await findFolders(kinds)
  const missing = kinds.filter((kind) => !folders.has(kind))
  if (missing.length === 0) return folders

  const names = missing.map((kind) => labels[kind]).join(', ')
  if (!(await mayInstall())) throw new Error(`not installed: ${names}`)
  await install(missing.map((kind) => packages[kind]))
  const now = await findFolders(kinds)
  const still = kinds.filter((kind) => !now.has(kind))
  if (still.length > 0) throw new Error(`installed by apt-get, but not found: ${names}`)
  return now
}

/** Installs PgBouncer with apt-get where possible. Returns the folder of its program; `null` if it is not installed. */
export async function pgBouncerFolder(): Promise<string | null> {
  const find = () =>
    firstWith('pgbouncer', [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin'])
  const folder = await find()
  if (folder !== undefined) return folder
  if (!(await mayInstall())) {
    console.log('PgBouncer is not installed: the tests that need it are skipped')
    return null
  }
  await install(['pgbouncer'])
  return (await find()) ?? null
}

/**
 * Installs Debian's package of Chromium with apt-get where possible. Returns the path of Chromium; `null` if it is not
 * installed.
 */
export async function chromiumProgram(): Promise<string | null> {
  const find = async (): Promise<string | null> => {
    const folder = await firstWith('chromium', [
      ...(process.env['PATH'] ?? '').split(delimiter),
      '/usr/bin',
    ])
    return folder === undefined ? null : join(folder, 'chromium')
  }
  const program = await find()
  if (program !== null) return program
  if (!(await mayInstall())) {
    console.log('Chromium is not installed: the tests that need it are skipped')
    return null
  }
  await install(['chromium', 'fonts-dejavu-core'])
  return find()
}

async function findFolders(kinds: readonly BackendKind[]): Promise<Map<BackendKind, string>> {
  const folders = new Map<BackendKind, string>()
  for (const kind of kinds) {
    const folder = await findFolder(kind)
    if (folder !== undefined) folders.set(kind, folder)
  }
  return folders
}

async function findFolder(kind: BackendKind): Promise<string | undefined> {
  const path = (process.env['PATH'] ?? '').split(delimiter)
  switch (kind) {
    case 'postgres':
      // The folder of PostgreSQL's programs is not on Debian's PATH. A link to initdb is resolved, because the
      // programs next to initdb are needed too.
      return firstWith('initdb', [...path, ...(await debianPostgresFolders())])
    case 'redis':
      return firstWith('redis-server', [...path, '/usr/sbin', '/usr/local/sbin'])
    case 'rabbitmq':
      // The folder of the real programs comes first, because Debian's program on the PATH is a wrapper that does not
      // forward signals.
      return firstWith('rabbitmq-server', [
        '/usr/lib/rabbitmq/bin',
        ...path,
        '/usr/local/sbin',
        '/opt/homebrew/sbin',
      ])
  }
}

async function firstWith(program: string, folders: readonly string[]): Promise<string | undefined> {
  for (const folder of folders) {
    const file = join(folder, program)
    try {
      await access(file, constants.X_OK)
      return dirname(await realpath(file))
    } catch {
      // The program is not in this folder, so the next folder is tried.
    }
  }
  return undefined
}

async function debianPostgresFolders(): Promise<string[]> {
  const root = '/usr/lib/postgresql'
  const versions = await readdir(root).catch((): string[] => [])
  const newestFirst = versions.toSorted((a, b) => Number(b) - Number(a))
  return newestFirst.map((version) => join(root, version, 'bin'))
}

async function mayInstall(): Promise<boolean> {
  if (process.getuid?.() !== 0) return false
  return (await firstWith('apt-get', (process.env['PATH'] ?? '').split(delimiter))) !== undefined
}

async function install(names: readonly string[]): Promise<void> {
  console.log(`Installing ${names.join(', ')} with apt-get, once; about a minute…`)
  const aptGet = (args: readonly string[]): Promise<unknown> =>
    run('apt-get', ['-q', '-y', '-o', 'DPkg::Lock::Timeout=120', ...args], {
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
      maxBuffer: 64 * 1024 * 1024,
      timeout: 600_000,
    })
  try {
    await aptGet(['update'])
    await aptGet(['install', '--no-install-recommends', ...names])
  } catch (error) {
    const output = error instanceof Error && 'stderr' in error ? String(error.stderr).trim() : ''
    const lastLine = output.split('\n').at(-1) || reasonOf(error)
    throw new Error(`apt-get install ${names.join(' ')} failed: ${lastLine}`, { cause: error })
  }
}
