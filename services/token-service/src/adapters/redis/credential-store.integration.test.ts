import { afterEach, describe, expect, it } from 'vitest'
import { EnvelopeRefused, type KeyRing, parseKeyRing } from '@integration-host/shared/envelope'
import { Secret } from '@integration-host/shared/secret'
import { deedOf, grantOf } from '../../../test-support/grants.ts'
import {
  dropKeys,
  eventually,
  openTestRedis,
  type TestRedis,
  testKeys,
  usable,
} from '../../../test-support/service-fixture.ts'
import { credentialStoreContract } from '../../credential/credential-store.contract.ts'

const keys = testKeys()
const opened: TestRedis[] = []

afterEach(async () => {
  const prefixes = new Set(opened.map(({ prefix }) => prefix))
  for (const redis of opened.splice(0)) await redis[Symbol.asyncDispose]()
  for (const prefix of prefixes) await dropKeys(prefix)
})

async function open(ring: KeyRing = keys, prefix?: string): Promise<TestRedis> {
  const redis = await openTestRedis({ keys: ring, ...(prefix !== undefined && { prefix }) })
  opened.push(redis)
  return redis
}
async function openUsable(): Promise<TestRedis> {
  const redis = await open()
  await usable(redis)
  return redis
}

credentialStoreContract('Redis', {
  open: async () => (await openUsable()).store,
  async reopen() {
    const again = await open(keys, opened[0]?.prefix)
    await usable(again)
    return again.store
  },
})

describe('a credential in Redis', () => {
  it('is a hash with the fields of the contract, its secrets sealed, its keys without expiry', async () => {
    const { redis, store } = await openUsable()
    await store.put(grantOf('ACC-9341453908059889', 'canary'), 1, deedOf('granted'))
    const stored = await redis.hgetall('ACC-9341453908059889')
    expect(stored).toMatchObject({
      Name: 'ACC-9341453908059889',
      Environment: '9341453908059889',
      Expiry: '2026-01-01T01:00:00.000Z',
      RefreshedAt: '2026-01-01T00:00:00.000Z',
      Status: 'active',
      Version: '1',
    })
    for (const field of ['Authenticator', 'RefreshToken', 'StoreA'])
      expect(stored[field]).toMatch(/^1\.k1\./)
    expect(JSON.stringify(stored)).not.toContain('canary')
    expect(await redis.ttl('ACC-9341453908059889')).toBe(-1)
    expect(await redis.zscore('credentials:due', 'ACC-9341453908059889')).toBe('1')
  })

  it('has the empty string for what is absent', async () => {
    const { redis, store } = await openUsable()
    await store.put(
      { ...grantOf('ACC-1', 'canary'), idToken: null, environment: '' },
      1,
      deedOf('granted'),
    )
    expect(await redis.hmget('ACC-1', 'StoreA', 'Environment', 'Previous')).toEqual(['', '', ''])
    await redis.hset('ACC-1', 'Authenticator', '')
    expect((await store.get('ACC-1'))?.accessToken).toBeNull()
  })

  it.each([
    [
      'moved to another realm',
      async ({ redis }: TestRedis) =>
        redis.hset('ACC-2', 'Authenticator', (await redis.hget('ACC-1', 'Authenticator')) ?? ''),
    ],
    [
      'moved to another field',
      async ({ redis }: TestRedis) =>
        redis.hset('ACC-2', 'Authenticator', (await redis.hget('ACC-2', 'RefreshToken')) ?? ''),
    ],
    ['of another version', async ({ redis }: TestRedis) => redis.hset('ACC-2', 'Version', '2')],
    [
      'changed in one byte',
      async ({ redis }: TestRedis) => {
        const sealed = (await redis.hget('ACC-2', 'Authenticator')) ?? ''
        const flipped = sealed.at(-5) === 'A' ? 'B' : 'A'
        return redis.hset(
          'ACC-2',
          'Authenticator',
          `${sealed.slice(0, -5)}${flipped}${sealed.slice(-4)}`,
        )
      },
    ],
    [
      'cut to a short tag',
      async ({ redis }: TestRedis) =>
        redis.hset(
          'ACC-2',
          'Authenticator',
          ((await redis.hget('ACC-2', 'Authenticator')) ?? '').slice(0, 40),
        ),
    ],
  ])(
    'whose envelope was %s is refused, and its lease is free for the next one',
    async (_, tamper) => {
      const opening = await openUsable()
      await opening.store.put(grantOf('ACC-1', 'canary'), 1, deedOf('granted'))
      await opening.store.put(grantOf('ACC-2', 'canary'), 1, deedOf('granted'))
      await tamper(opening)
      await expect(opening.store.get('ACC-2')).rejects.toBeInstanceOf(EnvelopeRefused)
      await expect(opening.store.acquire('ACC-2', 'a', 60_000)).rejects.toBeInstanceOf(
        EnvelopeRefused,
      )
      await expect(opening.store.acquire('ACC-2', 'b', 60_000)).rejects.toBeInstanceOf(
        EnvelopeRefused,
      )
      expect((await opening.store.get('ACC-1'))?.version).toBe(1)
    },
  )

  it('is relayed by one replica at a time', async () => {
    const { store } = await openUsable()
    await store.put(grantOf('ACC-1', 'canary'), 1, deedOf('granted'))
    await store.audit(10)
    expect(await store.readOutbox('a', 150, 10)).toHaveLength(1)
    expect(await store.readOutbox('b', 150, 10)).toBeNull()
    await eventually(async () => expect(await store.readOutbox('b', 60_000, 10)).toHaveLength(1))
    await store.releaseOutbox('a')
    expect(await store.readOutbox('a', 150, 10)).toBeNull()
    await store.releaseOutbox('b')
    expect(await store.readOutbox('a', 150, 10)).toHaveLength(1)
  })
})

