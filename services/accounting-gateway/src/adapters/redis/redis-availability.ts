import type { Logger } from '@integration-host/shared/observability/logger'

/**
 * How long no command is sent to Redis after a failed command. Without this pause, every call would wait for the Redis
 * timeout.
 */
const RETRY_AFTER_FAILURE_MS = 1_000

/**
 * Records whether Redis can be used. All rate limiters of one gateway process share one such object, which logs each
 * change once.
 */
export interface RedisAvailability {
  isUnavailable(): boolean
  failed(error: unknown): void
  succeeded(): void
}

export function createRedisAvailability(
  logger: Logger,
  now: () => number = Date.now,
): RedisAvailability {
  let unavailableUntil = 0
  let isCountingAlone = false
  return {
    isUnavailable: () => now() < unavailableUntil,
    failed(error) {
      unavailableUntil = now() + RETRY_AFTER_FAILURE_MS
      if (!isCountingAlone)
        logger.warn(
          { err: error },
          'redis is unavailable: each gateway replica limits only its own calls',
        )
      isCountingAlone = true
    },
    succeeded() {
      if (isCountingAlone)
        logger.info('redis is available again: rate limits count the calls of all replicas')
      isCountingAlone = false
    },
  }
}
