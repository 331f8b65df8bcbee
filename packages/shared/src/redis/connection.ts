import { Redis } from 'ioredis'
import { corkWrites } from '../corked-writes.ts'
import { type Dependency, reasonOf } from '../health.ts'
import type { Secret } from '../secret.ts'

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
  const redis = new Redis(url.reveal(), {
    connectionName: options.name,
    keyPrefix: options.keyPrefix ?? '',
    commandTimeout: options.commandTimeoutMs ?? 2_000,
    connectTimeout: 3_000,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    // A write whose answer was lost must not run again behind our back.
    autoResendUnfulfilledCommands: false,
    retryStrategy: (attempt) => Math.min(2_000, 50 * 2 ** Math.min(attempt, 6)),
  })
  let isClosing = false
  redis.on('connect', () => corkWrites(redis.stream))
  redis.on('ready', () => options.dependency.up())
  redis.on('error', (error) => options.dependency.down(reasonOf(error)))
  redis.on('close', () => isClosing || options.dependency.down('connection closed'))
  return {
    redis,
    async [Symbol.asyncDispose]() {
      isClosing = true
      redis.disconnect()
    },
  }
}
