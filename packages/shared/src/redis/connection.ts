import { Redis } from 'ioredis'
import { coalesceWrites } from '../batching/coalesce-writes.ts'
import { checkClock } from '../observability/checks/clock.ts'
import { throwOnProblem, checkVersion } from '../observability/checks/check-result.ts'
import { type Dependency, reasonOf } from '../observability/health.ts'
import { backoffMs } from '../process/backoff.ts'
import type { Secret } from '../secrets/secret.ts'

export interface RedisOptions {
  /** Shown in `CLIENT LIST`. */
  readonly name: string
  readonly dependency: Dependency
  /** Prepended to every key (`REDIS_KEY_PREFIX`), so that installations can share a server. */
  readonly keyPrefix?: string
  /** Milliseconds a command may take before it fails. */
  readonly commandTimeoutMs?: number
}

export interface RedisConnection extends AsyncDisposable {
  readonly redis: Redis
}

/**
 * A connection that comes back by itself. While Redis is away commands fail at once instead of queueing:
 * whoever asks decides what to do without the store.
 */
export function connectRedis(url: Secret, options: RedisOptions): RedisConnection {
  const { dependency } = options
  let mayReopenAt = 0
  const redis = new Redis(url.reveal(), {
    connectionName: options.name,
    keyPrefix: options.keyPrefix ?? '',
    commandTimeout: options.commandTimeoutMs ?? 2_000,
    // A line that fell silent is kept as long as TCP keeps it: a quarter of an hour.
    socketTimeout: SILENCE_MS,
    // A primary that became a replica stays one, and keeps its lines: the address may lead to another server now.
    // But what is read is answered by a replica as well, and a new line for each write would take that away.
    reconnectOnError({ message }) {
      const now = performance.now()
      if (!/\b(READONLY|MASTERDOWN)\b/.test(message) || now < mayReopenAt) return false
      mayReopenAt = now + REOPEN_MS
      return true
    },
    connectTimeout: 3_000,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    // A write whose answer was lost must not run again behind our back.
    autoResendUnfulfilledCommands: false,
    retryStrategy: (attempt) => backoffMs(attempt, { baseMs: 100, capMs: 2_000, random: 1 }),
  })
  let isClosing = false
  let next: NodeJS.Timeout | undefined
  redis.on('connect', () => coalesceWrites(redis.stream))
  async function look(): Promise<void> {
    clearTimeout(next)
    try {
      await examine(redis, dependency)
      if (redis.status === 'ready') dependency.up()
    } catch (error) {
      dependency.down(reasonOf(error))
      // One slow answer must not count until the next connection.
      if (redis.status === 'ready') next = setTimeout(() => void look(), LOOK_MS)
    }
  }
  redis.on('ready', () => void look())
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

const LOOK_MS = 1_000
const SILENCE_MS = 4_000
const REOPEN_MS = 5_000

/**
 * Looks at a server that has just been reached.
 *
 * @throws {UnsupportedBackend} when it is too old
 * @throws what the driver does when the connection is lost meanwhile.
 */
async function examine(redis: Redis, dependency: Dependency): Promise<void> {
  const info = await redis.info('server').catch((error: unknown) => {
    // Users that may do nothing dangerous may not ask either: that alone is no reason against the server.
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
