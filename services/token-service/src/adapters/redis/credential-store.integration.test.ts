import { describe, expect, it } from 'vitest'
import { auditStart, firstBreak } from '@integration-host/shared/contracts/audit'
import {
  DecryptionError,
  type KeyRing,
  parseKeyRing,
} from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { auditContextOf, grantOf } from '../../../test-support/grants.ts'
import { redisStoresPerTest } from '../../../test-support/redis-stores.ts'
import {
  openTestRedis,
  type TestRedis,
  testKeys,
  usable,
} from '../../../test-support/service-fixture.ts'
import { auditFactOf } from '../../credential/outbox.ts'
import { credentialLabelsContract } from '../../credential/credential-labels.contract.ts'
import { credentialListsContract } from '../../credential/credential-lists.contract.ts'
import {
  credentialStoreContract,
  type StoredRecords,
} from '../../credential/credential-store.contract.ts'

const { open, openUsable, firstPrefix } = redisStoresPerTest()
let contractRedis: TestRedis

const contractOptions = {
  async open() {
    contractRedis = await openUsable()
    return contractRedis.store
  },
  async edit(change: (records: StoredRecords) => void) {
    const { redis, store } = contractRedis
    const names = await redis.zrange('credentials:names', '0', '-1')
    const records: StoredRecords = {}
    for (const name of names) records[name] = await redis.hgetall(name)
    change(records)
    for (const [name, fields] of Object.entries(records)) await redis.hset(name, fields)
    return store
  },
  reopen: async () => (await openUsable(firstPrefix())).store,
}
credentialStoreContract('Redis', contractOptions)
credentialLabelsContract('Redis', contractOptions)
credentialListsContract('Redis', contractOptions)

describe('a refresh intent that was stored in Redis before a failover', () => {
  /**
   * Stores an intent of process a, and acquires the lease for process b. The returned `failOver` makes the intent
   * appear older than a failover.
   */
  async function intentOfAnother() {
    const { redis, store } = await openUsable()
    await store.put(grantOf('ACC-1', 'one'), 1, auditContextOf('granted'))
    const acquire = async (owner: string) => {
      const acquired = await store.acquire('ACC-1', owner, 60_000)
      if (acquired.kind !== 'acquired') throw new Error(acquired.kind)
      return acquired.leased.lease
    }
    const first = await acquire('a')
    await store.recordIntent(first, 0)
    await store.release(first)
    const lease = await acquire('b')
    const intent = async () => (await redis.hget('ACC-1', 'Intent')) ?? ''
    return {
      redis,
      intent,
      record: (deferralMs = 60_000) => store.recordIntent(lease, deferralMs),
      /** Changes the run ids in Redis, so that the earlier writes appear to come from another server. */
      failOver: async () => {
        await redis.hset('ACC-1', 'Intent', (await intent()).replace(/\w+$/, 'earlierserver'))
        await redis.hset('credentials:server', 'RunId', 'earlierserver')
      },
    }
  }

  it('after a failover, the refresh intent of another process is kept for a configured time, and can be replaced afterwards', async () => {
    const { record, failOver, intent } = await intentOfAnother()
    await failOver()
    const before = await intent()
    const deferred = await record()
    const left = deferred.kind === 'deferred' ? deferred.retryAfterMs : 0
    expect(left).toBeGreaterThan(0)
    expect(left).toBeLessThanOrEqual(60_000)
    expect(await intent()).toBe(before)
    expect(await record(0)).toEqual({ kind: 'recorded' })
    expect(await intent()).not.toBe(before)
  })

  it('a second failover restarts the time for which the refresh intent of another process is kept', async () => {
    const { record, failOver, redis } = await intentOfAnother()
    await failOver()
    await redis.hset('credentials:server', 'ChangedAt', '1')
    expect(await record()).toMatchObject({ kind: 'deferred' })
  })

  it('the refresh intent of another process is kept even if the server that stored the intent is the primary again', async () => {
    const { record, redis, intent } = await intentOfAnother()
    const [version, fence, at, server] = (await intent()).split(':')
    await redis.hset('ACC-1', 'Intent', [version, fence, Number(at) - 1_000, server].join(':'))
    await redis.hset('credentials:server', 'RunId', 'serverbetween')
    expect(await record()).toMatchObject({ kind: 'deferred' })
  })

  it('the lease holder that stored a refresh intent may store it again after a failover', async () => {
    const { record, failOver } = await intentOfAnother()
    expect(await record()).toEqual({ kind: 'recorded' })
    await failOver()
    expect(await record()).toEqual({ kind: 'recorded' })
  })

  it.each([
    ['the failover was long ago', { ChangedAt: '1' }],
    ['the clock of the server was set back', { ChangedAt: String(Date.now() + 3_600_000) }],
  ])('the refresh intent of another process is replaced if %s', async (_, server) => {
    const { record, failOver, redis } = await intentOfAnother()
    await failOver()
    await record() // stores the run id of this server
    await redis.hset('credentials:server', server)
    expect(await record()).toEqual({ kind: 'recorded' })
  })

  it('the refresh intent of another process is replaced if an earlier release stored the intent without a run id', async () => {
    const { record, failOver, redis, intent } = await intentOfAnother()
    await failOver()
    await redis.hset('ACC-1', 'Intent', (await intent()).replace(':earlierserver', ''))
    expect(await record()).toEqual({ kind: 'recorded' })
  })
})

