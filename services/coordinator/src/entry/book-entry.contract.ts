import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { MARGIN_MS, type MovableSource } from '../../test-support/movable-source.ts'
import { done, process, workOn } from '../../test-support/order-runs.ts'
import { advance } from '../run/progress.ts'
import { defaultRetryPolicy } from '../run/retry-policy.ts'
import type { Claim } from '../run/transaction-source.ts'
import { ENTRIES, type NewEntry, readEntries } from './book-entry.ts'
import { createEntryKeeper } from './entry-keeper.ts'
import type { WrittenObject } from './written-objects.ts'
import { deleteEntries } from './delete-entries.ts'

const written = (change: Partial<WrittenObject> = {}): WrittenObject => ({
  realm: '42',
  entity: 'Invoice',
  id: '129',
  operation: 'create',
  syncToken: '0',
  fields: new Map([['DocNumber', 'string:"A-1"']]),
  ...change,
})

/** Tests the book of entries, which is part of the contract of the port `TransactionSource`. */
export function bookEntryContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a source of the book of entries`, () => {
    let source: MovableSource
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())
    const { queue, claim } = workOn(() => source)

    const entriesOf = (run: Claim['run'], objects: readonly WrittenObject[]): Promise<NewEntry[]> =>
      createEntryKeeper({ source, payloadKeys: null }).entriesOf(run, objects)
    /** Records the step of a claim that has written these objects. */
    const recordWrites = async ({ lease, run }: Claim, ...objects: WrittenObject[]) => {
      const course = { steps: process.steps, policy: defaultRetryPolicy, random: 0.5 }
      const entries = await entriesOf(run, objects)
      const moved = await source.record(lease, { ...advance(run, done, course), entries })
      return moved === null ? null : { ...run, ...moved }
    }
    /** Runs the first step of a new run, which writes these objects. */
    const runWith = async (id: string, ...objects: WrittenObject[]) =>
      recordWrites(await claim(await queue(id)), ...objects)
    const read = async (filter: Parameters<typeof readEntries>[1] = {}) =>
      readEntries(source, filter, { limit: 100 })
    const states = async (id = '129') =>
      (await read({ id }))
        .map(({ Operation, SyncToken, State }) => `${Operation} ${SyncToken} ${State}`)
        .toSorted()

    it('an entry is recorded with the attempt, and says which run and step have written it', async () => {
      await runWith('1', written())
      const [entry, ...others] = await read()
      expect(others).toEqual([])
      expect(entry).toEqual({
        EntryID: expect.stringMatching(/^[\da-f]{32}$/),
        Realm: '42',
        Entity: 'Invoice',
        EntityID: '129',
        Operation: 'create',
        Process: process.name,
        TransactionID: '1',
        ReplayID: 0,
        StepName: 'order',
        SyncToken: '0',
        Fields: { DocNumber: expect.stringMatching(/^[\da-f]{16}$/) },
        FieldsKey: expect.stringMatching(/^[\da-f]{16}$/),
        RecordedAt: expect.stringMatching(/^\d{4}-.*\.\d{3}Z$/),
        State: 'Recorded',
        CheckedAt: null,
        Changed: null,
      })
    })

    it('an attempt that ends without an item records its entries as well', async () => {
      const { lease, run } = await claim(await queue('1'))
      const course = { steps: process.steps, policy: defaultRetryPolicy, random: 0.5 }
      const later = advance(run, { kind: 'later', delayMs: 60_000 }, course)
      await source.record(lease, { ...later, entries: await entriesOf(run, [written()]) })
      expect(await states()).toEqual(['create 0 Recorded'])
    })

    it('a worker that has lost its lease records no entry', async () => {
      const lost = await claim(await queue('1'))
      await source.operate('cancel', process, '1', 0, anAct)
      expect(await recordWrites(lost, written())).toBeNull()
      expect(await read()).toEqual([])
    })

    it('the same write is stored once, and so is the creation of an object by whichever run', async () => {
      await runWith('1', written(), written())
      await runWith('2', written({ fields: new Map() }))
      expect(await read()).toMatchObject([{ TransactionID: '1', State: 'Recorded' }])
    })

    it('only the newest entry of an object is current, also if the order of recording is another', async () => {
      await runWith('1', written())
      await runWith('2', written({ operation: 'update', syncToken: '2' }))
      await runWith('3', written({ operation: 'update', syncToken: '1' }))
      await runWith('4', written({ realm: '43' }), written({ id: '130' }))
      expect(await read({ realm: '43' })).toMatchObject([{ State: 'Recorded' }])
      // Entries of one millisecond have no order among themselves.
      expect(
        (await read({ realm: '42', id: '129' }))
          .map(({ Operation, SyncToken, State }) => `${Operation} ${SyncToken} ${State}`)
          .toSorted(),
      ).toEqual(['create 0 Superseded', 'update 1 Superseded', 'update 2 Recorded'])
    })

    it('of several entries of one attempt for the same object, the newest is current', async () => {
      await runWith(
        '1',
        written(),
        written({ operation: 'update', syncToken: '10' }),
        written({ operation: 'update', syncToken: '9' }),
      )
      expect(await states()).toEqual([
        'create 0 Superseded',
        'update 10 Recorded',
        'update 9 Superseded',
      ])
    })

    it('a deletion is newer than every version of the object', async () => {
      await runWith('1', written({ syncToken: '7' }))
      await runWith('2', written({ operation: 'delete', syncToken: null }))
      await runWith('3', written({ operation: 'update', syncToken: '8' }))
      expect(await states()).toEqual([
        'create 7 Superseded',
        'delete null Recorded',
        'update 8 Superseded',
      ])
    })

    it('entries are found by object, run, state and time, in pages', async () => {
      for (const n of [1, 2, 3]) await runWith(`${n}`, written({ id: `${n}` }))
      const ids = async (filter: Parameters<typeof readEntries>[1]) =>
        (await read(filter)).map(({ EntityID }) => EntityID)
      expect(await ids({ transaction: '2', process: process.name })).toEqual(['2'])
      expect(await ids({ entity: 'Invoice', id: '3' })).toEqual(['3'])
      expect(await ids({ entity: 'Bill' })).toEqual([])
      expect(await ids({ state: 'Recorded' })).toHaveLength(3)
      expect(await ids({ state: 'Missing' })).toEqual([])
      const [newest, second] = await readEntries(source, {}, { limit: 2 })
      if (newest === undefined || second === undefined) throw new Error('too few entries')
      const after: [string, string] = [second.RecordedAt, second.EntryID]
      const rest = await readEntries(source, {}, { after, limit: 2 })
      expect([newest, second, ...rest].map(({ EntityID }) => EntityID).toSorted()).toEqual([
        '1',
        '2',
        '3',
      ])
      const since = new Date(Date.parse(newest.RecordedAt) + 1).toISOString()
      expect(await ids({ since })).toEqual([])
      expect(await ids({ since: rest[0]?.RecordedAt })).toHaveLength(3)
    })

    it('an erased run keeps the ids of its entries and loses their fields', async () => {
      await runWith('1', written())
      await runWith('2', written({ id: '130' }))
      await source.operate('cancel', process, '1', 0, anAct)
      const found = await source.get(process.name, '1', 0)
      if (found === null) throw new Error('the run does not exist')
      await source.erase([{ ...found.run }], anAct)
      expect(await read({ id: '129' })).toMatchObject([
        { EntityID: '129', TransactionID: '1', Fields: null, Changed: null, State: 'Unproven' },
      ])
      expect(await read({ id: '130' })).toMatchObject([
        { State: 'Recorded', Fields: { DocNumber: expect.any(String) } },
      ])
    })

    it('the entries of a company are erased with the company', async () => {
      await runWith('1', written(), written({ realm: '43' }))
      expect(await deleteEntries(source, { realm: '42' })).toBe(1)
      expect(await read()).toMatchObject([{ Realm: '43' }])
    })

    it('entries are deleted after their own time, the oldest first', async () => {
      const dayMs = 86_400_000
      for (const n of [1, 2]) await runWith(`${n}`, written({ id: `${n}` }))
      await source.advance(dayMs + MARGIN_MS)
      await runWith('3', written({ id: '3' }))
      expect(await deleteEntries(source, { olderThanMs: dayMs, limit: 1 })).toBe(1)
      expect(await deleteEntries(source, { olderThanMs: dayMs, limit: 10 })).toBe(1)
      expect(await deleteEntries(source, { olderThanMs: dayMs, limit: 10 })).toBe(0)
      expect(await read()).toMatchObject([{ EntityID: '3' }])
    })

    it('equal values have different hashes in different objects, and no value is stored', async () => {
      await runWith('1', written(), written({ id: '130' }))
      const [first, second] = await read()
      expect(first?.Fields?.['DocNumber']).not.toBe(second?.Fields?.['DocNumber'])
      expect(JSON.stringify(await source.records(ENTRIES).rows())).not.toContain('A-1')
    })
  })
}
