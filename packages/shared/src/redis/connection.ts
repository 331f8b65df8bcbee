import { Redis } from 'ioredis'
import { coalesceWrites } from '../batching/coalesce-writes.ts'
import { checkClock } from '../observability/checks/clock.ts'
import { throwOnProblem, checkVersion } from '../observability/checks/check-result.ts'
import { type Dependency, reasonOf } from '../observability/health.ts'
import { backoffMs } from '../process/backoff.ts'
import type { Secret } from '../secrets/secret.ts'

export interface RedisOptions {
  /** The name of the connection in the output of `CLIENT LIST`. */
  readonly name: string
  readonly dependency: Dependency
  /** Prepended to every key (`REDIS_KEY_PREFIX`), so that installations can share a server. */
  readonly keyPrefix?: string
  /** The timeout of a command, in milliseconds. */
  readonly commandTimeoutMs?: number
}

export interface RedisConnection extends AsyncDisposable {
  readonly redis: Redis
}

/**
 * Connects to Redis, and reconnects automatically. While Redis is unavailable, commands fail immediately instead of
 * being queued, so that the caller can decide how to continue without Redis.
 */
export function connectRedis(url: Secret, options: RedisOptions): RedisConnection {
  const { dependency } = options
  let mayReconnectAt = 0
  const redis = new Redis(url.reveal(), {
    connectionName: options.name,
    keyPrefix: options.keyPrefix ?? '',
    commandTimeout: options.commandTimeoutMs ?? 2_000,
    // Without this timeout an unresponsive connection stays open until TCP stops retransmitting, after about 15 minutes.
    socketTimeout: RESPONSE_TIMEOUT_MS,
    // After a failover the old primary keeps our connections open as a replica, while the address may lead to the new
    // primary. The client therefore reconnects on READONLY, but at most every 5 s, so that reads on the replica keep
    // working between the attempts.
    reconnectOnError({ message }) {
      const now = performance.now()
      if (!/\b(READONLY|MASTERDOWN)\b/.test(message) || now < mayReconnectAt) return false
      mayReconnectAt = now + RECONNECT_INTERVAL_MS
      return true
    },
    connectTimeout: 3_000,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    // The driver must not repeat a write if the reply was lost, because the write may have been executed.
    autoResendUnfulfilledCommands: false,
    retryStrategy: (attempt) => backoffMs(attempt, { baseMs: 100, capMs: 2_000, random: 1 }),
  })
  let isClosing = false
  let next: NodeJS.Timeout | undefined
  redis.on('connect', () => coalesceWrites(redis.stream))
  async function check(): Promise<void> {
    clearTimeout(next)
    try {
      await examine(redis, dependency)
      if (redis.status === 'ready') dependency.up()
    } catch (error) {
      dependency.down(reasonOf(error))
      // The check is retried, because one slow reply must not keep the dependency down until the next reconnect.
      if (redis.status === 'ready') next = setTimeout(() => void check(), CHECK_INTERVAL_MS)
    }
  }
  redis.on('ready', () => void check())
  redis.on('error', (error) => dependency.down(reasonOf(error)))
  redis.on('close', () => isClosing || dependency.down('connection closed'))
  return {
    redis,
    async [Symbol.asyncDispose]() {
      isClosing = true
      clearTimeout(next)
      redis.disconnect()
    },
  }
}

const CHECK_INTERVAL_MS = 1_000
const RESPONSE_TIMEOUT_MS = 4_000
const RECONNECT_INTERVAL_MS = 5_000

/**
 * Checks the version and the clock of a Redis server after a connection to it was established.
 *
 * @throws {UnsupportedBackend} if the server is too old.
 * @throws the driver's error if the connection is lost during the check.
 */
async function examine(redis: Redis, dependency: Dependency): Promise<void> {
  const info = await redis.info('server').catch((error: unknown) => {
    // An ACL user without the command category @dangerous may not run INFO. No other command in use needs this
    // category, so the server is accepted although its version is unknown.
    if (error instanceof Error && error.message.startsWith('NOPERM')) return ''
    throw error
  })
  const version = /^redis_version:(\S+)/m.exec(info)?.[1]
  if (version !== undefined) throwOnProblem([checkVersion('redis', version)])
  const requestedAt = Date.now()
  const [seconds, micros] = await redis.time()
  const remoteAt = Number(seconds) * 1_000 + Number(micros) / 1_000
  dependency.logCheck(checkClock({ remoteAt, requestedAt, respondedAt: Date.now() }))
}
