/** PgBouncer in front of a PostgreSQL server, for a single test. */
import { chown, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import { untilReachable } from './probes.ts'
import { serverAccount } from './server-commands.ts'
import { ServerGroup } from './server-group.ts'

const START_DEADLINE_MS = 30_000

export interface PgBouncer extends AsyncDisposable {
  readonly url: string
}

/** Starts PgBouncer in front of the server at `serverUrl`; `programs` is the folder of the PgBouncer program. */
export async function startPgBouncer(
  programs: string,
  serverUrl: string,
  mode: 'session' | 'transaction',
): Promise<PgBouncer> {
  const server = new URL(serverUrl)
  const user = await serverAccount()
  const group = new ServerGroup()
  try {
    const port = await freePort()
    const file = async (name: string, lines: readonly string[]): Promise<string> => {
      const path = join(group.folder, name)
      await writeFile(path, `${lines.join('\n')}\n`, { mode: 0o600 })
      if (user !== undefined) await chown(path, user.uid, user.gid)
      return path
    }
    const users = await file('users', [`"${server.username}" "${server.password}"`])
    const config = await file('pgbouncer.ini', [
      '[databases]',
      `* = host=${server.hostname} port=${server.port}`,
      '[pgbouncer]',
      'listen_addr = 127.0.0.1',
      `listen_port = ${port}`,
      'unix_socket_dir =',
      'auth_type = scram-sha-256',
      `auth_file = ${users}`,
      `pool_mode = ${mode}`,
      // In session mode each connection of the coordinator needs a separate server connection.
      `default_pool_size = ${mode === 'session' ? 20 : 2}`,
    ])
    const pooler = group.start({
      program: join(programs, 'pgbouncer'),
      args: [config],
      logFile: join(group.folder, 'log'),
      stopSignal: 'INT',
      user,
    })
    const url = new URL(serverUrl)
    url.port = String(port)
    await untilReachable('postgres', url.href, {
      deadlineMs: START_DEADLINE_MS,
      whileRunning: () => pooler.assertRunning(),
    })
    return { url: url.href, [Symbol.asyncDispose]: () => group.stop() }
  } catch (error) {
    await group.stop()
    throw error
  }
}
