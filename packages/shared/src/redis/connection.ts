import { Redis } from 'ioredis'
import { coalesceWrites } from '../batching.ts'
import type { Dependency } from '../observability/health.ts'
import { backoffMs } from '../process/backoff.ts'
import { nameOf, type Server } from '../process/server-list.ts'
import type { Secret } from '../secrets/secret.ts'
import type { TlsFiles } from '../tls/tls-files.ts'
import { parseRedisUrl, type RedisAddress } from './address.ts'
import {
  type ClientOptions,
  type ConnectorDeps,
  connectorOptions,
  type ServerInfo,
  findPrimary,
  watchFailovers,
} from './connector.ts'
import { redisReason, checkServer, NotWritable, writeProblem } from './server-check.ts'

export interface RedisOptions {
  /** The name of the connection in the output of `CLIENT LIST`. */
  readonly name: string
  readonly dependency: Dependency
  /** The files of `REDIS_CA_FILE`, `REDIS_CERT_FILE` and `REDIS_KEY_FILE`. */
  readonly tls?: TlsFiles | undefined
  /** Prepended to every key (`REDIS_KEY_PREFIX`), so that installations can share a server. */
  readonly keyPrefix?: string
  /** The timeout of a command, in milliseconds. */
  readonly commandTimeoutMs?: number
}

export interface RedisConnection extends AsyncDisposable {
  readonly redis: Redis
}

/**
 * Connects to the primary at an address in one of the forms of `REDIS_URL` (see address.ts), and reconnects
 * automatically. While Redis is unavailable, commands are not queued but fail immediately, and the caller decides how
 * to continue.
 *
 * @throws {AddressError} if the address has none of these forms.
 */
export function connectRedis(url: Secret, options: RedisOptions): RedisConnection {
  const { dependency, tls } = options
  const address = parseRedisUrl(url.reveal())
  const attempts = createAttempts(address, tls)
  let mayReconnectAt = 0
  /** Returns whether the client may reconnect now, to find another primary. */
  const mayReconnect = (): boolean => {
    const now = performance.now()
    if (now < mayReconnectAt) return false
    mayReconnectAt = now + RECONNECT_INTERVAL_MS
    return true
  }
  const redis = new Redis({
    ...clientOptions(address, { ...attempts, tls, timeoutMs: CONNECT_TIMEOUT_MS }),
    connectionName: options.name,
    keyPrefix: options.keyPrefix ?? '',
    commandTimeout: options.commandTimeoutMs ?? 2_000,
    // Without this timeout an unresponsive connection stays open until TCP stops retransmitting, after about 15
    // minutes.
    socketTimeout: RESPONSE_TIMEOUT_MS,
    // After a failover the old primary keeps our connections open, either as a replica (READONLY) or as a primary that
    // has lost its replicas (NOREPLICAS). The address may lead to the new primary by now, so the client reconnects.
    // There are at least 5 s between two reconnects, so that reads on the old primary work between the reconnects.
    reconnectOnError: ({ message }) =>
      /\b(READONLY|MASTERDOWN|NOREPLICAS)\b/.test(message) && mayReconnect(),
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    // The driver must not repeat a write whose reply was lost, because the write may have been executed.
    autoResendUnfulfilledCommands: false,
    retryStrategy: (attempt) => attempts.pauseMs(attempt),
  })
  let isClosing = false
  let next: NodeJS.Timeout | undefined
  async function check(): Promise<void> {
    clearTimeout(next)
    try {
      await checkServer(redis, dependency)
      if (redis.status === 'ready') dependency.up()
    } catch (error) {
      dependency.down(redisReason(error))
      if (redis.status !== 'ready' || isClosing) return
      if (error instanceof NotWritable && mayReconnect()) return redis.disconnect(true)
      // The server is checked again after a pause. Otherwise one slow reply would keep the dependency down until the
      // next reconnect.
      next = setTimeout(() => void check(), CHECK_INTERVAL_MS)
    }
  }
  redis.on('connect', () => coalesceWrites(redis.stream))
  redis.on('ready', () => {
    attempts.succeeded()
    if (isReplaced()) return redis.disconnect(true)
    return void check()
  })
  redis.on('error', (error) => attempts.failed(redisReason(error)))
  redis.on('close', () => {
    const reason = attempts.ended()
    const isReported = dependency.state.status === 'up' || attempts.isRoundOver()
    if (!isClosing && isReported) dependency.down(reason)
  })
  let announced: { readonly primary: string; readonly at: number } | null = null
  /**
   * Returns whether a Sentinel has just announced a primary other than the server of this connection. A failover can be
   * announced while the client is connecting. Other Sentinels may learn of the failover later, and still name the
   * previous primary.
   */
  const isReplaced = (): boolean =>
    announced !== null &&
    announced.primary !== attempts.current() &&
    performance.now() - announced.at < ANNOUNCEMENT_MS
  const failovers =
    address.kind === 'servers'
      ? null
      : watchFailovers(address.sentinels, tls, (primary) => {
          announced = { primary: nameOf(primary), at: performance.now() }
          if (redis.status === 'ready' && isReplaced()) redis.disconnect(true)
        })
  return {
    redis,
    async [Symbol.asyncDispose]() {
      isClosing = true
      clearTimeout(next)
      failovers?.[Symbol.dispose]()
      redis.disconnect()
    },
  }
}

