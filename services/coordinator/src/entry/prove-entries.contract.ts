import type { EntryEvent } from '@integration-host/shared/contracts/provider-event'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { MovableSource } from '../../test-support/movable-source.ts'
import { done, process, workOn } from '../../test-support/order-runs.ts'
import { advance } from '../run/progress.ts'
import { defaultRetryPolicy } from '../run/retry-policy.ts'
import { countEntries, ENTRIES } from './book-entry.ts'
import { createEntryKeeper } from './entry-keeper.ts'
import { createEntryProof, type ProvenObject } from './prove-entries.ts'
import { fieldsOf, type WrittenObject } from './written-objects.ts'

const MINUTE = 60_000
const sent = { DocNumber: 'A-1', Line: [{ Amount: 5 }], CustomerRef: { value: '3' } }
const stored = {
  Id: '129',
  SyncToken: '0',
  DocNumber: 'A-1',
  Line: [{ Id: '1', Amount: 5 }],
  CustomerRef: { value: '3', name: 'Ada' },
  TotalAmt: 5,
}

/** Tests the comparison of entries with the books. All sources must pass these tests. */
export function proveEntriesContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a source of entries that are compared with the books`, () => {
    let source: MovableSource
    let events: EntryEvent[]
    let now: number
    beforeEach(async () => {
      source = await open()
      events = []
      now = await source.records(ENTRIES).now()
    })
    afterEach(() => source[Symbol.asyncDispose]())
    const { queue, claim } = workOn(() => source)
    const keeper = () => createEntryKeeper({ source, payloadKeys: null })
    const proof = () =>
      createEntryProof({
        source,
        keeper: keeper(),
        publish: async (event) => void events.push(event),
      })

    /** Runs a step that has written an object; returns when it was recorded. */
    async function write(id: string, change: Partial<WrittenObject> = {}): Promise<number> {
      const { lease, run } = await claim(await queue(id))
      const course = { steps: process.steps, policy: defaultRetryPolicy, random: 0.5 }
      const object: WrittenObject = {
        realm: '42',
        entity: 'Invoice',
        id: '129',
        operation: 'create',
        syncToken: '0',
        fields: fieldsOf(sent, stored),
        ...change,
      }
      const entries = await keeper().entriesOf(run, [object])
      await source.record(lease, { ...advance(run, done, course), entries })
      const [entry] = await source.newestEntries(object.realm, [object])
      return Date.parse(entry?.RecordedAt ?? '')
    }
    const seen = (change: object, isDeleted = false): ProvenObject => {
      const content = { ...stored, ...change }
      return { entity: 'Invoice', id: '129', changedAt: now - 60 * MINUTE, isDeleted, content }
    }
    const state = async () => {
      const [entry] = await source.newestEntries('42', [{ entity: 'Invoice', id: '129' }])
      return (
        entry && { State: entry.State, Changed: entry.Changed, isChecked: entry.CheckedAt !== null }
      )
    }

    it.each<[string, object, boolean, string, readonly string[] | null]>([
      ['the same version', { DocNumber: 'B-1' }, false, 'Verified', null],
      [
        'another version with equal fields',
        { SyncToken: '1', TotalAmt: 9 },
        false,
        'Verified',
        null,
      ],
      [
        'another name of a referenced object',
        { SyncToken: '1', CustomerRef: { value: '3', name: 'Ada Lee' } },
        false,
        'Verified',
        null,
      ],
      [
        'other fields',
        { SyncToken: '2', DocNumber: 'B-1', Line: [{ Id: '1', Amount: 6 }] },
        false,
        'ChangedOutside',
        ['DocNumber', 'Line[1].Amount'],
      ],
      ['a void', { SyncToken: '1', TotalAmt: 0, PrivateNote: 'Voided - x' }, false, 'Voided', null],
      ['a deletion', {}, true, 'Deleted', null],
    ])('%s', async (_, change, isDeleted, State, Changed) => {
      await write('1')
      await proof().compare('42', [seen(change, isDeleted)], now)
      const found = await state()
      expect({ ...found, Changed: found?.Changed?.toSorted() ?? null }).toEqual({
        State,
        Changed,
        isChecked: true,
      })
      expect(events.map(({ State: reported }) => reported)).toEqual(
        State === 'Verified' ? [] : [State],
      )
      // An event has names and ids, and no value of the books.
      expect(JSON.stringify(events)).not.toMatch(/[AB]-1|Ada|Voided -/)
    })

    it('a difference is reported once, with the run that has written the object, and again if it changes', async () => {
      await write('1')
      const twice = proof()
      for (const DocNumber of ['B-1', 'B-2'])
        await twice.compare('42', [seen({ SyncToken: '1', DocNumber })], now)
      await twice.compare('42', [seen({}, true)], now)
      expect(events).toMatchObject([
        {
          Kind: 'changed',
          State: 'ChangedOutside',
          Changed: ['DocNumber'],
          Process: process.name,
          TransactionID: '1',
          ReplayID: 0,
          StepName: 'order',
        },
        { Kind: 'deleted', Changed: [] },
      ])
      expect(events[0]?.Id).toMatch(/^entry-Invoice-129:changed@.*\/42$/)
    })

    it('a write of another run, and its void or deletion, are not changes from outside', async () => {
      await write('1')
      await write('2', { operation: 'update', syncToken: '1', fields: new Map() })
      await proof().compare('42', [seen({ SyncToken: '1', DocNumber: 'B-1' })], now)
      expect(await state()).toMatchObject({ State: 'Verified' })
      await write('3', { operation: 'void', syncToken: '2', fields: new Map() })
      const voided = { SyncToken: '3', TotalAmt: 0, PrivateNote: 'Voided' }
      await proof().compare('42', [seen(voided)], now)
      expect(await state()).toMatchObject({ State: 'Verified' })
      await write('4', { operation: 'delete', syncToken: null, fields: new Map() })
      await proof().compare('42', [seen({}, true)], now)
      expect(await state()).toMatchObject({ State: 'Verified' })
      expect(events).toEqual([])
    })

    it('a response that is older than the newest write says nothing', async () => {
      await write('1', { syncToken: '4' })
      await proof().compare('42', [seen({ SyncToken: '3', DocNumber: 'B-1' })], now)
      expect(await state()).toMatchObject({ State: 'Recorded', isChecked: false })
    })

    it('a fresh difference is read again while a run of the company is in progress, and is reported afterwards', async () => {
      await write('1')
      const [other] = await source.queue(process, [
        { TransactionID: '2', InitialData: null, Realm: '42' },
      ])
      if (other?.run === undefined || other.outcome === 'conflict') throw new Error('not queued')
      await claim(other.run)
      const changedAt = now - MINUTE
      const fresh = { ...seen({ SyncToken: '1', DocNumber: 'B-1' }), changedAt }
      expect(await proof().compare('42', [fresh], now)).toMatchObject({ readAgainFrom: changedAt })
      expect(await state()).toMatchObject({ State: 'Recorded' })
      expect(events).toEqual([])
      expect(await proof().compare('42', [fresh], now + 10 * MINUTE)).toEqual({
        readAgainFrom: null,
        seen: [],
      })
      expect(await state()).toMatchObject({ State: 'ChangedOutside' })
    })

    it.each<[string, object]>([
      ['because a run of the company is in progress', { SyncToken: '5', DocNumber: 'B-1' }],
      ['because it is older than the write', { SyncToken: '3' }],
    ])('an object that sweeps read and cannot compare, %s, is not missing', async (_, change) => {
      const at = await write('1', { syncToken: '4' })
      const [other] = await source.queue(process, [
        { TransactionID: '2', InitialData: null, Realm: '42' },
      ])
      if (other?.run === undefined) throw new Error('not queued')
      await claim(other.run)
      const range = { from: at - 10 * MINUTE, until: at + MINUTE, except: [] }
      const object = { ...seen(change), changedAt: now }
      for (let sweep = 1; sweep <= 3; sweep += 1) {
        const { seen: found } = await proof().compare('42', [object], now)
        expect(found).toHaveLength(1)
        await proof().finish('42', { ...range, seen: new Set(found) })
      }
      expect(await state()).toMatchObject({ State: 'Recorded', isChecked: false })
      expect(events).toEqual([])
    })

    it('a difference is not reported although a hundred sweeps of the company are in progress beside its run', async () => {
      await write('1')
      const sweeps = { ...process, name: 'ChangeFeed' }
      const started = [
        ...(await source.queue(process, [{ TransactionID: '2', InitialData: 1, Realm: '42' }])),
        ...(await source.queue(
          sweeps,
          Array.from({ length: 100 }, (_, n) => ({
            TransactionID: `sweep ${n}`,
            InitialData: 1,
            Realm: '42',
          })),
        )),
      ]
      for (const { run } of started) if (run !== undefined) await claim(run)
      const fresh = { ...seen({ SyncToken: '1', DocNumber: 'B-1' }), changedAt: now }
      expect(await proof().compare('42', [fresh], now)).toMatchObject({ readAgainFrom: now })
      expect(events).toEqual([])
    })

    it('an object is missing after two sweeps that have read the time of its creation completely', async () => {
      const at = await write('1')
      const range = {
        from: at - 10 * MINUTE,
        until: at + MINUTE,
        except: [],
        seen: new Set<string>(),
      }
      expect(await proof().readFrom('42', at, now)).toBe(at - 5 * MINUTE)
      for (const read of [
        range,
        { ...range, from: at }, // did not read the time before, when the object may have been created
        range,
        { ...range, except: ['Invoice'] },
        range,
      ]) {
        await proof().finish('42', read)
        expect(await state()).toMatchObject({ State: 'Recorded' })
      }
      await proof().finish('42', range)
      expect(await state()).toMatchObject({ State: 'Missing', isChecked: true })
      expect(events).toMatchObject([{ Kind: 'missing', EntityID: '129' }])
      await proof().compare('42', [seen({})], now)
      expect(await state()).toMatchObject({ State: 'Verified' })
    })

    it('an object that was seen once is never missing, because the change feed contains changed objects only', async () => {
      const at = await write('1')
      await proof().compare('42', [seen({})], now)
      const range = {
        from: at - 10 * MINUTE,
        until: at + MINUTE,
        except: [],
        seen: new Set<string>(),
      }
      for (const read of [range, range, range]) await proof().finish('42', read)
      expect(await state()).toMatchObject({ State: 'Verified' })
      expect(await proof().readFrom('42', at, now)).toBe(at)
    })

    it('counts the objects of a period by state, and those that were found changed or gone', async () => {
      const at = await write('1')
      await write('2', { id: '130' })
      await write('3', { id: '131', realm: '43' })
      await proof().compare('42', [seen({}, true)], now)
      const iso = (ms: number) => new Date(ms).toISOString()
      expect(
        await countEntries(source, { realm: '42', since: iso(at), until: iso(at + MINUTE) }),
      ).toEqual([
        { State: 'Deleted', Entity: 'Invoice', Count: 1 },
        { State: 'Recorded', Entity: 'Invoice', Count: 1 },
      ])
      expect(
        await countEntries(source, { realm: '42', since: iso(at - MINUTE), until: iso(at) }),
      ).toEqual([])
      expect(await countEntries(source, { checkedSinceMs: 86_400_000 })).toEqual([
        { State: 'Deleted', Entity: 'Invoice', Count: 1 },
      ])
      expect(await proof().entities('42')).toEqual(['Invoice'])
      expect(await proof().entities('44')).toEqual([])
    })
  })
}
