/**
 * Checks every few seconds whether Redis accepts writes, by writing a small key.
 *
 * An open connection is not sufficient: Redis responds to reads and PING but rejects writes if its memory is full
 * (OOM), after a failed save (MISCONF), or as a replica (READONLY). No credential can then be refreshed or connected.
 * The check also fails while fewer replicas than required (`REDIS_REPLICAS`) acknowledge writes.
 */
import type { Redis } from 'ioredis'
import { type Dependency, reasonOf } from '@integration-host/shared/observability/health'
import { type ReplicatedWrites, TooFewReplicas } from './replicated-writes.ts'

const KEY = 'credentials:write-check'
const INTERVAL_MS = 3_000
/** The small key expires, so that it does not remain after the service has been removed. */
const KEY_TTL_MS = 60_000

/**
 * Reports to `dependency` whether the last write succeeded. A reconnect starts a check at once, even if an earlier
 * write has no reply yet. Disposing ends the checks.
 */
export function watchWrites(
  redis: Redis,
  writes: ReplicatedWrites,
  dependency: Dependency,
): Disposable {
  let timer: NodeJS.Timeout | undefined
  let isDisposed = false

  async function check(): Promise<void> {
    clearTimeout(timer)
    try {
      // If Redis does not reply, this promise is rejected after the command timeout of the connection.
      const write = (connection: Redis) => connection.set(KEY, '', 'PX', KEY_TTL_MS)
      await write(redis)
      if ((await writes.replicas()) > 0) await writes.run(write)
      dependency.up()
    } catch (error) {
      dependency.down(rejectionOf(error))
    }
    if (!isDisposed) timer = setTimeout(() => void check(), INTERVAL_MS)
  }
  const onReady = (): void => void check()
  const onClose = (): void => {
    clearTimeout(timer)
    dependency.down('the store is not connected')
  }
  redis.on('ready', onReady)
  redis.on('close', onClose)
  if (redis.status === 'ready') onReady()
  return {
    [Symbol.dispose]() {
      isDisposed = true
      clearTimeout(timer)
      redis.off('ready', onReady)
      redis.off('close', onClose)
    },
  }
}

/**
 * Returns the error code at the beginning of a Redis error reply, such as `OOM`. For an error without a code, returns
 * the reason why the command failed.
 */
function rejectionOf(error: unknown): string {
  if (error instanceof TooFewReplicas) return error.message
  const code = error instanceof Error ? /^([A-Z]{2,16}) /.exec(error.message)?.[1] : undefined
  return code === undefined ? reasonOf(error) : `Redis rejects writes: ${code}`
}
