import { beforeEach, describe, expect, it } from 'vitest'
import { auditContextOf, grantOf, START } from '../../test-support/grants.ts'
import type { StoreUnderTest } from './credential-store.contract.ts'
import type { CredentialStore, LeasedCredential } from './credential-store.ts'
import { faultOf } from './fault.ts'

/** The contract tests for labels and tags, which every credential store must pass. */
export function credentialLabelsContract(
  storeKind: string,
  { open, reopen, edit }: StoreUnderTest,
): void {
  describe(`labels of credentials in ${storeKind}`, () => {
    const labels = { label: 'Acme <Ltd>', tags: { customer: '7', plan: 'gold: "plus"' } }
    const granted = auditContextOf('granted')
    const changes: (readonly [readonly string[], number])[] = []
    const labelled = (...change: (typeof changes)[number]): void => void changes.push(change)
    let store: CredentialStore

    beforeEach(async () => {
      store = await open()
    })

    const connect = (mark: string, given: object = {}) =>
      store.put({ ...grantOf('ACC-1', mark), ...given }, START, granted)
    const stored = async () => {
      const credential = await store.get('ACC-1')
      return credential && { label: credential.label, tags: credential.tags }
    }
    const held = async (): Promise<LeasedCredential> => {
      const acquired = await store.acquire('ACC-1', 'a', 60_000)
      if (acquired.kind !== 'acquired') throw new Error(`the lease is ${acquired.kind}`)
      return acquired.leased
    }
    const published = async () => {
      await store.audit(1_000)
      const entries = (await store.readOutbox('relay', 1_000, 100)) ?? []
      return entries.flatMap(({ events }) =>
        events.map(({ kind, event }) => [kind, event.Label, event.Tags] as const),
      )
    }

    it('the credential store stores the labels of a grant, and keeps them if the company is reconnected without labels', async () => {
      expect(await connect('one', labels)).toMatchObject({ ...labels, version: 1 })
      expect(await connect('two')).toMatchObject({ ...labels, version: 2 })
      expect(await stored()).toStrictEqual(labels)
      store = await reopen()
      expect(await stored()).toStrictEqual(labels)
      const [listed] = await store.list({ after: '', limit: 1 })
      expect(listed).toMatchObject(labels)
    })

    it('the credential store keeps the name of a company across labels, refreshes and reconnections, and publishes it', async () => {
      changes.length = 0
      const company = { name: 'Rosewood Interiors', readAt: START }
      await connect('one')
      await store.label('ACC-1', { company }, labelled)
      await store.label('ACC-1', { label: 'Shop' }, labelled)
      const { lease } = await held()
      await store.commit(lease, grantOf('ACC-1', 'two'), START, auditContextOf('refreshed'))
      await connect('three')
      store = await reopen()
      expect(await store.get('ACC-1')).toMatchObject({ label: 'Shop', company })
      await store.audit(1_000)
      const events = ((await store.readOutbox('relay', 1_000, 100)) ?? []).flatMap(
        (one) => one.events,
      )
      expect(events.at(-1)?.event).toMatchObject({ Label: 'Shop', CompanyName: company.name })
      expect(changes.map(([names]) => names)).toEqual([['company'], ['label']])
      await store.remove('ACC-1', true, auditContextOf('removed'))
      expect(await connect('four')).toMatchObject({ company: null })
    })

    it('a reconnection replaces the label or the tags only if its request contains them', async () => {
      await connect('one', labels)
      expect(await connect('two', { label: 'New' })).toMatchObject({
        label: 'New',
        tags: labels.tags,
      })
      await connect('three', { tags: {} })
      expect(await stored()).toStrictEqual({ label: 'New', tags: {} })
    })

    it('a removed company that is connected again has no labels', async () => {
      await connect('one', labels)
      await store.remove('ACC-1', true, auditContextOf('removed'))
      expect(await connect('two')).toMatchObject({ label: null, tags: {} })
    })

    it('a change of labels does not advance the version of the credential, and is reported for the audit log', async () => {
      changes.length = 0
      await connect('one')
      expect(await store.label('ACC-1', labels, labelled)).toMatchObject(labels)
      expect(await store.label('ACC-1', { tags: { a: 'b' } }, labelled)).toMatchObject({
        label: labels.label,
        tags: { a: 'b' },
      })
      expect(await store.label('ACC-1', { label: null }, labelled)).toMatchObject({
        label: null,
        tags: { a: 'b' },
      })
      expect(await store.get('ACC-1')).toMatchObject({ version: 1, label: null, tags: { a: 'b' } })
      expect(changes).toEqual([
        [['label', 'tags'], 1],
        [['tags'], 1],
        [['label'], 1],
      ])
    })

    it('a change of labels to their current values is not reported', async () => {
      await connect('one', { tags: { a: '1', b: '2' } })
      changes.length = 0
      await store.label('ACC-1', { label: null, tags: { b: '2', a: '1' } }, labelled)
      expect(changes).toEqual([])
    })

    it('labels stay unchanged if the caller requires another version than the stored one, or if there is no credential', async () => {
      expect(await store.label('ACC-1', labels, labelled)).toBe('absent')
      await connect('one')
      await connect('two')
      expect(await store.label('ACC-1', labels, labelled, 1)).toBe('moved')
      expect(await stored()).toStrictEqual({ label: null, tags: {} })
      expect(await store.label('ACC-1', labels, labelled, 2)).toMatchObject(labels)
    })

    it('a refresh and a simultaneous change of labels are both stored', async () => {
      await connect('one', { label: 'Old' })
      const { lease } = await held()
      await store.recordIntent(lease, 0)
      await store.label('ACC-1', labels, labelled)
      const refreshed = auditContextOf('refreshed')
      expect(await store.commit(lease, grantOf('ACC-1', 'two'), START, refreshed)).toBe('committed')
      expect(await store.get('ACC-1')).toMatchObject({ ...labels, version: 2 })
      expect(await published()).toStrictEqual([
        ['stored', 'Old', undefined],
        ['refreshed', labels.label, labels.tags],
      ])
    })

    it('concurrent changes of label and tags both take effect', async () => {
      await connect('one')
      await Promise.all([
        store.label('ACC-1', { label: labels.label }, labelled),
        store.label('ACC-1', { tags: labels.tags }, labelled),
      ])
      expect(await stored()).toStrictEqual(labels)
    })

    it('a fault does not change labels, and the events of a fault and of a removal contain the labels', async () => {
      await connect('one', labels)
      const { lease } = await held()
      const reason = { body: '{}', traceId: null }
      const fault = faultOf('ACC-1', 'invalid_grant', reason, { at: START, attempts: 1 })
      const settlement = { attempts: 1, nextTryAt: null, fault, isPublished: true }
      await store.settle(lease, { ...settlement, keepsIntent: false }, auditContextOf('faulted'))
      expect(await store.get('ACC-1')).toMatchObject({ ...labels, fault })
      await store.remove('ACC-1', false, auditContextOf('removed'))
      expect(await published()).toStrictEqual(
        ['stored', 'faulted', 'removed'].map((kind) => [kind, labels.label, labels.tags]),
      )
    })

    it('labels that another program has changed are not shown, and the credential stays usable', async () => {
      await connect('one', labels)
      store = await edit((records) => {
        const { ['ACC-1']: record = {} } = records
        record['Labels'] = (record['Labels'] ?? '').replace('Acme', 'Evil')
      })
      expect(await stored()).toStrictEqual({ label: null, tags: {} })
      expect((await store.get('ACC-1'))?.accessToken?.reveal()).toBe('access one')
      expect(await store.checkDecryption('ACC-1')).toBe('refused')
      await store.label('ACC-1', { label: 'Acme' }, labelled)
      expect(await store.checkDecryption('ACC-1')).toBe('decryptable')
    })
  })
}
