import { Redis } from 'ioredis'
import { nameOf, type Server } from '../process/server-list.ts'
import type { TlsFiles } from '../tls/tls-files.ts'
import type { SentinelAddress } from './address.ts'
import { type ClientOptions, connectorOptions } from './connector.ts'
import { NoPrimary, redisReason } from './reason.ts'

const TIMEOUT_MS = 1_000
const RECONNECT_INTERVAL_MS = 5_000

/** The primary, as a Sentinel describes it. */
export interface Primary extends Server {
  /** The configuration number of the primary. The configuration with the larger number is newer. */
  readonly epoch: number
  /** The milliseconds after which Sentinel regards an unresponsive primary as down. */
  readonly downAfterMs: number
}

/**
 * Queries all Sentinels for the address of the primary. If the Sentinels name different primaries, the newest
 * configuration is used, because a Sentinel without contact to the other Sentinels still names the previous primary.
 *
 * @throws {NoPrimary} if no Sentinel names a primary; the message has a reason for each Sentinel.
 */
export async function findPrimary(
  sentinels: SentinelAddress,
  tls: TlsFiles | undefined,
): Promise<Primary> {
  const replies = await Promise.allSettled(
    sentinels.servers.map((server) => askSentinel(server, sentinels, tls)),
  )
  const [newest] = replies
    .flatMap((reply) => (reply.status === 'fulfilled' ? [reply.value] : []))
    .toSorted((one, other) => other.epoch - one.epoch)
  if (newest !== undefined) return newest
  const reasons = replies.map((reply, index) => {
    const server = sentinels.servers[index]
    const reason = reply.status === 'rejected' ? redisReason(reply.reason) : ''
    return `Sentinel ${server === undefined ? '' : nameOf(server)}: ${reason}`
  })
  throw new NoPrimary(reasons.join('; '))
}

async function askSentinel(
  server: Server,
  sentinels: SentinelAddress,
  tls: TlsFiles | undefined,
): Promise<Primary> {
  const client = new Redis({
    ...clientOptions(server, sentinels, tls),
    commandTimeout: TIMEOUT_MS,
    maxRetriesPerRequest: 0,
    retryStrategy: () => null,
  })
  // If the connection is lost, only the event `error` contains the reason. The error of the command does not.
  let failure: unknown
  client.on('error', (error) => (failure ??= error))
  try {
    await client.connect()
    const reply = (await client.call('SENTINEL', 'MASTER', sentinels.name)) as string[]
    const field = (name: string): string => reply[reply.indexOf(name) + 1] ?? ''
    return {
      host: field('ip'),
      port: Number(field('port')),
      epoch: Number(field('config-epoch')),
      downAfterMs: Number(field('down-after-milliseconds')),
    }
  } catch (error) {
    throw failure ?? error
  } finally {
    client.disconnect()
  }
}

/** Calls `onSwitch` with the new primary when a Sentinel announces a failover. Disposing closes the connections. */
export function watchFailovers(
  sentinels: SentinelAddress,
  tls: TlsFiles | undefined,
  onSwitch: (primary: Server) => void,
): Disposable {
  const clients = sentinels.servers.map((server) => {
    const client = new Redis({
      ...clientOptions(server, sentinels, tls),
      maxRetriesPerRequest: null,
      retryStrategy: () => RECONNECT_INTERVAL_MS,
    })
    // A single unavailable Sentinel is not reported, because the others announce failovers too. If all are
    // unavailable, the next search for the primary fails and is reported.
    client.on('error', () => {})
    client.on('message', (_, text: string) => {
      // The message of the announcement: <name> <previous host> <previous port> <host> <port>
      const [name, , , host, port] = text.split(' ')
      if (name === sentinels.name && host !== undefined) onSwitch({ host, port: Number(port) })
    })
    client.subscribe('+switch-master').catch(() => {})
    return client
  })
  return {
    [Symbol.dispose]() {
      for (const client of clients) client.disconnect()
    },
  }
}

const clientOptions = (
  server: Server,
  { username, password, usesTls }: SentinelAddress,
  tls: TlsFiles | undefined,
): ClientOptions => ({
  ...connectorOptions({ next: () => server, usesTls, tls, timeoutMs: TIMEOUT_MS }),
  ...(username !== undefined && { username }),
  ...(password !== undefined && { password }),
  lazyConnect: true,
  enableReadyCheck: false,
  disableClientInfo: true,
})
