/**
 * Detects that the connection leads to another Redis server than before, or to a restarted server. Such a server may
 * lack the newest writes, for example after a failover, or after a restart from an append-only file that is flushed
 * once a second.
 *
 * The time of the last change of servers is stored in Redis, so that every replica of token-service can read it, even
 * one that starts later. The script that stores an intent makes the same check, because it may run before the check in
 * this file.
 */
import type { Redis } from 'ioredis'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { StoreConnection } from '../../credential/credential-store.ts'
import { KEYS } from './key-names.ts'
import { defineScripts } from './scripts.ts'
import type { ReplicatedWrites } from './replicated-writes.ts'

export function watchServer(options: {
  readonly redis: Redis
  readonly writes: ReplicatedWrites
  readonly logger: Logger
}): StoreConnection & Disposable {
  const { redis, writes, logger } = options
  const script = defineScripts(redis)
  let changedAt: number | null = null
  let hasWarned = false

  async function examine(): Promise<void> {
    const info = await redis.info()
    const reply = (await script('observeServer', KEYS, {})) as string | null
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
  const onReady = (): void => void examine().catch(() => {})
  redis.on('ready', onReady)
  if (redis.status === 'ready') onReady()
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
    [Symbol.dispose]: () => void redis.off('ready', onReady),
  }
}
