/** Redis servers and Sentinels that a single test file configures and uses. */
import { randomBytes } from 'node:crypto'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { serverFolders } from './server-binaries.ts'
import { ServerGroup } from './server-group.ts'

export interface RedisServer {
  readonly port: number
  /** The host and the port of the server: `127.0.0.1:<port>`. */
  readonly address: string
  /** Kills the server immediately, without a shutdown. */
  kill(): Promise<void>
}

export interface RedisServers extends AsyncDisposable {
  /** The password of all servers and Sentinels. */
  readonly password: string
  /** Starts a server with these additional lines of redis.conf, and waits until it accepts connections. */
  start(...lines: readonly string[]): Promise<RedisServer>
  /** Starts a Sentinel. */
  startSentinel(...lines: readonly string[]): Promise<RedisServer>
}

/**
 * Returns a group of servers, which is empty at first.
 *
 * @throws {Error} if Redis is not installed
 */
export async function createRedisServers(): Promise<RedisServers> {
  const program = join((await serverFolders(['redis'])).get('redis') ?? '', 'redis-server')
  const group = new ServerGroup()
  const password = randomBytes(16).toString('hex')

  async function start(
    readyLine: RegExp,
    args: readonly string[],
    lines: readonly string[],
  ): Promise<RedisServer> {
    const port = await freePort()
    const folder = join(group.folder, String(port))
    await mkdir(folder, { mode: 0o700 })
    const config = join(folder, 'redis.conf')
    const common = ['bind 127.0.0.1', `requirepass ${password}`, `dir ${folder}`]
    const usesTls = lines.some((line) => line.startsWith('tls-cert-file'))
    const listen = usesTls ? ['port 0', `tls-port ${port}`] : [`port ${port}`]
    await writeFile(config, [...common, ...listen, ...lines, ''].join('\n'), { mode: 0o600 })
    const logFile = join(folder, 'log')
    const command = { program, args: [config, ...args], logFile, stopSignal: 'TERM' } as const
    const server = group.start(command)
    await eventually(async () => {
      await server.assertRunning()
      if (!readyLine.test(await readFile(logFile, 'utf8')))
        throw new Error('the Redis server is still starting')
    })
    return { port, address: `127.0.0.1:${port}`, kill: () => server.kill() }
  }

  return {
    password,
    start: (...lines) =>
      start(/Ready to accept connections/, [], ['save ""', `masterauth ${password}`, ...lines]),
    startSentinel: (...lines) => start(/Sentinel ID is/, ['--sentinel'], lines),
    [Symbol.asyncDispose]: () => group.stop(),
  }
}
