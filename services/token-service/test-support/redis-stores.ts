/** The Redis stores that the tests of a file open. */
import { afterEach } from 'vitest'
import type { KeyRing } from '@integration-host/shared/secrets/envelope'
import { dropKeys, openTestRedis, type TestRedis, testKeys, usable } from './service-fixture.ts'

export interface RedisStores {
  /**
   * Opens a store with the given encryption keys, by default the keys of the test file. The `prefix` of an earlier
   * store opens the same store again.
   */
  readonly open: (keys?: KeyRing, prefix?: string) => Promise<TestRedis>
  /** Opens a store, and resolves when it is available. */
  readonly openUsable: (prefix?: string) => Promise<TestRedis>
  /** The key prefix of the first store that the running test has opened. */
  readonly firstPrefix: () => string | undefined
}

/** Closes all opened stores after each test, and deletes their keys. */
export function redisStoresPerTest(): RedisStores {
  const ownKeys = testKeys()
  const opened: TestRedis[] = []

  afterEach(async () => {
    const prefixes = new Set(opened.map(({ prefix }) => prefix))
    for (const redis of opened.splice(0)) await redis[Symbol.asyncDispose]()
    for (const prefix of prefixes) await dropKeys(prefix)
  })

  async function open(keys: KeyRing = ownKeys, prefix?: string): Promise<TestRedis> {
    const redis = await openTestRedis({ keys, ...(prefix !== undefined && { prefix }) })
    opened.push(redis)
    return redis
  }
  return {
    open,
    async openUsable(prefix) {
      const redis = await open(ownKeys, prefix)
      await usable(redis)
      return redis
    },
    firstPrefix: () => opened[0]?.prefix,
  }
}