describe('the keys of the store', () => {
  const keyText = (id: string): string => `${id}:${Buffer.alloc(32, id).toString('base64')}`
  const ring = (...entries: string[]): KeyRing => parseKeyRing(new Secret(entries.join(',')))

  const unusable = async (redis: TestRedis): Promise<string> =>
    eventually(() => {
      const state = redis.health.report().dependencies['credential-keys']
      if (state?.status !== 'down') throw new Error('the keys were not refused')
      return state.reason
    })

  it('are refused when they are not the ones the store was written with, and nothing is overwritten', async () => {
    const right = await open(ring(keyText('k1')))
    await usable(right)
    await right.store.put(grantOf('ACC-1', 'canary'), 1, deedOf('granted'))
    const before = await right.redis.hgetall('credentials:canary')

    const sameId = await open(
      ring(`k1:${Buffer.alloc(32, 'other').toString('base64')}`),
      right.prefix,
    )
    expect(await unusable(sameId)).toBe(
      'CREDENTIAL_KEYS has no key, or another one, for the id k1 that this store was written with',
    )
    await expect(sameId.store.get('ACC-1')).rejects.toMatchObject({ code: 'store_unavailable' })
    await expect(
      sameId.store.put(grantOf('ACC-1', 'canary'), 1, deedOf('granted')),
    ).rejects.toMatchObject({
      code: 'store_unavailable',
    })

    const missing = await open(ring(keyText('k2')), right.prefix)
    expect(await unusable(missing)).toContain('for the id k1')
    expect(await right.redis.hgetall('credentials:canary')).toEqual(before)
  })

  it('may be added to: the new one seals, the old one still opens', async () => {
    const before = await open(ring(keyText('k1')))
    await usable(before)
    await before.store.put(grantOf('ACC-1', 'canary'), 1, deedOf('granted'))
    const after = await open(ring(keyText('k2'), keyText('k1')), before.prefix)
    await usable(after)
    expect((await after.store.get('ACC-1'))?.accessToken?.reveal()).toBe('access canary')
    await after.store.put(grantOf('ACC-2', 'canary'), 1, deedOf('granted'))
    expect(await after.redis.hget('ACC-2', 'Authenticator')).toMatch(/^1\.k2\./)
  })
})

describe('Redis away', () => {
  it('fails a call at once as unavailable', async () => {
    const nowhere = await openTestRedis({ keys, url: 'redis://127.0.0.1:1' })
    await expect(nowhere.store.get('ACC-1')).rejects.toMatchObject({ code: 'store_unavailable' })
    await expect(nowhere.authorizations.take('x')).rejects.toMatchObject({
      code: 'store_unavailable',
    })
    await nowhere[Symbol.asyncDispose]()
  })
})