describe('a credential in Redis', () => {
  it('the Redis store stores a credential as a hash with the documented fields, encrypted secrets and no expiry', async () => {
    const { redis, store } = await openUsable()
    await store.put(grantOf('ACC-9341453908059889', 'canary'), 1, auditContextOf('granted'))
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

  it('the Redis store writes an absent secret as the empty string, and reads it as null', async () => {
    const { redis, store } = await openUsable()
    await store.put(
      { ...grantOf('ACC-1', 'canary'), idToken: null, environment: '' },
      1,
      auditContextOf('granted'),
    )
    expect(await redis.hmget('ACC-1', 'StoreA', 'Environment', 'Previous')).toEqual(['', '', ''])
    await redis.hset('ACC-1', 'Authenticator', '')
    expect((await store.get('ACC-1'))?.accessToken).toBeNull()
  })

  it.each([
    [
      'copied from another realm',
      async ({ redis }: TestRedis) =>
        redis.hset('ACC-2', 'Authenticator', (await redis.hget('ACC-1', 'Authenticator')) ?? ''),
    ],
    [
      'copied from another field',
      async ({ redis }: TestRedis) =>
        redis.hset('ACC-2', 'Authenticator', (await redis.hget('ACC-2', 'RefreshToken')) ?? ''),
    ],
    [
      'encrypted for another version',
      async ({ redis }: TestRedis) => redis.hset('ACC-2', 'Version', '2'),
    ],
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
      'truncated within its authentication tag',
      async ({ redis }: TestRedis) =>
        redis.hset(
          'ACC-2',
          'Authenticator',
          ((await redis.hget('ACC-2', 'Authenticator')) ?? '').slice(0, 40),
        ),
    ],
  ])(
    'the Redis store rejects a record whose encrypted secret was %s, and releases the lease of the record',
    async (_, tamper) => {
      const opened = await openUsable()
      await opened.store.put(grantOf('ACC-1', 'canary'), 1, auditContextOf('granted'))
      await opened.store.put(grantOf('ACC-2', 'canary'), 1, auditContextOf('granted'))
      await tamper(opened)
      await expect(opened.store.get('ACC-2')).rejects.toBeInstanceOf(DecryptionError)
      await expect(opened.store.acquire('ACC-2', 'a', 60_000)).rejects.toBeInstanceOf(
        DecryptionError,
      )
      await expect(opened.store.acquire('ACC-2', 'b', 60_000)).rejects.toBeInstanceOf(
        DecryptionError,
      )
      expect((await opened.store.get('ACC-1'))?.version).toBe(1)
    },
  )

  it('the Redis store grants the lease for publishing events to one replica at a time', async () => {
    const { store } = await openUsable()
    await store.put(grantOf('ACC-1', 'canary'), 1, auditContextOf('granted'))
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

describe('the key ring of a credential store in Redis', () => {
  const keyText = (id: string): string => `${id}:${Buffer.alloc(32, id).toString('base64')}`
  const ring = (...entries: string[]): KeyRing => parseKeyRing(new Secret(entries.join(',')))

  const unusable = async (redis: TestRedis): Promise<string> =>
    eventually(() => {
      const state = redis.health.report().dependencies['credential-keys']
      if (state?.status !== 'down') throw new Error('the keys were not rejected')
      return state.reason
    })

  it('the Redis store rejects a key ring that lacks the keys of the records, and does not change the key check values', async () => {
    const right = await open(ring(keyText('k1')))
    await usable(right)
    await right.store.put(grantOf('ACC-1', 'canary'), 1, auditContextOf('granted'))
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
      sameId.store.put(grantOf('ACC-1', 'canary'), 1, auditContextOf('granted')),
    ).rejects.toMatchObject({
      code: 'store_unavailable',
    })

    const missing = await open(ring(keyText('k2')), right.prefix)
    expect(await unusable(missing)).toContain('for the id k1')
    expect(await right.redis.hgetall('credentials:canary')).toEqual(before)
  })

  it('the Redis store encrypts new records with the first key of the key ring, and decrypts older records with the second key', async () => {
    const before = await open(ring(keyText('k1')))
    await usable(before)
    await before.store.put(grantOf('ACC-1', 'canary'), 1, auditContextOf('granted'))
    const after = await open(ring(keyText('k2'), keyText('k1')), before.prefix)
    await usable(after)
    expect((await after.store.get('ACC-1'))?.accessToken?.reveal()).toBe('access canary')
    await after.store.put(grantOf('ACC-2', 'canary'), 1, auditContextOf('granted'))
    expect(await after.redis.hget('ACC-2', 'Authenticator')).toMatch(/^1\.k2\./)
  })
})

describe('unexpected data in Redis', () => {
  const factsOf = (count: number) =>
    Array.from({ length: count }, (_, n) =>
      auditFactOf({ name: `ACC-${n}`, version: 1 }, auditContextOf('handed_out')),
    )
  const auditAll = async ({ store }: TestRedis) => {
    while ((await store.audit(500)) > 0);
    const { items, head } = await store.readAudit(0, 100_000)
    expect(firstBreak(auditStart, items)).toBeNull()
    return { items, head }
  }

  it('a list page of the Redis store has the requested length even if a name in the index has no record', async () => {
    const opened = await openUsable()
    for (const realm of ['1', '2', '3', '4'])
      await opened.store.put(grantOf(`ACC-${realm}`, 'x'), 1, auditContextOf('granted'))
    await opened.redis.del('ACC-2')
    const page = await opened.store.list({ after: '', limit: 2 })
    expect(page.map(({ name }) => name)).toEqual(['ACC-1', 'ACC-3'])
  })

  it('the Redis store never reuses a fencing token, even after a failover that lost the newest fencing tokens', async () => {
    const { redis, store } = await openUsable()
    await store.put(grantOf('ACC-1', 'x'), 1, auditContextOf('granted'))
    const [record, counter] = [
      await redis.hgetall('ACC-1'),
      (await redis.get('credentials:fence')) ?? '',
    ]
    const fence = async (): Promise<number> => {
      const acquired = await store.acquire('ACC-1', 'a', 60_000)
      if (acquired.kind !== 'acquired') throw new Error('the lease must be free')
      return acquired.leased.lease.fence
    }
    const before = await fence()
    await redis.del('lease:ACC-1')
    await redis.hset('ACC-1', record)
    await redis.set('credentials:fence', counter)
    await eventually(async () => expect(Date.now()).toBeGreaterThan(before))
    expect(await fence()).toBeGreaterThan(before)
  })

  it('an outbox entry that cannot be parsed is audited as "unreadable", and later outbox entries are audited as usual', async () => {
    const opened = await openUsable()
    await opened.redis.xadd('credentials:outbox', '*', 'entry', 'not json')
    await opened.redis.xadd('credentials:outbox', '*', 'another', '{}')
    await opened.store.put(grantOf('ACC-1', 'x'), 1, auditContextOf('granted'))
    const { items } = await auditAll(opened)
    expect(items.map(({ What }) => What)).toEqual(['unreadable', 'unreadable', 'granted'])
    const outbox = (await opened.store.readOutbox('a', 1_000, 10)) ?? []
    expect(outbox.map(({ events }) => events.length)).toEqual([0, 0, 1])
  })

  it('the audit log continues its hash chain even if the key with the newest hash was deleted', async () => {
    const opened = await openUsable()
    await opened.store.record(factsOf(3))
    await auditAll(opened)
    await opened.redis.del('credentials:audit-head')
    await opened.redis.del('credentials:outbox')
    await opened.store.record(factsOf(1))
    const { head } = await auditAll(opened)
    expect(head.Seq).toBe(4)
  })

  it('frequent audit entries do not remove an entry of weight, also one that a replica of an earlier release has appended', async () => {
    const opened = await openUsable()
    const whats = async () => {
      const { items } = await opened.store.readAuditBackwards(Number.MAX_SAFE_INTEGER, 100_000)
      return items.filter(({ What }) => What !== 'handed_out').map(({ What, Seq }) => [What, Seq])
    }
    await opened.store.put(grantOf('ACC-1', 'x'), 1, auditContextOf('granted'))
    await opened.store.record([
      auditFactOf({ name: 'ACC-2', version: 1 }, auditContextOf('exported')),
    ])
    await opened.store.audit(500)
    // A replica of an earlier release knows neither the stream nor its position.
    await opened.redis.del('credentials:audit-kept')
    await opened.redis.hdel('credentials:audit-head', 'Kept')
    for (let n = 0; n < 4; n += 1) {
      await opened.store.record(factsOf(1_000))
      await opened.store.audit(500)
    }
    await opened.redis.xtrim('credentials:audit', 'MAXLEN', 10)
    expect((await opened.store.readAudit(0, 1)).items).toMatchObject([{ Seq: 3_993 }])
    expect(await whats()).toEqual([
      ['exported', 2],
      ['granted', 1],
    ])
    // The position is lost with the head of the log. Nothing is copied twice.
    await opened.redis.del('credentials:audit-head')
    await opened.redis.del('credentials:outbox')
    await opened.store.record([
      auditFactOf({ name: 'ACC-3', version: 1 }, auditContextOf('removed')),
    ])
    await opened.store.audit(500)
    expect(await whats()).toEqual([
      ['removed', 4_003],
      ['exported', 2],
      ['granted', 1],
    ])
  })

  it('an entry of weight is trimmed only after 90 days, and if more than the configured number are kept', async () => {
    const opened = await openUsable()
    const at = (days: number) => Date.now() - days * 86_400_000
    const facts = (count: number, days: number) =>
      Array.from({ length: count }, () =>
        auditFactOf({ name: 'ACC-1', version: 1 }, { ...auditContextOf('removed'), at: at(days) }),
      )
    await opened.store.record([...facts(5, 100), ...facts(1_001, 10)])
    await opened.store.audit(500)
    expect(await opened.redis.xlen('credentials:audit-kept')).toBe(1_001)
  })

  it('the Redis store splits 40,000 outstanding audit entries into script calls of a size that Redis accepts', async () => {
    const opened = await openUsable()
    for (let n = 0; n < 4; n += 1) await opened.store.record(factsOf(10_000))
    while ((await opened.store.audit(500)) > 0);
    expect((await opened.store.readAudit(0, 1)).head.Seq).toBe(40_000)
  })

  it('record() stores an audit entry only once if the caller repeats the call after a lost reply', async () => {
    const opened = await openUsable()
    for (const id of ['one', 'one', 'two']) await opened.store.record(factsOf(1), id)
    expect((await auditAll(opened)).items).toHaveLength(2)
  })
})

describe('the credential store while Redis is unavailable', () => {
  it('a call of the Redis store fails at once with store_unavailable while Redis is unavailable', async () => {
    await using nowhere = await openTestRedis({ keys: testKeys(), url: 'redis://127.0.0.1:1' })
    await expect(nowhere.store.get('ACC-1')).rejects.toMatchObject({ code: 'store_unavailable' })
    await expect(nowhere.authorizations.isStateUsed('x')).rejects.toMatchObject({
      code: 'store_unavailable',
    })
  })
})
