/**
 * Tests under which conditions a lost token pair is stored again. In each test, the file store has an older state than
 * the token pair.
 */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { IntegrationError } from '@integration-host/shared/errors'
import { auditContextOf, grantOf, START } from '../../test-support/grants.ts'
import { openTestFile, testKeys } from '../../test-support/service-fixture.ts'
import type { CredentialStore } from './credential-store.ts'
import { faultOf } from './fault.ts'
import { createRestorations, type KeptPair, type Restorations } from './restoration.ts'

const NAME = 'ACC-1'
let store: CredentialStore
let restorations: Restorations
let cleanup: AsyncDisposableStack

beforeEach(async () => {
  cleanup = new AsyncDisposableStack()
  const file = await openTestFile(testKeys())
  cleanup.defer(() => file.remove())
  store = file.store
  restorations = restorationsOn(store)
})
afterEach(() => cleanup.disposeAsync())

const restorationsOn = (used: CredentialStore): Restorations =>
  cleanup.use(
    createRestorations({
      store: used,
      owner: 'restoration',
      sleep: () => new Promise((resolve) => void setImmediate(resolve)),
      onError: (error) => {
        throw error
      },
    }),
  )

const put = (mark: string, id: string, refreshedAt = START) =>
  store.put(grantOf(NAME, mark, { refreshedAt }), START, auditContextOf('granted'), { id })
const keptPair = (version: number, overrides: Partial<KeptPair> = {}): KeptPair => ({
  name: NAME,
  version,
  grantId: 'grant one',
  isNewGrant: false,
  grant: grantOf(NAME, 'kept', { refreshedAt: START + 1 }),
  dueAt: START,
  context: auditContextOf('refreshed'),
  isNoticeNew: false,
  ...overrides,
})
const stored = async () => {
  const credential = await store.get(NAME)
  return credential === null
    ? null
    : { version: credential.version, token: credential.accessToken?.reveal() }
}
const KEPT = 'access kept'

