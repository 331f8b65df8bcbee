import { describe, expect, it } from 'vitest'
import { redisStoresPerTest } from '../../../test-support/redis-stores.ts'
import { authorizationStoreContract } from '../../authorization/authorization-store.contract.ts'

const { openUsable } = redisStoresPerTest()

authorizationStoreContract('Redis', async () => (await openUsable()).authorizations)

describe('an authorization in Redis', () => {
  it('the authorization store in Redis stores used states and codes only as digests with an expiry', async () => {
    const { redis, authorizations, prefix } = await openUsable()
    await authorizations.useState('canary-state', 60_000)
    await authorizations.claimCode(
      'canary-code',
      { realm: '1', state: null, returnTo: null, result: null },
      60_000,
    )
    const keys = (await redis.keys(`${prefix}*`))
      .map((key) => key.slice(prefix.length))
      .filter((key) => !key.startsWith('credentials:'))
    expect(keys).toHaveLength(2)
    for (const key of keys) {
      expect(`${key} ${await redis.get(key)}`).not.toContain('canary')
      expect(await redis.pttl(key)).toBeGreaterThan(0)
    }
  })
})
