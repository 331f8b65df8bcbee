/**
 * A Redis primary with one replica for a single test. Clients connect to a relay, whose address leads to the current
 * primary even after a failover.
 */
import { eventually } from '@integration-host/shared/test-support/eventually'
import { type Relay, startRelay } from '@integration-host/shared/test-support/relay'
import { Redis } from 'ioredis'
import { startRestartableServer } from './restartable-servers.ts'

export interface RedisPair extends AsyncDisposable {
  /** The address for clients. */
  readonly address: Relay
  /** The relay between the primary and the replica. The replica receives the writes over this relay. */
  readonly link: Relay
  /**
   * The connections of the test itself. Each of the two connections stays connected to its server, even after a
   * failover.
   */
  readonly primary: Redis
  readonly replica: Redis
  /**
   * Makes the replica a primary and routes new client connections to it. With `cut`, closes the existing connections.
   */
  promote(connections: 'cut' | 'kept'): Promise<void>
  /** Makes the old primary a replica of the new primary. Call `promote` first. */
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
  // Clients use one password for both servers, so the replica gets the password of the primary.
  await replica.config('SET', 'requirepass', password)
  for (const server of [primary, replica]) {
    await server.config('SET', 'masterauth', password)
    await server.config('SET', 'repl-diskless-sync-delay', '0')
    // At shutdown a primary waits up to 10 s for a replica that has not received all writes. This setting disables the
    // wait. Redis versions before 7 neither wait nor have the setting, so their error is ignored.
    await server.config('SET', 'shutdown-timeout', '0').catch(() => {})
  }
  await replica.replicaof(hostname, Number(port))
  await eventually(async () => {
    if (!(await replica.info('replication')).includes('master_link_status:up'))
      throw new Error('the replica is not connected to its primary')
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
