import { afterEach, describe, expect, it } from 'vitest'
import {
  dropKeys,
  openTestRedis,
  type TestRedis,
  testKeys,
  usable,
} from '../../../test-support/service-fixture.ts'
import { authorizationStoreContract } from '../../authorization/authorization-store.contract.ts'

let current: TestRedis | undefined

async function open(): Promise<TestRedis> {
  current = await openTestRedis({ keys: testKeys() })
  await usable(current)
  return current
}
afterEach(async () => {
  await current?.[Symbol.asyncDispose]()
  await dropKeys(current?.prefix ?? '')
  current = undefined
})

authorizationStoreContract('Redis', async () => (await open()).authorizations)

describe('an authorization in Redis', () => {
  it('shows neither state nor code nor verifier, and expires', async () => {
    const { redis, authorizations, prefix } = await open()
    const request = {
      nonce: 'canary-nonce',
      codeVerifier: 'canary-verifier',
      realm: null,
      returnTo: null,
      browser: null,
    }
    await authorizations.begin('canary-state', request, 60_000)
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
