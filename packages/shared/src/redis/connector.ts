import { connect as connectTcp, isIP, Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { AbstractConnector, type RedisOptions, Redis } from 'ioredis'
import { type Server, nameOf } from '../process/server-list.ts'
import type { TlsFiles } from '../tls/tls-files.ts'
import type { SentinelAddress } from './address.ts'
import { NoPrimary, redisReason } from './server-check.ts'

/** The options of an ioredis client, without the option that converts replies. */
export type ClientOptions = Omit<RedisOptions, 'replyMapping'>

/** The reply to INFO, by field. It is empty if the Redis user is not permitted to run INFO. */
export type ServerInfo = Readonly<Record<string, string | undefined>>

export interface ConnectorDeps {
  /** Returns the server of the next connection attempt. If the function throws, the attempt counts as failed. */
  readonly next: () => Server | Promise<Server>
  readonly usesTls: boolean
  readonly tls: TlsFiles | undefined
  /** How long a connection may take until it is established, including the TLS handshake. */
  readonly timeoutMs: number
  /**
   * Decides about each new connection. If the function returns false, the client closes the new connection and makes
   * another connection attempt.
   */
  readonly accepts?: (info: ServerInfo) => boolean
}

const DISCONNECT_TIMEOUT_MS = 2_000

/**
 * Returns the options for an ioredis client. Before each connection attempt, such a client gets a server from `next`
 * and reads the TLS files again. With the options of ioredis alone, the server and the TLS files could not change after
 * the client was created.
 */
export function connectorOptions(deps: ConnectorDeps): ClientOptions {
  class Connector extends AbstractConnector {
    constructor() {
      super(DISCONNECT_TIMEOUT_MS)
    }

    override async connect(): Promise<Socket> {
      this.connecting = true
      delete this.firstError
      try {
        const server = await deps.next()
        // The client may have called `disconnect` in the meantime.
        this.stream = this.connecting ? open(server, deps) : closedSocket()
      } catch (error) {
        if (error instanceof Error) this.firstError = error
        this.stream = closedSocket()
      }
      // A TLS socket can emit a second error, for example an alert and then the failed write. ioredis removes its own
      // listener after the first error, and an error without a listener would end the process.
      this.stream.on('error', (error: Error) => (this.firstError ??= error))
      return this.stream
    }

    override check(info: ServerInfo): boolean {
      return deps.accepts?.(info) ?? true
    }
  }
  // With the option `tls`, ioredis waits for the end of the TLS handshake. The option is empty, because the function
  // `open` passes the TLS files to the socket. ioredis's own timeout is disabled, because its error does not say
  // whether the connection or the handshake took too long.
  return { Connector, connectTimeout: 0, ...(deps.usesTls && { tls: {} }) }
}

function open({ host, port }: Server, { usesTls, tls, timeoutMs }: ConnectorDeps): Socket {
  // Node sends the host name in the TLS handshake (SNI) only if the option `servername` is set.
  const name = isIP(host) === 0 ? { servername: host } : {}
  const socket = usesTls
    ? connectTls({ host, port, ...name, ...tls?.read() })
    : connectTcp({ host, port })
  let code = 'ETIMEDOUT'
  socket.once('connect', () => (code = 'ERR_TLS_HANDSHAKE_TIMEOUT'))
  const timeout = setTimeout(
    () => socket.destroy(Object.assign(new Error(code), { code, syscall: 'connect' })),
    timeoutMs,
  )
  for (const event of [usesTls ? 'secureConnect' : 'connect', 'close'])
    socket.once(event, () => clearTimeout(timeout))
  return socket
}

// ioredis makes another attempt if it gets a closed socket. It would make no further attempt if the promise of
// `connect` were rejected.
const closedSocket = (): Socket => new Socket().destroy()

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
