import { beforeEach, describe, expect, it } from 'vitest'
import { type Fault, CredentialEvent } from '@integration-host/shared/contracts/credential'
import { auditStart, firstBreak } from '@integration-host/shared/contracts/audit'
import { DecryptionError } from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { auditContextOf, grantOf, START } from '../../test-support/grants.ts'
import type { Grant } from './credential.ts'
import {
  type AdoptionClaim,
  type CredentialStore,
  type Lease,
  type LeasedCredential,
  type Settlement,
  VersionConflict,
} from './credential-store.ts'
import { auditFactOf } from './outbox.ts'

/**
 * The duration of a lease in these tests. It is long enough for a few commands on a busy machine, and short because
 * tests wait until the lease expires.
 */
const LONG_MS = 2_000

const fault: Fault = {
  Code: 'invalid_grant',
  Message: "Couldn't refresh token for realm ACC-1, {}",
  At: new Date(START).toISOString(),
  Attempts: 1,
}

const settlement = (overrides: Partial<Settlement> = {}): Settlement => ({
  attempts: 1,
  nextTryAt: null,
  fault,
  isPublished: true,
  keepsIntent: false,
  ...overrides,
})

/** The stored fields of each credential, by name. */
export type StoredRecords = Record<string, Record<string, string>>

/** The functions by which the contract tests open a credential store. */
export interface StoreUnderTest {
  /** Creates an empty store. */
  readonly open: () => Promise<CredentialStore>
  /** Opens the same store again, as a restarted process would. */
  readonly reopen: () => Promise<CredentialStore>
  /** Changes the stored records as another program would. Resolves with a store that reads the changed records. */
  readonly edit: (change: (records: StoredRecords) => void) => Promise<CredentialStore>
}

