/**
 * A Redis primary with one replica, which belong to a single test. Clients connect through a relay that follows the
 * primary, as the address of a Redis behind a failover does.
 */
import { eventually } from '@integration-host/shared/test-support/eventually'
import { type Relay, startRelay } from '@integration-host/shared/test-support/relay'
import { Redis } from 'ioredis'
import { startRestartableServer } from './restartable-servers.ts'

export interface RedisPair extends AsyncDisposable {
  /** The address for clients. */
  readonly address: Relay
  /** The connection over which the replica gets the writes of the primary. */
  readonly link: Relay
  /** The test's own connections, which stay at their servers. */
  readonly primary: Redis
  readonly replica: Redis
  /** Makes the replica a primary, and leads new connections to it. `cut` closes the existing ones. */
  promote(connections: 'cut' | 'kept'): Promise<void>
  /** After `promote`: makes the old primary a replica of the new one. */
  rejoin(): Promise<void>
}

export async function startRedisPair(): Promise<RedisPair> {
  await using opened = new AsyncDisposableStack()
  const first = opened.use(await startRestartableServer('redis'))
  const second = opened.use(await startRestartableServer('redis'))
  const connect = (url: string): Redis => {
    const redis = opened.adopt(new Redis(url), (connection) => connection.disconnect())
    redis.on('error', () => {})
    return redis
  }
  const primary = connect(first.url)
  const replica = connect(second.url)
  const link = opened.use(await startRelay(first.url, 6379))
  const address = opened.use(await startRelay(first.url, 6379))
  const { password } = new URL(first.url)
  const { hostname, port } = new URL(link.url)
  // Clients use one password at both servers.
  await replica.config('SET', 'requirepass', password)
  for (const server of [primary, replica]) {
    await server.config('SET', 'masterauth', password)
    await server.config('SET', 'repl-diskless-sync-delay', '0')
    // By default a primary waits 10 s at its end for a replica that is behind. Redis before version 7 does not wait.
    await server.config('SET', 'shutdown-timeout', '0').catch(() => {})
  }
  await replica.replicaof(hostname, Number(port))
  await eventually(async () => {
    if (!(await replica.info('replication')).includes('master_link_status:up'))
      throw new Error('the replica is not connected')
  })
  const running = opened.move()
  return {
    address,
    link,
    primary,
    replica,
    async promote(connections) {
      await replica.replicaof('NO', 'ONE')
      address.redirect(second.url)
      if (connections === 'cut') address.cut()
    },
    async rejoin() {
      const { hostname: host, port: newPort } = new URL(second.url)
      await primary.replicaof(host, Number(newPort))
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  }
}
