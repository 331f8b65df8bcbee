/** Watches the Redis server: whether it accepts writes, and whether the connection leads to another server. */
import type { Redis } from 'ioredis'
import { type Dependency, reasonOf } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { StoreConnection } from '../../credential/credential-store.ts'
import { scriptsOn } from './commands.ts'
import { observeServer } from './credential-leases.ts'
import { KEYS } from './key-names.ts'
import { type ReplicatedWrites, TooFewReplicas } from './replicated-writes.ts'

/**
 * Calls `onReady` when the connection is established, also if it is established already, and `onClose` when it is lost,
 * until the returned object is disposed.
 */
export function onConnection(
  redis: Redis,
  onReady: () => void,
  onClose: () => void = () => {},
): Disposable {
  redis.on('ready', onReady)
  redis.on('close', onClose)
  if (redis.status === 'ready') onReady()
  return {
    [Symbol.dispose]() {
      redis.off('ready', onReady)
      redis.off('close', onClose)
    },
  }
}

/**
 * Detects that the connection leads to another Redis server than before, or to a restarted server. Such a server may
 * lack the newest writes, for example after a failover, or after a restart from an append-only file that is flushed
 * once a second.
 *
 * The time of the last change of servers is stored in Redis, so that every replica of token-service can read it, even
 * one that starts later. The script that stores an intent makes the same check, because it may run before this one.
 */
export function watchServer(options: {
  readonly redis: Redis
  readonly writes: ReplicatedWrites
  readonly logger: Logger
}): StoreConnection & Disposable {
  const { redis, writes, logger } = options
  const script = scriptsOn(redis)
  let changedAt: number | null = null
  let hasWarned = false

  async function examine(): Promise<void> {
    const info = await redis.info()
    const reply = (await script(observeServer, KEYS, {})) as string | null
    changedAt = reply === null ? null : Number(reply)
    const replicas = Number(/^connected_slaves:(\d+)/m.exec(info)?.[1] ?? 0)
    if (replicas > 0 && !hasWarned && (await writes.replicas()) === 0) {
      hasWarned = true
      const remedy = 'Set REDIS_REPLICAS=1, or min-replicas-to-write at every Redis server.'
      logger.warn(
        { replicas, remedy },
        'Redis has replicas, but no write waits for them: a failover may lose token rotations',
      )
    }
  }

  // The error is ignored: the connection was lost again, or this Redis account has no permission to run INFO.
  const established = onConnection(redis, () => void examine().catch(() => {}))
  return {
    serverChangedAt: () => changedAt,
    watch(listener) {
      const onEstablished = (): void => listener(true)
      const onLost = (): void => listener(false)
      redis.on('ready', onEstablished)
      redis.on('close', onLost)
      return {
        [Symbol.dispose]() {
          redis.off('ready', onEstablished)
          redis.off('close', onLost)
        },
      }
    },
    [Symbol.dispose]: () => established[Symbol.dispose](),
  }
}

const KEY = 'credentials:write-check'
const INTERVAL_MS = 3_000
/** The small key expires, so that it does not remain after the service has been removed. */
const KEY_TTL_MS = 60_000

/**
 * Checks every few seconds whether Redis accepts writes, by writing a small key, and reports the result to `dependency`.
 * A reconnect starts a check at once, even if an earlier write has no reply yet. Disposing ends the checks.
 *
 * An open connection is not sufficient: Redis responds to reads and PING but rejects writes if its memory is full
 * (OOM), after a failed save (MISCONF), or as a replica (READONLY). No credential can then be refreshed or connected.
 * The check also fails while fewer replicas than required (`REDIS_REPLICAS`) acknowledge writes.
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
  const watched = onConnection(
    redis,
    () => void check(),
    () => {
      clearTimeout(timer)
      dependency.down('the store is not connected')
    },
  )
  return {
    [Symbol.dispose]() {
      isDisposed = true
      clearTimeout(timer)
      watched[Symbol.dispose]()
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