/** The contract tests for every credential store. */
export function credentialStoreContract(
  storeKind: string,
  { open, reopen, edit }: StoreUnderTest,
): void {
  describe(`${storeKind} as a credential store`, () => {
    let store: CredentialStore

    beforeEach(async () => {
      store = await open()
    })

    const put = (name: string, mark: string, overrides: Partial<Grant> = {}, dueAt = START) =>
      store.put(grantOf(name, mark, overrides), dueAt, auditContextOf('granted'))
    const commit = (lease: Lease, mark: string, overrides: Partial<Grant> = {}) =>
      store.commit(lease, grantOf(lease.name, mark, overrides), START, auditContextOf('refreshed'))
    const settle = (lease: Lease, overrides: Partial<Settlement> = {}) =>
      store.settle(lease, settlement(overrides), auditContextOf('faulted'))
    const remove = (version?: number) =>
      store.remove('ACC-1', true, auditContextOf('removed'), version)
    const held = async (name: string, owner = 'a', leaseMs = 60_000): Promise<LeasedCredential> => {
      const acquired = await store.acquire(name, owner, leaseMs)
      if (acquired.kind !== 'acquired') throw new Error(`the lease of ${name} is ${acquired.kind}`)
      return acquired.leased
    }
    const outbox = async (limit = 100) => {
      await store.audit(1_000)
      return (await store.readOutbox('relay', 1_000, limit)) ?? []
    }
    const events = async () =>
      (await outbox()).flatMap(({ events: published }) =>
        published.map(({ kind, event }) => `${kind} ${event.Version}`),
      )
    const log = async () => (await store.readAudit(0, 100)).items

    it('the credential store returns a stored grant as version 1, and null for an unknown name', async () => {
      expect(await store.get('ACC-1')).toBeNull()
      const stored = await put('ACC-1', 'one')
      const got = await store.get('ACC-1')
      expect(got).toMatchObject({
        name: 'ACC-1',
        environment: '1',
        version: 1,
        expiresAt: START + 3_600_000,
        refreshedAt: START,
        fault: null,
        attempts: 0,
        nextTryAt: null,
      })
      expect(got?.accessToken?.reveal()).toBe('access one')
      expect(stored).toMatchObject({ name: 'ACC-1', version: 1 })
    })

    it('the credential store keeps tokens, intent, events and due times across a restart', async () => {
      await put('ACC-1', 'one')
      const { lease } = await held('ACC-1', 'a', LONG_MS)
      await store.recordIntent(lease, 0)
      store = await reopen()
      expect((await store.get('ACC-1'))?.accessToken?.reveal()).toBe('access one')
      expect(await events()).toEqual(['stored 1'])
      expect((await store.takeDue(START, 10, 1_000)).names).toEqual(['ACC-1'])
      const again = await untilHeld('ACC-1')
      expect(again.lease.fence).toBeGreaterThan(lease.fence)
      expect(again.intent?.ageMs).toBeLessThan(30_000)
    })

    /** Waits until the lease of the previous holder has expired, and acquires it. */
    const untilHeld = (name: string): Promise<LeasedCredential> =>
      eventually(async () => {
        const acquired = await store.acquire(name, 'b', 60_000)
        if (acquired.kind !== 'acquired') throw new Error('the lease has not expired')
        return acquired.leased
      })

    it('the credential store lets only one process at a time claim the right to adopt the grant of a company', async () => {
      const first = { id: 'adopted-one', owner: 'a' }
      const other = { id: 'adopted-one', owner: 'b' }
      const claim = (by: AdoptionClaim, holdMs = 60_000) => store.claimAdoption('ACC-1', by, holdMs)
      expect(await claim(first)).toEqual({ kind: 'claimed', wasClaimedBefore: false })
      expect(await claim(first)).toEqual({ kind: 'claimed', wasClaimedBefore: true })
      const busy = await claim(other)
      expect(busy).toMatchObject({ kind: 'busy' })
      expect(busy.kind === 'busy' && busy.retryAfterMs > 50_000).toBe(true)
      expect(await claim({ ...first, id: 'adopted-two' })).toMatchObject({ kind: 'busy' })
      // The claim expires, so that another process can claim the adoption if the first process has died.
      expect(await claim(other, 0)).toEqual({ kind: 'claimed', wasClaimedBefore: true })
      await store.endAdoption('ACC-1', first) // The first process is not the owner any more.
      expect(await claim(first)).toMatchObject({ kind: 'busy' })
      await store.endAdoption('ACC-1', other)
      expect(await claim(first)).toEqual({ kind: 'claimed', wasClaimedBefore: false })
      expect(await store.get('ACC-1')).toBeNull()
    })

    it('the credential store counts the actions of each key and day, and counts none of a request that exceeds the limit', async () => {
      expect(await store.takeActions('a', 20_000, 8, 10)).toBe(true)
      expect(await store.takeActions('a', 20_000, 3, 10)).toBe(false)
      expect(await store.takeActions('a', 20_000, 2, 10)).toBe(true)
      expect(await store.takeActions('a', 20_000, 1, 10)).toBe(false)
      expect(await store.takeActions('b', 20_000, 10, 10)).toBe(true)
      expect(await store.takeActions('a', 20_001, 10, 10)).toBe(true)
    })

    it('the credential store returns the audit entries below a given number, newest first', async () => {
      const facts = Array.from({ length: 600 }, (_, n) =>
        auditFactOf({ name: `ACC-${n}`, version: 1 }, auditContextOf('granted')),
      )
      await store.record(facts)
      await store.audit(1_000)
      const numbers = async (before: number, limit: number) =>
        (await store.readAuditBackwards(before, limit)).items.map(({ Seq }) => Seq)
      expect(await numbers(Number.MAX_SAFE_INTEGER, 3)).toEqual([600, 599, 598])
      expect(await numbers(598, 2)).toEqual([597, 596])
      expect(await numbers(3, 10)).toEqual([2, 1])
      expect(await numbers(1, 10)).toEqual([])
      const all = await numbers(601, 1_000)
      expect(all).toEqual(Array.from({ length: 600 }, (_, n) => 600 - n))
      const { head } = await store.readAuditBackwards(5, 1)
      expect(head.Seq).toBe(600)
    })

    it('the credential store grants only one lease of a credential at a time, with increasing fencing tokens', async () => {
      expect(await store.acquire('ACC-1', 'a', 1_000)).toEqual({
        kind: 'absent',
        removedVersion: null,
      })
      await put('ACC-1', 'one')
      const first = await held('ACC-1')
      expect(first.lease).toMatchObject({ name: 'ACC-1', owner: 'a', version: 1 })
      expect([
        first.refreshToken?.reveal(),
        first.idToken?.reveal(),
        first.previous,
        first.intent,
      ]).toEqual(['refresh one', 'id one', null, null])
      expect(await store.acquire('ACC-1', 'b', 1_000)).toEqual({ kind: 'busy' })
      await store.release({ ...first.lease, owner: 'b' })
      expect(await store.acquire('ACC-1', 'b', 1_000)).toEqual({ kind: 'busy' })
      await store.release(first.lease)
      expect((await held('ACC-1', 'b')).lease.fence).toBeGreaterThan(first.lease.fence)
    })

    it('the credential store renews a lease only for its holder, and only before the lease expires', async () => {
      await put('ACC-1', 'one')
      const { lease } = await held('ACC-1', 'a', LONG_MS)
      expect(await store.renew({ ...lease, owner: 'b' }, 60_000)).toBe(false)
      expect(await store.renew(lease, LONG_MS)).toBe(true)
      await untilHeld('ACC-1')
      expect(await store.renew(lease, 60_000)).toBe(false)
    })

    it('the commit of a token pair also stores the previous refresh token, and clears lease, intent and fault', async () => {
      await put('ACC-1', 'one')
      const first = await held('ACC-1')
      expect(await settle(first.lease)).toBe('settled')
      const { lease } = await held('ACC-1')
      expect(await store.recordIntent(lease, 0)).toEqual({ kind: 'recorded' })
      const previous = { token: new Secret('refresh one'), retiredAt: START }
      expect(await commit(lease, 'two', { previous })).toBe('committed')
      expect(await store.get('ACC-1')).toMatchObject({
        version: 2,
        fault: null,
        attempts: 0,
        nextTryAt: null,
      })
      const next = await held('ACC-1')
      expect(next.intent).toBeNull()
      expect(next.credential.accessToken?.reveal()).toBe('access two')
      expect([next.previous?.token.reveal(), next.previous?.retiredAt]).toEqual([
        'refresh one',
        START,
      ])
      expect(await events()).toEqual(['stored 1', 'faulted 1', 'refreshed 2'])
    })

    it('the credential store executes a repeated commit only once, and returns `committed` both times', async () => {
      await put('ACC-1', 'one')
      const { lease } = await held('ACC-1')
      await commit(lease, 'two')
      expect(await commit(lease, 'two')).toBe('committed')
      expect(await events()).toEqual(['stored 1', 'refreshed 2'])
    })

    it('the credential store recognizes a repeated commit even if another process has acquired and released the lease', async () => {
      await put('ACC-1', 'one')
      const { lease } = await held('ACC-1', 'a')
      expect(await commit(lease, 'two')).toBe('committed')
      const other = await held('ACC-1', 'b')
      await store.release(other.lease)
      expect(await commit(lease, 'two')).toBe('committed')
      expect(await events()).toEqual(['stored 1', 'refreshed 2'])
    })

    it('the credential store knows, even after a restart, whether a refresh token was already sent to the provider', async () => {
      const unused = { isUnused: true }
      await put('ACC-1', 'one', unused)
      await store.put(grantOf('ACC-2', 'imported'), START, auditContextOf('imported'))
      store = await reopen()
      const first = await held('ACC-1')
      expect([first.isUnused, (await held('ACC-2')).isUnused]).toEqual([true, false])
      // The provider has returned the same refresh token again.
      await commit(first.lease, 'one')
      const second = await held('ACC-1')
      expect(second.isUnused).toBe(false)
      await commit(second.lease, 'two', unused)
      expect((await held('ACC-1')).isUnused).toBe(true)
    })

    it('the credential store rejects the commit of a lease holder after another process acquired the lease', async () => {
      await put('ACC-1', 'one')
      const stale = await held('ACC-1', 'a', 30)
      await untilHeld('ACC-1')
      expect(await commit(stale.lease, 'two')).toBe('fenced')
      expect(await store.recordIntent(stale.lease, 0)).toEqual({ kind: 'lost' })
      expect(await settle(stale.lease)).toBe('lost')
      expect(await store.get('ACC-1')).toMatchObject({ version: 1, fault: null })
    })

    it('the credential store accepts the commit of an expired lease if no other process acquired the lease', async () => {
      await put('ACC-1', 'one')
      const { lease } = await held('ACC-1', 'a', 20)
      await new Promise((done) => setTimeout(done, 60))
      expect(await commit(lease, 'two')).toBe('committed')
    })

    it('the credential store rejects the commit of a refresh during which a new grant was stored', async () => {
      await put('ACC-1', 'one')
      const { lease } = await held('ACC-1')
      await store.recordIntent(lease, 0)
      expect(await put('ACC-1', 'new')).toMatchObject({
        version: 2,
      })
      expect(await commit(lease, 'late')).toBe('superseded')
      expect(await settle(lease)).toBe('lost')
      expect((await store.get('ACC-1'))?.accessToken?.reveal()).toBe('access new')
      expect((await held('ACC-1')).intent).toBeNull()
    })

    it('the credential store keeps the tokens of a credential with a fault, and a new grant removes the fault', async () => {
      await put('ACC-1', 'one')
      await settle((await held('ACC-1')).lease)
      const faulted = await store.get('ACC-1')
      expect(faulted).toMatchObject({ version: 1, fault, attempts: 1, nextTryAt: null })
      expect(faulted?.accessToken?.reveal()).toBe('access one')
      expect((await held('ACC-1')).refreshToken?.reveal()).toBe('refresh one')
      // The fault means that this grant has ended, so nextExpiryAt ignores its access token.
      expect(await store.counts()).toEqual({ stored: 1, faulted: 1, nextExpiryAt: null })
      expect((await store.takeDue(START + 1e9, 10, 1_000)).names).toEqual([])
      await put('ACC-1', 'new')
      expect(await store.get('ACC-1')).toMatchObject({ fault: null, attempts: 0 })
      expect(await store.counts()).toMatchObject({ stored: 1, faulted: 0 })
    })

    it('nextExpiryAt is the earliest access token expiry of all credentials that are still refreshed', async () => {
      const nearest = async () => (await store.counts()).nextExpiryAt
      const at = (expiresAt: number) => ({ expiresAt })
      expect(await nearest()).toBeNull()
      await put('ACC-1', 'one', at(START + 9_000))
      await put('ACC-2', 'one', at(START + 5_000))
      expect(await nearest()).toBe(START + 5_000)
      const { lease } = await held('ACC-2')
      const retry = settlement({ fault: null, isPublished: false, nextTryAt: START + 99_000 })
      await store.settle(lease, retry, auditContextOf('faulted'))
      expect(await nearest()).toBe(START + 5_000)
      const again = await held('ACC-2')
      const renewed = grantOf('ACC-2', 'two', at(START + 20_000))
      await store.commit(again.lease, renewed, START, auditContextOf('refreshed'))
      expect(await nearest()).toBe(START + 9_000)
      await remove()
      expect(await nearest()).toBe(START + 20_000)
    })

    it('another lease holder can replace a refresh intent immediately if no failover has happened since it was stored', async () => {
      await put('ACC-1', 'one')
      const first = await held('ACC-1', 'a')
      await store.recordIntent(first.lease, 60_000)
      await store.release(first.lease)
      const second = await held('ACC-1', 'b')
      expect(second.intent?.fence).toBe(first.lease.fence)
      expect(await store.recordIntent(second.lease, 60_000)).toEqual({ kind: 'recorded' })
      await store.release(second.lease)
      expect((await held('ACC-1', 'c')).intent?.fence).toBe(second.lease.fence)
    })

    it('settle() without a fault stores the time of the next attempt, and keeps the refresh intent only if requested', async () => {
      await put('ACC-1', 'one')
      const { lease } = await held('ACC-1')
      await store.recordIntent(lease, 0)
      const later = settlement({
        fault: null,
        isPublished: false,
        nextTryAt: START + 500,
        keepsIntent: true,
        attempts: 3,
      })
      await store.settle(lease, later, auditContextOf('faulted'))
      expect(await store.get('ACC-1')).toMatchObject({
        fault: null,
        attempts: 3,
        nextTryAt: START + 500,
      })
      expect((await store.takeDue(START + 499, 10, 1_000)).nextAt).toBe(START + 500)
      const next = await held('ACC-1')
      expect(next.intent).not.toBeNull()
      await store.settle(next.lease, { ...later, keepsIntent: false }, auditContextOf('faulted'))
      expect((await held('ACC-1')).intent).toBeNull()
      expect(await events()).toEqual(['stored 1'])
    })

    it('the event of a removed credential requests the erasure of runs only if the caller has requested this erasure', async () => {
      for (const erase of [undefined, false, true]) {
        await put('ACC-1', 'one')
        const context = auditContextOf('removed')
        await store.remove('ACC-1', true, erase === undefined ? context : { ...context, erase })
      }
      const published = (await outbox()).flatMap((entry) => entry.events)
      const removals = published.filter(({ kind }) => kind === 'removed')
      expect(removals.map(({ event }) => event.erase)).toEqual([undefined, undefined, true])
    })

    it('the credential store removes a credential completely, and a later grant continues its version numbers', async () => {
      expect(await remove()).toBe('absent')
      await put('ACC-1', 'one')
      const { lease } = await held('ACC-1')
      expect(await remove()).toBe('removed')
      expect(await store.get('ACC-1')).toBeNull()
      expect(await commit(lease, 'late')).toBe('superseded')
      expect((await store.takeDue(START + 1e9, 10, 1_000)).names).toEqual([])
      expect(await store.list({ after: '', limit: 10 })).toEqual([])
      expect(await store.counts()).toEqual({ stored: 0, faulted: 0, nextExpiryAt: null })
      const removed = (await outbox()).at(-1)
      expect(removed?.events[0]).toMatchObject({
        kind: 'removed',
        event: { Name: 'ACC-1', Version: 1, revoked: true },
      })
      expect(await put('ACC-1', 'again')).toMatchObject({
        version: 2,
      })
    })

    it('the credential store returns null for a refresh token or id token that the grant does not have', async () => {
      await put('ACC-1', 'one', { refreshToken: null, idToken: null })
      expect(await held('ACC-1')).toMatchObject({
        refreshToken: null,
        idToken: null,
        previous: null,
      })
    })

    it('the credential store lists credentials page by page in the order of their names, without secrets', async () => {
      for (const realm of ['b', '10', 'a', '9', 'B']) await put(`ACC-${realm}`, realm)
      const first = await store.list({ after: '', limit: 3 })
      expect(first.map(({ name }) => name)).toEqual(['ACC-10', 'ACC-9', 'ACC-B'])
      const rest = await store.list({ after: 'ACC-B', limit: 3 })
      expect(rest.map(({ name }) => name)).toEqual(['ACC-a', 'ACC-b'])
      expect(JSON.stringify([first, rest])).not.toMatch(/access|refresh [ab]|1\.k/)
    })

    it('takeDue() returns due credentials, earliest first, and returns a credential again only after a delay', async () => {
      await put('ACC-late', 'x', {}, START + 30)
      await put('ACC-soon', 'x', {}, START + 10)
      await put('ACC-next', 'x', {}, START + 20)
      expect(await store.takeDue(START + 5, 10, 1_000)).toEqual({ names: [], nextAt: START + 10 })
      expect(await store.takeDue(START + 30, 2, 1_000)).toEqual({
        names: ['ACC-soon', 'ACC-next'],
        nextAt: START + 30,
      })
      expect(await store.takeDue(START + 30, 10, 1_000)).toEqual({
        names: ['ACC-late'],
        nextAt: START + 1_030,
      })
      expect((await store.takeDue(START + 1_029, 10, 1_000)).names).toEqual([])
      expect((await store.takeDue(START + 1_030, 10, 1_000)).names.toSorted()).toEqual([
        'ACC-late',
        'ACC-next',
        'ACC-soon',
      ])
    })

    it('the credential store keeps events in order and without secrets until trimOutbox() deletes them', async () => {
      await put('ACC-1', 'one')
      await put('ACC-2', 'two')
      await store.remove('ACC-1', false, auditContextOf('removed'))
      const entries = await outbox(2)
      const published = entries.flatMap(({ events: some }) => some)
      expect(published.map(({ kind, event: { Name } }) => `${kind} ${Name}`)).toEqual([
        'stored ACC-1',
        'stored ACC-2',
      ])
      for (const { event } of published) expect(CredentialEvent.parse(event)).toEqual(event)
      await store.trimOutbox(entries.map(({ id }) => id))
      expect(await events()).toEqual(['removed 1'])
      expect(JSON.stringify(entries)).not.toMatch(/access|refresh one|id one/)
    })

    it('the audit entries of all changes form a hash chain, and an event is returned only after its audit entries are in the log', async () => {
      await store.put(grantOf('ACC-1', 'one'), START, auditContextOf('granted', { who: 'browser' }))
      const { lease } = await held('ACC-1')
      expect(await store.readOutbox('relay', 1_000, 100)).toEqual([])
      const again = settlement({ fault: null, isPublished: false, nextTryAt: START + 500 })
      const failed = { who: 'routine', outcome: 'provider_unavailable', traceId: 'tid-1' }
      await store.settle(lease, again, auditContextOf('refresh_failed', failed))
      const { lease: next } = await held('ACC-1')
      await commit(next, 'two')
      await remove()
      expect(await events()).toEqual(['stored 1', 'refreshed 2', 'removed 2'])
      const items = await log()
      expect(
        items.map(({ What, Who, Version, Outcome, TraceId }) => [
          What,
          Who,
          Version,
          Outcome,
          TraceId,
        ]),
      ).toEqual([
        ['granted', 'browser', 1, 'ok', undefined],
        ['refresh_failed', 'routine', 1, 'provider_unavailable', 'tid-1'],
        ['refreshed', 'key 01234567', 2, 'ok', undefined],
        ['removed', 'key 01234567', 2, 'ok', undefined],
      ])
      expect(firstBreak(auditStart, items)).toBeNull()
      expect((await store.readAudit(0, 1)).head).toEqual({ Seq: 4, Hash: items[3]?.Hash })
      expect(JSON.stringify(items)).not.toMatch(/access|refresh one|id one/)
    })

    it('the credential store writes each audit entry once, despite concurrent calls and a restart', async () => {
      await store.record([auditFactOf({ name: 'ACC-1', version: 1 }, auditContextOf('handed_out'))])
      await Promise.all([store.audit(100), store.audit(100), store.audit(100)])
      store = await reopen()
      await store.record([
        auditFactOf({ name: 'ACC-1', version: 2 }, auditContextOf('handed_out')),
        auditFactOf({ name: 'ACC-2', version: 1 }, auditContextOf('handed_out')),
      ])
      while ((await store.audit(1)) > 0);
      const items = await log()
      expect(items.map(({ Seq, Name, Version }) => [Seq, Name, Version])).toEqual([
        [1, 'ACC-1', 1],
        [2, 'ACC-1', 2],
        [3, 'ACC-2', 1],
      ])
      expect(firstBreak(auditStart, items)).toBeNull()
      expect((await store.readAudit(1, 1)).items.map(({ Seq }) => Seq)).toEqual([2])
    })

    it('the credential store keeps the time at which the provider ends a grant, and stores the expiry notice with the token pair', async () => {
      const hardExpiresAt = START + 29 * 86_400_000
      const limits = { hardExpiresAt, idleExpiresAt: START + 1_000_000 }
      await put('ACC-1', 'one', limits)
      const { lease, credential } = await held('ACC-1')
      expect(credential).toMatchObject({ ...limits, expiryNoticeDays: null })
      const noticed = grantOf('ACC-1', 'two', { ...limits, expiryNoticeDays: 30 })
      await store.commit(lease, noticed, START, auditContextOf('refreshed'), { isNoticeNew: true })
      expect(await store.get('ACC-1')).toMatchObject({ ...limits, expiryNoticeDays: 30 })
      expect(await events()).toEqual(['stored 1', 'refreshed 2', 'expiring 2'])
      expect((await outbox())[1]?.events[1]?.event.HardExpiry).toBe('2026-01-30T00:00:00.000Z')
      expect((await log()).map(({ What, Outcome }) => `${What} ${Outcome}`)).toEqual([
        'granted ok',
        'refreshed ok',
        'expiring 30 days',
      ])
    })

    it('checkDecryption() returns whether the secrets of a credential can be decrypted, and `absent` for an unknown name', async () => {
      await put('ACC-1', 'one')
      expect([await store.checkDecryption('ACC-1'), await store.checkDecryption('ACC-2')]).toEqual([
        'decryptable',
        'absent',
      ])
    })

    it('the credential store rejects a record that was copied to another name', async () => {
      await put('ACC-1', 'one')
      await put('ACC-2', 'two')
      store = await edit((records) => {
        records['ACC-2'] = { ...records['ACC-1'] }
      })
      await expect(store.get('ACC-2')).rejects.toBeInstanceOf(DecryptionError)
      await expect(store.acquire('ACC-2', 'a', 1_000)).rejects.toBeInstanceOf(DecryptionError)
      expect(await store.checkDecryption('ACC-2')).toBe('refused')
      expect((await store.list({ after: '', limit: 10 })).map((each) => each.fault?.Code)).toEqual([
        undefined,
        'record_rejected',
      ])
      expect((await held('ACC-1')).refreshToken?.reveal()).toBe('refresh one')
    })

    it('the credential store rejects a record whose expiry was changed by another program', async () => {
      await put('ACC-1', 'one')
      store = await edit((records) => {
        records['ACC-1'] = { ...records['ACC-1'], Expiry: '2040-01-01T00:00:00.000Z' }
      })
      await expect(store.get('ACC-1')).rejects.toBeInstanceOf(DecryptionError)
      await expect(store.acquire('ACC-1', 'a', 1_000)).rejects.toBeInstanceOf(DecryptionError)
      // A new authorization replaces the changed record.
      await put('ACC-1', 'new')
      expect((await store.get('ACC-1'))?.accessToken?.reveal()).toBe('access new')
    })

    it('the credential store hides the text of a fault that was changed by another program', async () => {
      await put('ACC-1', 'one')
      await settle((await held('ACC-1')).lease)
      expect((await store.get('ACC-1'))?.fault).toEqual(fault)
      store = await edit((records) => {
        const Fault = JSON.stringify({ ...fault, Message: 'phishing' })
        records['ACC-1'] = { ...records['ACC-1'], Fault }
      })
      const changed = (await store.get('ACC-1'))?.fault
      expect(changed).toMatchObject({ Code: 'invalid_grant' })
      expect(changed?.Message).toContain('not authenticated')
    })

    it('after the import of a credential with a greater version number, later versions continue from that number', async () => {
      const importAbove = (atLeast: number) =>
        store.put(grantOf('ACC-1', 'x'), START, auditContextOf('imported'), { atLeast })
      expect((await importAbove(7)).version).toBe(8)
      expect((await importAbove(3)).version).toBe(9)
      expect((await store.get('ACC-1'))?.accessToken?.reveal()).toBe('access x')
    })

    it('the credential store stores a grant only once if put() is repeated after a lost reply', async () => {
      const putThis = () =>
        store.put(grantOf('ACC-1', 'one'), START, auditContextOf('granted'), { id: 'this grant' })
      await putThis()
      const { lease } = await held('ACC-1')
      await commit(lease, 'two')
      expect(await putThis()).toMatchObject({ version: 2 })
      expect((await held('ACC-1')).refreshToken?.reveal()).toBe('refresh two')
      expect(await events()).toEqual(['stored 1', 'refreshed 2'])
    })

    it('put() throws VersionConflict if the stored version is not the expected one', async () => {
      const putOver = (over: number | null) =>
        store.put(grantOf('ACC-1', 'x'), START, auditContextOf('imported'), { over })
      await expect(putOver(1)).rejects.toThrow(VersionConflict)
      await putOver(null)
      await expect(putOver(null)).rejects.toThrow(VersionConflict)
      expect(await putOver(1)).toMatchObject({ version: 2 })
    })

    it('the credential store removes a credential only if its version is the expected version', async () => {
      await put('ACC-1', 'one')
      await put('ACC-1', 'two')
      expect(await remove(1)).toBe('changed')
      expect(await store.get('ACC-1')).toMatchObject({ version: 2 })
      expect(await remove(2)).toBe('removed')
    })
  })
}
