import { beforeEach, describe, expect, it } from 'vitest'
import { type AuthorizationStore, type CodeClaim, PENDING_LABELS } from './authorization-store.ts'

const claim: CodeClaim = { realm: '1', state: null, returnTo: null, result: null }

/** The contract that each adapter of `AuthorizationStore` must pass. */
export function authorizationStoreContract(
  kind: string,
  open: () => Promise<AuthorizationStore>,
): void {
  describe(`${kind} as an authorization store`, () => {
    let store: AuthorizationStore
    beforeEach(async () => {
      store = await open()
    })

    it('the authorization store accepts a state from only one of many concurrent callers', async () => {
      expect(await store.isStateUsed('state')).toBe(false)
      const uses = Array.from({ length: 10 }, () => store.useState('state', 60_000))
      expect((await Promise.all(uses)).filter(Boolean)).toEqual([true])
      expect(await store.isStateUsed('state')).toBe(true)
      expect(await store.isStateUsed('other')).toBe(false)
    })

    it('the authorization store keeps the labels of a state until their time to live has passed', async () => {
      const labels = { label: 'Acme', tags: { customer: '7' } }
      await store.keepLabels('state', labels, 60_000, null)
      expect(await store.readLabels('state')).toStrictEqual(labels)
      expect(await store.readLabels('other')).toBeNull()
      await store.keepLabels('short', labels, 20, null)
      await new Promise((done) => setTimeout(done, 60))
      expect(await store.readLabels('short')).toBeNull()
    })

    it('the authorization store keeps no labels of a key above its share, but those of another key', async () => {
      const labels = { label: 'Acme' }
      const keep = (state: string, key: string | null, ttlMs = 60_000) =>
        store.keepLabels(state, labels, ttlMs, key)
      const states = Array.from({ length: PENDING_LABELS.perKey - 1 }, (_, n) => `of one ${n}`)
      await Promise.all(states.map((state) => keep(state, 'one')))
      await keep('expires', 'one', 20)
      await new Promise((done) => setTimeout(done, 60))
      await keep('last', 'one')
      await expect(keep('rejected', 'one')).rejects.toMatchObject({ code: 'quota_exceeded' })
      expect(await store.readLabels('rejected')).toBeNull()
      await keep('of another key', 'two')
      await keep('of a service', null)
      expect(await store.readLabels('of another key')).toEqual(labels)
      expect(await store.readLabels('of a service')).toEqual(labels)
    })

    it('the authorization store keeps no more labels than all keys together may have', async () => {
      const keep = (n: number) => store.keepLabels(`state ${n}`, { label: 'Acme' }, 60_000, null)
      const batch = 500
      for (let start = 0; start < PENDING_LABELS.total; start += batch)
        await Promise.all(Array.from({ length: batch }, (_, n) => keep(start + n)))
      await expect(keep(PENDING_LABELS.total)).rejects.toMatchObject({ code: 'busy' })
    })

    it('the authorization store deletes the record of a used state when its time to live has passed', async () => {
      await store.useState('state', 20)
      await new Promise((done) => setTimeout(done, 60))
      expect(await store.isStateUsed('state')).toBe(false)
    })

    it('the authorization store accepts one disconnect hint per credential and interval, even from concurrent callers', async () => {
      const admitted = await Promise.all(
        Array.from({ length: 10 }, () => store.admitHint('ACC-1', 60_000)),
      )
      expect(admitted.filter(Boolean)).toEqual([true])
      expect(await store.admitHint('ACC-2', 20)).toBe(true)
      await new Promise((done) => setTimeout(done, 60))
      expect(await store.admitHint('ACC-2', 20)).toBe(true)
    })

    it('the authorization store accepts the first claim of a code, and returns this claim and its result to later callers', async () => {
      const answers = await Promise.all(
        Array.from({ length: 10 }, () => store.claimCode('code', claim, 60_000)),
      )
      expect(answers.filter((first) => first === null)).toHaveLength(1)
      expect(answers.filter((first) => first !== null)).toEqual(
        Array.from({ length: 9 }, () => claim),
      )
      const settled: CodeClaim = {
        ...claim,
        result: { kind: 'failed', code: 'code_exchange_failed', detail: 'x' },
      }
      await store.settleCode('code', settled, 60_000)
      expect(await store.readCode('code')).toEqual(settled)
      expect(await store.claimCode('code', claim, 60_000)).toEqual(settled)
      expect(await store.readCode('another')).toBeNull()
    })

    it('the authorization store accepts a new claim of a code after the first claim has expired', async () => {
      await store.claimCode('code', claim, 20)
      await new Promise((done) => setTimeout(done, 60))
      expect(await store.claimCode('code', claim, 60_000)).toBeNull()
    })
  })
}