describe('the restoration of a token pair that the store has lost', () => {
  it.each([2, 3])(
    'a restored token pair replaces version 1 of the same grant with version %i',
    async (version) => {
      await put('one', 'grant one')
      expect(await restorations.restore(keptPair(version))).toBe('restored')
      expect(await stored()).toEqual({ version, token: KEPT })
    },
  )

  it('restoring a token pair clears the fault that the older refresh token has caused', async () => {
    await put('one', 'grant one')
    await settleFault('invalid_grant')
    expect(await restorations.restore(keptPair(2))).toBe('restored')
    expect(await store.get(NAME)).toMatchObject({ version: 2, fault: null })
  })

  it('a restoration does not replace the same or a newer version in the store', async () => {
    await put('one', 'grant one')
    await put('two', 'grant two')
    expect(await restorations.restore(keptPair(2))).toBe('superseded')
    expect(await stored()).toEqual({ version: 2, token: 'access two' })
  })

  it('a restoration does not replace another grant that was stored later, even if that grant has a lower version', async () => {
    await put('one', 'another grant', START + 2)
    expect(await restorations.restore(keptPair(3))).toBe('superseded')
    expect(await restorations.restore(keptPair(3, { isNewGrant: true }))).toBe('superseded')
    expect(await stored()).toEqual({ version: 1, token: 'access one' })
  })

  it('a new grant that the store has lost is restored, whether or not the store has an older grant', async () => {
    expect(await restorations.restore(keptPair(1))).toBe('superseded')
    const pair = keptPair(1, { isNewGrant: true })
    expect(await restorations.restore(pair)).toBe('restored')
    expect(
      await restorations.restore({
        ...pair,
        version: 2,
        grantId: 'grant two',
        grant: grantOf(NAME, 'later', { refreshedAt: START + 2 }),
      }),
    ).toBe('restored')
    expect(await stored()).toEqual({ version: 2, token: 'access later' })
  })

  it('a lost grant is restored even if it was stored after a removal of the company', async () => {
    await put('one', 'grant one')
    await store.remove(NAME, true, auditContextOf('removed'))
    const pair = keptPair(2, { isNewGrant: true, grantId: 'grant two' })
    expect(await restorations.restore(pair)).toBe('restored')
    expect(await stored()).toEqual({ version: 2, token: KEPT })
  })

  it('a new grant is restored even if the previous grant of the company was exported', async () => {
    await put('one', 'grant one')
    await settleFault('transferred')
    const pair = keptPair(2, { isNewGrant: true, grantId: 'grant two' })
    expect(await restorations.restore(pair)).toBe('restored')
    // A later refresh of the restored grant is committed, because the store recognizes the grant.
    const acquired = await store.acquire(NAME, 'test', 60_000)
    expect(acquired).toMatchObject({ leased: { lease: { grantId: 'grant two', version: 2 } } })
  })

  it('the token pair of a removed company is not restored', async () => {
    await put('one', 'grant one')
    await store.remove(NAME, true, auditContextOf('removed'))
    expect(await restorations.restore(keptPair(1, { isNewGrant: true }))).toBe('superseded')
    expect(await stored()).toBeNull()
  })

  it('the token pair of a company is not restored if another installation has custody of the company', async () => {
    await put('one', 'grant one')
    await settleFault('transferred')
    expect(await restorations.restore(keptPair(2))).toBe('superseded')
    expect(await store.get(NAME)).toMatchObject({ fault: { Code: 'transferred' } })
  })

  it('a restoration waits for a refresh by another process, and keeps the newer token pair of this refresh', async () => {
    await put('one', 'grant one')
    const acquired = await store.acquire(NAME, 'another process', 60_000)
    if (acquired.kind !== 'acquired') throw new Error(acquired.kind)
    const restoring = restorations.restore(keptPair(2))
    const { lease } = acquired.leased
    await store.commit(lease, grantOf(NAME, 'two'), START, auditContextOf('refreshed'))
    expect(await restoring).toBe('superseded')
    expect(await stored()).toEqual({ version: 2, token: 'access two' })
  })

  it('a restoration repeats a commit that Redis has executed but no replica has acknowledged', async () => {
    await put('one', 'grant one')
    const commits: string[] = []
    const unacknowledged = restorationsOn({
      ...store,
      async commit(...args) {
        commits.push(await store.commit(...args))
        if (commits.length === 1) throw new IntegrationError('store_unavailable', 'no replica')
        return 'committed'
      },
    })
    expect(await unacknowledged.restore(keptPair(2))).toBe('restored')
    expect(commits).toEqual(['committed', 'committed'])
  })

  it('the only copy of a token pair is deleted only after the store has confirmed that a newer token pair is replicated', async () => {
    await put('one', 'grant one')
    await put('two', 'grant two')
    const commits: string[] = []
    const unacknowledged = restorationsOn({
      ...store,
      async commit(...args) {
        commits.push(await store.commit(...args))
        if (commits.length === 1) throw new IntegrationError('store_unavailable', 'no replica')
        return 'superseded'
      },
    })
    expect(await unacknowledged.restore(keptPair(2), { isOnlyCopy: true })).toBe('superseded')
    expect(commits).toEqual(['superseded', 'superseded'])
    expect(await stored()).toEqual({ version: 2, token: 'access two' })
  })

  it('a restoration fails at shutdown if the store is still unavailable', async () => {
    const unavailable = restorationsOn({
      ...store,
      get: async () => {
        throw new IntegrationError('store_unavailable', 'no store')
      },
    })
    const restoring = unavailable.restore(keptPair(2))
    await unavailable[Symbol.asyncDispose]()
    expect(await restoring).toBe('failed')
  })

  async function settleFault(code: 'invalid_grant' | 'transferred'): Promise<void> {
    const acquired = await store.acquire(NAME, 'test', 60_000)
    if (acquired.kind !== 'acquired') throw new Error(acquired.kind)
    const fault = faultOf(NAME, code, { body: '', traceId: null }, { at: START, attempts: 1 })
    const settlement = {
      attempts: 1,
      nextTryAt: null,
      fault,
      isPublished: true,
      keepsIntent: false,
    }
    await store.settle(acquired.leased.lease, settlement, auditContextOf('faulted'))
  }
})
