/**
 * Starts PostgreSQL servers that belong to a single test: servers with TLS, and servers with standbys that can be
 * frozen and promoted.
 */
import { execFile } from 'node:child_process'
import { chmod, chown, copyFile, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import postgres from 'postgres'
import { serverFolders } from './server-binaries.ts'
import { setUpServer, startServer } from './server-commands.ts'
import { type ServerCommand, ServerGroup } from './server-group.ts'

const run = promisify(execFile)

export interface PostgresNode extends AsyncDisposable {
  readonly url: string
  readonly port: number
  readonly folder: string
  readonly sql: postgres.Sql
  /** Suspends all processes of the server. Its connections stay open and get no responses. */
  freeze(): Promise<void>
  thaw(): Promise<void>
  /** Ends all processes immediately, as in a crash. */
  kill(): Promise<void>
  /** Makes a standby the primary. */
  promote(): Promise<void>
  /** Replaces the certificate of a server with TLS. Existing connections continue with the previous certificate. */
  rotate(tls: TlsFiles): Promise<void>
}

export interface TlsFiles {
  readonly certFile: string
  readonly keyFile: string
  /** The certificate of the authority that has signed the client certificates. */
  readonly caFile: string
}

export interface PostgresNodeOptions {
  readonly settings?: Readonly<Record<string, string>>
  readonly tls?: TlsFiles
  /** Lines of `pg_hba.conf`, in place of those that `initdb` writes. */
  readonly access?: string
}

/** Starts a primary. */
export async function startPrimary(options: PostgresNodeOptions = {}): Promise<PostgresNode> {
  const programs = await programsFolder()
  const group = new ServerGroup()
  try {
    const setup = await setUpServer('postgres', programs, group)
    const folder = join(group.folder, 'postgres', 'data')
    const settings: Record<string, string> = { ...options.settings }
    if (options.tls !== undefined) {
      Object.assign(settings, await giveTls(options.tls, folder, setup.command.user))
      settings['ssl'] = 'on'
    }
    if (options.access !== undefined) await writeFile(join(folder, 'pg_hba.conf'), options.access)
    return await start(setup.url, folder, withSettings(setup.command, settings), group)
  } catch (error) {
    await group.stop()
    throw error
  }
}

/** Copies a primary and starts the copy as its standby; `name` is the standby's `application_name`. */
export async function startStandby(primary: PostgresNode, name: string): Promise<PostgresNode> {
  const programs = await programsFolder()
  const group = new ServerGroup()
  try {
    // `setUpServer` also creates a database. Only the account and the folder are used, because the data is copied
    // from the primary.
    const { command } = await setUpServer('postgres', programs, group)
    const folder = join(group.folder, 'postgres', 'standby')
    const from = new URL(primary.url)
    from.searchParams.set('application_name', name)
    await run(
      join(programs, 'pg_basebackup'),
      ['-D', folder, '-d', from.href, '-R', '-X', 'stream', '--checkpoint=fast', '--no-sync'],
      { cwd: '/', ...command.user },
    )
    const port = await freePort()
    const url = new URL(primary.url)
    url.port = String(port)
    const args = command.args.map((arg, index) => (command.args[index - 1] === '-D' ? folder : arg))
    const own = withSettings({ ...command, args }, { port: String(port) })
    return await start(url.href, folder, own, group)
  } catch (error) {
    await group.stop()
    throw error
  }
}

async function start(
  url: string,
  folder: string,
  command: ServerCommand,
  group: ServerGroup,
): Promise<PostgresNode> {
  const server = await startServer('postgres', { url, command }, group)
  const sql = postgres(url, { max: 2, onnotice: () => {} })
  const [line = ''] = (await readFile(join(folder, 'postmaster.pid'), 'utf8')).split('\n')
  const pid = Number(line)
  let stopped: number[] = []
  const node: PostgresNode = {
    url,
    port: Number(new URL(url).port),
    folder,
    sql,
    async freeze() {
      // The postmaster is stopped first, so that it starts no further process.
      stopped = [pid]
      process.kill(pid, 'SIGSTOP')
      stopped.push(...(await childrenOf(pid)))
      for (const each of stopped) signal(each, 'SIGSTOP')
    },
    async thaw() {
      for (const each of stopped.toReversed()) signal(each, 'SIGCONT')
      stopped = []
    },
    async kill() {
      // On SIGQUIT all processes of PostgreSQL exit immediately, without a checkpoint.
      process.kill(pid, 'SIGQUIT')
      await node.thaw()
      await server.ended
    },
    async promote() {
      await sql`select pg_promote()`
    },
    async rotate(tls) {
      await giveTls(tls, folder, command.user)
      await sql`select pg_reload_conf()`
    },
    async [Symbol.asyncDispose]() {
      await node.thaw()
      await sql.end({ timeout: 1 })
      await group.stop()
    },
  }
  return node
}

async function programsFolder(): Promise<string> {
  return (await serverFolders(['postgres'])).get('postgres') ?? ''
}

/** Appends settings to a start command. PostgreSQL uses the last value of a repeated option. */
const withSettings = (
  command: ServerCommand,
  settings: Readonly<Record<string, string>>,
): ServerCommand => ({
  ...command,
  args: [
    ...command.args,
    ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]),
  ],
})

/** Copies the TLS files, readable for the server's account. Returns the settings that name the copies. */
async function giveTls(
  { certFile, keyFile, caFile }: TlsFiles,
  folder: string,
  user: ServerCommand['user'],
): Promise<Record<string, string>> {
  const settings: Record<string, string> = {}
  for (const [name, from] of Object.entries({
    ssl_cert_file: certFile,
    ssl_key_file: keyFile,
    ssl_ca_file: caFile,
  })) {
    const to = join(folder, name)
    await copyFile(from, to)
    // PostgreSQL rejects a private key that other users can read.
    await chmod(to, 0o600)
    if (user !== undefined) await chown(to, user.uid, user.gid)
    settings[name] = to
  }
  return settings
}

async function childrenOf(pid: number): Promise<number[]> {
  const { stdout } = await run('pgrep', ['-P', String(pid)])
  return stdout.trim().split('\n').map(Number)
}

function signal(pid: number, name: 'SIGSTOP' | 'SIGCONT'): void {
  try {
    process.kill(pid, name)
  } catch {
    // The process has ended before the signal was sent.
  }
}
