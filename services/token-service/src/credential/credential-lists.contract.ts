import { beforeEach, describe, expect, it } from 'vitest'
import { auditContextOf, grantOf, START } from '../../test-support/grants.ts'
import type { StoreUnderTest } from './credential-store.contract.ts'
import type { CredentialStore } from './credential-store.ts'
import { type FaultClass, faultOf } from './fault.ts'
import { allNames, type CredentialFilter, folded, nameRanges } from './listing.ts'

/** The contract tests for lists and counts, which every credential store must pass. */
export function credentialListsContract(
  storeKind: string,
  { open }: Pick<StoreUnderTest, 'open'>,
): void {
  describe(`lists of credentials in ${storeKind}`, () => {
    let store: CredentialStore

    beforeEach(async () => {
      store = await open()
      expect(await store.completeIndex(new AbortController().signal)).toBe(true)
    })

    const connect = (realm: string, given: object = {}) =>
      store.put({ ...grantOf(`ACC-${realm}`, realm), ...given }, START, auditContextOf('granted'))
    const lease = async (realm: string) => {
      const acquired = await store.acquire(`ACC-${realm}`, 'a', 60_000)
      if (acquired.kind !== 'acquired') throw new Error(`the lease is ${acquired.kind}`)
      return acquired.leased.lease
    }
    async function fail(realm: string, faultClass: FaultClass, retryAt: number | null = null) {
      const reason = { body: '{}', traceId: null }
      const context = { at: START, attempts: 1, retryAt }
      const fault = faultOf(`ACC-${realm}`, faultClass, reason, context)
      const settlement = { attempts: 1, nextTryAt: retryAt, fault, isPublished: true }
      const audit = auditContextOf('faulted')
      await store.settle(await lease(realm), { ...settlement, keepsIntent: false }, audit)
    }
    const refresh = async (realm: string) => {
      const grant = grantOf(`ACC-${realm}`, 'refreshed')
      await store.commit(await lease(realm), grant, START, auditContextOf('refreshed'))
    }

    const filterOf = (conditions: Partial<CredentialFilter>): CredentialFilter => ({
      states: [],
      classes: [],
      tags: [],
      text: '',
      ranges: [allNames],
      ...conditions,
    })
    /** Returns the realms of a list that is read in pages of two. */
    async function list(conditions: Partial<CredentialFilter>): Promise<string> {
      const realms: string[] = []
      for (let after: string | null = ''; after !== null;) {
        const filter = filterOf(conditions)
        const { items, next } = await store.find({ after, limit: 2, filter })
        expect(items.length).toBeLessThanOrEqual(2)
        realms.push(...items.map(({ environment }) => environment))
        after = next
      }
      return realms.join(' ')
    }
    const search = (text: string, conditions: Partial<CredentialFilter> = {}) =>
      list({ ...conditions, text: folded(text) })

    it('a list without conditions contains every credential in the order of the names', async () => {
      expect(await list({})).toBe('')
      for (const realm of ['b', '20', 'A', '1', '10', '2', '-']) await connect(realm)
      expect(await list({})).toBe('- 1 10 2 20 A b')
    })

    it('every change of a credential updates the lists and counts by state and class', async () => {
      for (const realm of ['1', '2', '3', '4', '5', '6']) await connect(realm)
      await connect('7', { expiryNoticeDays: 90, hardExpiresAt: START + 1 })
      await fail('1', 'provider_unavailable', START + 1)
      await fail('2', 'invalid_grant', START + 1) // This rejection makes the fault provisional.
      await fail('3', 'invalid_grant')
      await fail('4', 'idle_expired')
      expect(await list({ states: ['active'] })).toBe('5 6')
      expect(await list({ states: ['expiring'] })).toBe('7')
      expect(await list({ states: ['failing'] })).toBe('1 2')
      expect(await list({ states: ['must_reconnect'] })).toBe('3 4')
      expect(await list({ states: ['active', 'must_reconnect'] })).toBe('3 4 5 6')
      expect(await list({ states: ['failing', 'expiring', 'must_reconnect'] })).toBe('1 2 3 4 7')
      expect(await list({ classes: ['invalid_grant'] })).toBe('2 3')
      expect(await list({ classes: ['invalid_grant', 'idle_expired'] })).toBe('2 3 4')
      expect(await list({ states: ['failing'], classes: ['invalid_grant'] })).toBe('2')
      expect(await list({ states: ['active'], classes: ['invalid_grant'] })).toBe('')
      expect(await store.summary([allNames])).toStrictEqual({
        total: 7,
        states: { active: 2, expiring: 1, failing: 2, must_reconnect: 2 },
        classes: { provider_unavailable: 1, invalid_grant: 2, idle_expired: 1 },
      })

      await fail('2', 'invalid_grant') // This rejection makes the fault final.
      await refresh('1')
      await refresh('7')
      await connect('3')
      await store.remove('ACC-4', true, auditContextOf('removed'))
      expect(await list({ states: ['active'] })).toBe('1 3 5 6 7')
      expect(await list({ states: ['must_reconnect'] })).toBe('2')
      expect(await store.summary([allNames])).toStrictEqual({
        total: 6,
        states: { active: 5, expiring: 0, failing: 0, must_reconnect: 1 },
        classes: { invalid_grant: 1 },
      })
    })

    it('every change of labels updates the lists by tags', async () => {
      await connect('1', { tags: { plan: 'gold', team: 'a b' } })
      await connect('2', { tags: { plan: 'gold' } })
      await connect('3', { tags: { plan: 'silver' } })
      const tags = (...pairs: [string, string][]) => list({ tags: pairs })
      expect(await tags(['plan', 'gold'])).toBe('1 2')
      expect(await tags(['plan', 'gold'], ['team', 'a b'])).toBe('1')
      expect(await tags(['plan', 'gol'])).toBe('')
      expect(await tags(['__proto__', ''])).toBe('')
      await store.label('ACC-1', { tags: { plan: 'silver' } }, () => {})
      await connect('2', { tags: { plan: 'silver: "1"' } })
      await store.remove('ACC-3', true, auditContextOf('removed'))
      expect(await tags(['plan', 'gold'])).toBe('')
      expect(await tags(['team', 'a b'])).toBe('')
      expect(await tags(['plan', 'silver'])).toBe('1')
      expect(await tags(['plan', 'silver: "1"'])).toBe('2')
      await connect('3')
      await connect('1')
      expect(await tags(['plan', 'silver'])).toBe('1')
    })

    it('a search finds a company by its name at the provider as well as by its label', async () => {
      await connect('1', { label: 'Shop 12' })
      const named = (name: string) =>
        store.label('ACC-1', { company: { name, readAt: START } }, () => {})
      await named('Rosewood Interiors')
      expect([await search('WOOD int'), await search('shop')]).toEqual(['1', '1'])
      await named('Cedar')
      expect([await search('wood'), await search('cedar')]).toEqual(['', '1'])
      await store.remove('ACC-1', true, auditContextOf('removed'))
      await connect('1')
      expect(await search('cedar')).toBe('')
    })

    it('a search matches the beginning of a name or realm and any part of a label, case-insensitively', async () => {
      await connect('934100', { label: 'Müller & Söhne' })
      await connect('934200', { label: 'ACME %d [x] (Ltd.)' })
      await connect('aBc-1')
      await connect('ABD-2', { label: '9341 Street' })
      await connect('acc-3')
      expect(await search('9341')).toBe('934100 ABD-2')
      expect(await search('acc-9341')).toBe('934100')
      expect(await search('ACC-934')).toBe('934100 934200')
      expect(await search('ab')).toBe('ABD-2 aBc-1')
      expect(await search('abc-1')).toBe('aBc-1')
      expect(await search('acc-3')).toBe('acc-3')
      expect(await search('acc')).toBe('934100 934200 ABD-2 aBc-1 acc-3')
      expect(await search('SÖHNE')).toBe('934100')
      // The label contains u and a combining diaeresis.
      expect(await search('m\u0075\u0308ller')).toBe('934100')
      expect(await search('e %d [x] (')).toBe('934200')
      expect(await search('.*')).toBe('')
      expect(await search('4200')).toBe('')
      await store.label('ACC-934200', { label: null }, () => {})
      expect(await search('acme')).toBe('')
    })

    it('a list contains only the credentials that fulfil all of its conditions', async () => {
      const gold = { plan: 'gold' }
      await connect('1', { label: 'Acme One', tags: gold })
      await connect('2', { label: 'Acme Two', tags: gold })
      await connect('3', { label: 'Acme Three' })
      await connect('4', { label: 'Other', tags: gold })
      for (const realm of ['1', '3', '4']) await fail(realm, 'invalid_grant')
      expect(
        await search('acme', {
          states: ['must_reconnect', 'expiring'],
          classes: ['invalid_grant'],
          tags: [['plan', 'gold']],
        }),
      ).toBe('1')
      expect(await search('acme', { states: ['active'], tags: [['plan', 'gold']] })).toBe('2')
      expect(await search('o', { tags: [['plan', 'gold']] })).toBe('1 2 4')
    })

    it('lists and counts can be limited to the realms to which a service key is bound', async () => {
      for (const realm of ['1', '10', '11', '2', '20', 'x-1', 'x-2']) await connect(realm)
      for (const realm of ['10', 'x-1', '2']) await fail(realm, 'invalid_grant')
      const bounded = (...patterns: string[]) => nameRanges(patterns)
      expect(await list({ ranges: bounded('x-*', '1', '2') })).toBe('1 2 x-1 x-2')
      expect(await list({ ranges: bounded('1*', '1', '10*', '2') })).toBe('1 10 11 2')
      expect(await list({ ranges: bounded('*', '1') })).toBe('1 10 11 2 20 x-1 x-2')
      expect(await list({ ranges: bounded() })).toBe('')
      expect(await list({ ranges: bounded('x-*'), states: ['must_reconnect'] })).toBe('x-1')
      expect(await search('1', { ranges: bounded('10', '11*', 'x*') })).toBe('10 11')
      expect(await store.summary(bounded('1*', '10', '2'))).toStrictEqual({
        total: 4,
        states: { active: 2, expiring: 0, failing: 0, must_reconnect: 2 },
        classes: { invalid_grant: 2 },
      })
      expect((await store.summary(bounded())).total).toBe(0)
    })
  })
}