const CONNECT_TIMEOUT_MS = 3_000
const CHECK_INTERVAL_MS = 1_000
const RESPONSE_TIMEOUT_MS = 4_000
const RECONNECT_INTERVAL_MS = 5_000
/** For how many milliseconds the announcement of a failover takes precedence over the replies of other Sentinels. */
const ANNOUNCEMENT_MS = 10_000

/**
 * Returns the options of an ioredis client that connects to the address. The options contain the password.
 */
export const clientOptions = (
  { username, password, db, usesTls }: RedisAddress,
  deps: Omit<ConnectorDeps, 'usesTls'>,
): ClientOptions => ({
  ...connectorOptions({ ...deps, usesTls }),
  ...(username !== undefined && { username }),
  ...(password !== undefined && { password }),
  db,
})

/**
 * The connection attempts of one client. A round has one attempt for each listed server. With Sentinels, a round has
 * only one attempt. Within a round, the next attempt follows immediately. After a round in which every attempt failed,
 * there is a pause.
 */
function createAttempts(address: RedisAddress, tls: TlsFiles | undefined) {
  const servers = address.kind === 'servers' ? address.servers : []
  const roundLength = Math.max(servers.length, 1)
  const reasons = new Map<string, string>()
  let position = -1
  let current = ''
  /**
   * The number of attempts that have failed since the last usable connection ended, plus one for the end of that
   * connection.
   */
  let ended = 0
  let failure: string | null = null

  return {
    async next(): Promise<Server> {
      position = (position + 1) % roundLength
      const server =
        address.kind === 'sentinels'
          ? await findPrimary(address.sentinels, tls)
          : (address.servers[position] ?? address.servers[0])
      current = nameOf(server)
      return server
    },
    accepts(info: ServerInfo): boolean {
      const unwritable = writeProblem(info)
      // If only one server is configured, the client uses this server even while it is a replica, so that reads
      // continue to work.
      if (unwritable === null || servers.length === 1) return true
      // A primary with too few replicas may have been replaced by another listed server. Therefore it is used only if
      // no other primary is found.
      if (unwritable.check === 'replicas' && (servers.length === 0 || ended >= roundLength))
        return true
      failure = unwritable.found
      return false
    },
    current: () => current,
    failed(reason: string): void {
      failure ??= reason
    },
    /** Returns why the last attempt or the established connection ended. */
    ended(): string {
      const reason = failure ?? 'connection closed'
      failure = null
      if (roundLength === 1) return reason
      reasons.set(current, reason)
      return servers
        .map(nameOf)
        .flatMap((server) => (reasons.has(server) ? [`${server}: ${reasons.get(server)}`] : []))
        .join('; ')
    },
    succeeded(): void {
      ended = 0
      failure = null
      reasons.clear()
    },
    isRoundOver: () => ended % roundLength === 0,
    /** Returns the milliseconds until the next attempt. */
    pauseMs(attempt: number): number {
      ended = attempt
      if (attempt % roundLength > 0) return 0
      return backoffMs(attempt / roundLength, { baseMs: 100, capMs: 2_000, random: 1 })
    },
  }
}
