/**
 * Proves that the keys at hand are the keys of the records in this Redis, before anything is read or
 * written: one sealed text per key that ever sealed, written by the first start with that key.
 */
import type { Redis } from 'ioredis'
import { DecryptionError, type KeyRing } from '@integration-host/shared/secrets/envelope'
import { IntegrationError } from '@integration-host/shared/errors'
import { type Dependency, reasonOf } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'

const CHECK_VALUES = 'credentials:canary'
const CHECK_VALUE = 'these are the right keys'
const placeOf = (keyId: string) => ({ name: CHECK_VALUES, field: keyId, version: 1 })
const RETRY_MS = 1_000

export interface KeyCheck extends Disposable {
  /** @throws {IntegrationError} `store_unavailable` until the check has passed on this connection. */
  readonly ensureUsable: () => void
}

/** Checks with every new connection: it may be another server than before. */
export function watchKeys(options: {
  readonly redis: Redis
  readonly keys: KeyRing
  readonly dependency: Dependency
  readonly logger: Logger
}): KeyCheck {
  const { redis, keys, dependency, logger } = options
  let isUsable = false
  let retry: NodeJS.Timeout | undefined

  async function check(): Promise<void> {
    try {
      const reason = await examine(redis, keys)
      if (reason !== null) return dependency.down(reason)
      isUsable = true
      dependency.up()
      await warnOfWeakPersistence(redis, logger)
    } catch (error) {
      if (isUsable) return
      dependency.down(reasonOf(error))
      clearTimeout(retry)
      if (redis.status === 'ready') retry = setTimeout(() => void check(), RETRY_MS)
    }
  }
  const onReady = (): void => void check()
  const onClose = (): void => {
    isUsable = false
    dependency.down('the store is not connected')
  }
  redis.on('ready', onReady)
  redis.on('close', onClose)
  if (redis.status === 'ready') onReady()
  return {
    ensureUsable() {
      if (isUsable) return
      throw new IntegrationError('store_unavailable', 'the credential store is not available', {
        retryAfterSeconds: 1,
      })
    },
    [Symbol.dispose]() {
      clearTimeout(retry)
      redis.off('ready', onReady)
      redis.off('close', onClose)
    },
  }
}

/** @returns why the keys are not the right ones, null when they are */
async function examine(redis: Redis, keys: KeyRing): Promise<string | null> {
  // Written only where there is none, so that a wrong ring never takes the place of the right one.
  const mine = keys.seal(CHECK_VALUE, placeOf(keys.activeKeyId))
  const checkValues = await redis.hgetall(CHECK_VALUES)
  for (const [keyId, sealed] of Object.entries(checkValues)) {
    const reason = examineOne(keys, keyId, sealed)
    if (reason !== null) return reason
  }
  if (keys.activeKeyId in checkValues) return null
  await redis.hsetnx(CHECK_VALUES, keys.activeKeyId, mine)
  // Another replica may have been first, with another key of the same id.
  return examineOne(
    keys,
    keys.activeKeyId,
    (await redis.hget(CHECK_VALUES, keys.activeKeyId)) ?? '',
  )
}

function examineOne(keys: KeyRing, keyId: string, sealed: string): string | null {
  try {
    return keys.open(sealed, placeOf(keyId)) === CHECK_VALUE
      ? null
      : 'CREDENTIAL_KEYS does not fit the store'
  } catch (error) {
    if (!(error instanceof DecryptionError)) throw error
    return `CREDENTIAL_KEYS has no key, or another one, for the id ${keyId} that this store was written with`
  }
}

/** Takes away what tells that other keys than the active one have sealed here; their ids. */
export async function retireKeyCheckValues(
  redis: Redis,
  keys: KeyRing,
): Promise<readonly string[]> {
  const others = (await redis.hkeys(CHECK_VALUES)).filter((id) => id !== keys.activeKeyId)
  if (others.length > 0) await redis.hdel(CHECK_VALUES, ...others)
  return others
}

// Managed servers refuse CONFIG; then there is nothing to say.
async function warnOfWeakPersistence(redis: Redis, logger: Logger): Promise<void> {
  const read = async (name: string): Promise<string | undefined> => {
    const answer = (await redis.config('GET', name).catch(() => [])) as string[]
    return answer[1]
  }
  const eviction = await read('maxmemory-policy')
  if (eviction !== undefined && eviction !== 'noeviction') {
    logger.warn({ eviction }, 'Redis may evict credentials: set maxmemory-policy noeviction')
  }
  if ((await read('appendonly')) === 'no') {
    logger.warn('Redis keeps no append-only file: a restart may lose rotations, set appendonly yes')
  }
}
