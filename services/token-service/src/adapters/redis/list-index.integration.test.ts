import { describe, expect, it } from 'vitest'
import { auditContextOf, grantOf, START } from '../../../test-support/grants.ts'
import { redisStoresPerTest } from '../../../test-support/redis-stores.ts'
import type { TestRedis } from '../../../test-support/service-fixture.ts'
import type { CredentialStore } from '../../credential/credential-store.ts'
import { faultOf } from '../../credential/fault.ts'
import { allNames, type CredentialFilter } from '../../credential/listing.ts'
import { prefixRanges } from './list-index.ts'

const { openUsable } = redisStoresPerTest()
const { signal } = new AbortController()
const granted = auditContextOf('granted')

const connect = (store: CredentialStore, realm: string, given: object = {}) =>
  store.put({ ...grantOf(`ACC-${realm}`, realm), ...given }, START, granted)

async function fail(store: CredentialStore, realm: string): Promise<void> {
  const acquired = await store.acquire(`ACC-${realm}`, 'a', 60_000)
  if (acquired.kind !== 'acquired') throw new Error(acquired.kind)
  const reason = { body: '{}', traceId: null }
  const fault = faultOf(`ACC-${realm}`, 'invalid_grant', reason, { at: START, attempts: 1 })
  const settlement = { attempts: 1, nextTryAt: null, fault, isPublished: true, keepsIntent: false }
  await store.settle(acquired.leased.lease, settlement, auditContextOf('faulted'))
}

const list = async (store: CredentialStore, conditions: Partial<CredentialFilter>) => {
  const everything = { states: [], classes: [], tags: [], text: '', ranges: [allNames] }
  const filter = { ...everything, ...conditions }
  const { items } = await store.find({ after: '', limit: 100, filter })
  return items.map(({ environment }) => environment).join(' ')
}

/** Deletes everything from Redis that an earlier release does not write. */
async function asEarlierRelease({ redis }: TestRedis, ...names: string[]): Promise<void> {
  for (const name of names) await redis.hdel(name, 'Listed')
  const { keyPrefix = '' } = redis.options
  for (const key of await redis.keys(`${keyPrefix}credentials:index*`))
    await redis.del(key.slice(keyPrefix.length))
}

describe('the list index of the Redis store after an upgrade', () => {
  it('while the list index is incomplete, lists by state are correct, but requests for counts are rejected', async () => {
    const test = await openUsable()
    const { store } = test
    for (const realm of ['1', '2', '3']) await connect(store, realm)
    await fail(store, '2')
    await asEarlierRelease(test, 'ACC-1', 'ACC-2', 'ACC-3')
    expect(await list(store, { states: ['must_reconnect'] })).toBe('2')
    expect(await list(store, { states: ['active'] })).toBe('1 3')
    expect(await list(store, { classes: ['invalid_grant'] })).toBe('2')
    await expect(store.summary([allNames])).rejects.toMatchObject({ code: 'store_unavailable' })
    expect(await store.completeIndex(signal)).toBe(true)
    expect(await list(store, { states: ['must_reconnect'] })).toBe('2')
    expect((await store.summary([allNames])).states).toMatchObject({ active: 2, must_reconnect: 1 })
  })

  it('the list index is completed even if the credentials need more than one page', async () => {
    const test = await openUsable()
    const { store } = test
    const realms = Array.from({ length: 501 }, (_, index) => String(1_000 + index))
    await Promise.all(realms.map((realm) => connect(store, realm)))
    const expiring = { expiryNoticeDays: 30 as const, hardExpiresAt: START + 1 }
    await connect(store, '1500', expiring)
    await asEarlierRelease(test, 'ACC-1500')
    expect(await store.completeIndex(signal)).toBe(true)
    expect(await list(store, { states: ['expiring'] })).toBe('1500')
  })

  it('the list index is corrected after a replica of an earlier release has changed records', async () => {
    const { store, redis } = await openUsable()
    for (const realm of ['1', '2', '3']) await connect(store, realm, { tags: { a: 'b' } })
    for (const realm of ['1', '2']) await fail(store, realm)
    expect(await store.completeIndex(signal)).toBe(true)
    // The earlier release removes the fault of company 1 and the record of company 2 without updating the index.
    await redis.hset('ACC-1', { Status: 'active', Fault: '', FaultSeal: '' })
    await redis.del('ACC-2')
    await redis.zrem('credentials:names', 'ACC-2')
    expect(await list(store, { states: ['must_reconnect'] })).toBe('')
    expect(await list(store, { tags: [['a', 'b']] })).toBe('1 3')
    expect(await store.completeIndex(signal)).toBe(true)
    expect(await store.summary([allNames])).toMatchObject({
      total: 2,
      states: { active: 2, must_reconnect: 0 },
      classes: {},
    })
  })

  it('only one replica at a time completes the list index, and another replica takes over when the first replica has stopped', async () => {
    const { store, redis } = await openUsable()
    await connect(store, '1')
    await redis.set('lease:credentials:index', 'another replica', 'PX', 60_000)
    expect(await store.completeIndex(signal)).toBe(false)
    await redis.del('lease:credentials:index')
    expect(await store.completeIndex(AbortSignal.abort())).toBe(false)
    expect(await redis.exists('lease:credentials:index')).toBe(0)
    expect(await store.completeIndex(signal)).toBe(true)
  })
})

describe('a search for credentials in Redis', () => {
  it('a search in Redis ends a page after 20 ms, continues with the next page, and finds every credential', async () => {
    const { store, redis } = await openUsable()
    // Names without a record are examined but not listed, so the search has to continue after them.
    const names = Array.from({ length: 60_000 }, (_, index) => `ACC-${100_000 + index}`)
    for (let start = 0; start < names.length; start += 10_000) {
      const part = names.slice(start, start + 10_000)
      await redis.zadd('credentials:names', ...part.flatMap((name) => [0, name]))
    }
    await connect(store, '9')
    await store.completeIndex(AbortSignal.abort())
    const everything = { classes: [], tags: [], text: '', ranges: [allNames] }
    const found: string[] = []
    let pages = 0
    for (let after: string | null = ''; after !== null; pages += 1) {
      const filter = { ...everything, states: ['active' as const] }
      const { items, next } = await store.find({ after, limit: 100, filter })
      found.push(...items.map(({ name }) => name))
      after = next
    }
    expect(found).toEqual(['ACC-9'])
    expect(pages).toBeGreaterThan(1)
  })

  it.each([
    ['9341', ['ACC-9341']],
    ['acc-93', ['ACC-AC', 'ACC-Ac', 'ACC-aC', 'ACC-ac', 'ACC-93']],
    ['ac', ['ACC-']],
    ['x1yz', ['ACC-X1Y', 'ACC-X1y', 'ACC-x1Y', 'ACC-x1y']],
    ['söhne', []],
    ['a b', []],
  ])('a search for %j reads only names that may begin with this text', (text, prefixes) => {
    expect(prefixRanges(text).map(({ first }) => first)).toEqual(prefixes)
  })
})
