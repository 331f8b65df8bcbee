/**
 * Verifies that the configured encryption keys match the records in Redis, before any record is read or written. For
 * each key that ever encrypted a record, Redis stores a key check value: a known text that was encrypted with this key.
 * The first process that uses a key stores its key check value.
 */
import type { Redis } from 'ioredis'
import { DecryptionError, type KeyRing } from '@integration-host/shared/secrets/envelope'
import { type Dependency, reasonOf } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import { CREDENTIAL_STORE, unavailable } from './commands.ts'
import { onConnection } from './server-watch.ts'

const CHECK_VALUES = 'credentials:canary'
const CHECK_VALUE = 'these are the right keys'
const placeOf = (keyId: string) => ({ name: CHECK_VALUES, field: keyId, version: 1 })
const RETRY_MS = 1_000

export interface KeyCheck extends Disposable {
  /**
   * Checks that the store may be used.
   *
   * @throws {IntegrationError} `store_unavailable` until the key check has passed on this connection.
   */
  readonly ensureUsable: () => void
}

/** Checks the keys after every connect, because a reconnect may lead to another server. */
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
      const reason = await mismatchOf(redis, keys)
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
  const watched = onConnection(
    redis,
    () => void check(),
    () => {
      isUsable = false
      dependency.down('the store is not connected')
    },
  )
  return {
    ensureUsable() {
      if (!isUsable) throw unavailable(CREDENTIAL_STORE)
    },
    [Symbol.dispose]() {
      clearTimeout(retry)
      watched[Symbol.dispose]()
    },
  }
}

/** Returns why the configured keys do not match the store; `null` if they match. */
async function mismatchOf(redis: Redis, keys: KeyRing): Promise<string | null> {
  // A check value is stored only if Redis has none for this key id. A wrong key therefore cannot overwrite the check
  // value of the right key.
  const ownValue = keys.seal(CHECK_VALUE, placeOf(keys.activeKeyId))
  const checkValues = await redis.hgetall(CHECK_VALUES)
  for (const [keyId, sealed] of Object.entries(checkValues)) {
    const reason = keyMismatch(keys, keyId, sealed)
    if (reason !== null) return reason
  }
  if (keys.activeKeyId in checkValues) return null
  await redis.hsetnx(CHECK_VALUES, keys.activeKeyId, ownValue)
  // Another replica may have stored a check value in the meantime, encrypted with a different key of the same id.
  return keyMismatch(
    keys,
    keys.activeKeyId,
    (await redis.hget(CHECK_VALUES, keys.activeKeyId)) ?? '',
  )
}

function keyMismatch(keys: KeyRing, keyId: string, sealed: string): string | null {
  try {
    return keys.open(sealed, placeOf(keyId)) === CHECK_VALUE
      ? null
      : 'CREDENTIAL_KEYS does not match the store'
  } catch (error) {
    if (!(error instanceof DecryptionError)) throw error
    return `CREDENTIAL_KEYS has no key, or another one, for the id ${keyId} that this store was written with`
  }
}

/** Deletes the check values of all keys except the active key. Resolves with the ids of the deleted keys. */
export async function retireKeyCheckValues(
  redis: Redis,
  keys: KeyRing,
): Promise<readonly string[]> {
  const others = (await redis.hkeys(CHECK_VALUES)).filter((id) => id !== keys.activeKeyId)
  if (others.length > 0) await redis.hdel(CHECK_VALUES, ...others)
  return others
}

// Managed Redis services reject the command CONFIG. The persistence settings are then unknown, so no warning is logged.
async function warnOfWeakPersistence(redis: Redis, logger: Logger): Promise<void> {
  const read = async (name: string): Promise<string | undefined> => {
    const reply = (await redis.config('GET', name).catch(() => [])) as string[]
    return reply[1]
  }
  const eviction = await read('maxmemory-policy')
  if (eviction !== undefined && eviction !== 'noeviction') {
    logger.warn({ eviction }, 'Redis may evict credentials: set maxmemory-policy noeviction')
  }
  if ((await read('appendonly')) === 'no') {
    logger.warn('Redis may lose token rotations at a restart: set appendonly yes')
  }
}
