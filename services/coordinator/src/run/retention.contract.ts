import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { contractTimes, type MovableSource } from '../../test-support/movable-source.ts'
import { aSearch } from '../../test-support/search.ts'
import { advance, type StepOutcome } from './progress.ts'
import { defaultRetryPolicy } from './retry-policy.ts'
import { advanceUndo } from './undo.ts'
import { createPurgePasses, type PurgePasses } from '../retention/purge-passes.ts'
import { FILES_LEFT, FIRST_END, RETENTION_KEY_ID, type RetentionPolicy } from './retention.ts'
import type { ProcessOutline } from './transaction-source.ts'
import { readActions } from './action.ts'

const process: ProcessOutline = { name: 'OrderProcess', steps: ['order'] }
const done: StepOutcome = {
  kind: 'completed',
  response: { status: 200, body: '{"a":1}' },
  data: { a: 1 },
  endsRun: false,
}
const failed: StepOutcome = { kind: 'failed', errorClass: 'http_400', error: 'no', response: null }
const fromStart = { fromStep: null, latest: null }

/** A retention with which every ended run is old enough to be purged. */
const nothing: RetentionPolicy = { process: process.name, completedMs: 0, failedMs: 0 }
const completedOnly: RetentionPolicy = { ...nothing, failedMs: null }

/** Tests the retention; both the memory and the PostgreSQL source must pass these tests. */
export function retentionContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a store that purges old runs`, () => {
    let source: MovableSource
    let passes: PurgePasses
    beforeEach(async () => {
      source = await open()
      passes = createPurgePasses(source)
    })
    afterEach(() => source[Symbol.asyncDispose]())

    const queue = (id: string, members: object = {}) =>
      source.queue(process, [{ TransactionID: id, InitialData: { secret: id }, ...members }])
    const get = async (id: string, replayId: number | null = null) => {
      const found = await source.get(process.name, id, replayId)
      if (found === null) throw new Error(`${id} does not exist`)
      return found
    }
    /** Runs the only step of the latest run, and records the given outcome. */
    const end = async (id: string, outcome: StepOutcome): Promise<void> => {
      const { run } = await get(id)
      const { Process, TransactionID, ReplayID, Version: version } = run
      const key = { Process, TransactionID, ReplayID }
      const at = { step: 'order', isFirst: true, version, owner: 'a worker' }
      const result = await source.claim({ ...key, ...at })
      if (result.kind !== 'claimed') throw new Error(result.kind)
      const course = { steps: process.steps, policy: defaultRetryPolicy, random: 0.5 }
      await source.record(result.claim.lease, advance(result.claim.run, outcome, course))
    }
    /** Ends the latest run as `Undone`, or as `UndoFailed`, because its step is left or cannot be undone. */
    const endUndo = async (id: string, outcome: StepOutcome): Promise<void> => {
      const { Process, TransactionID, ReplayID, Version: version } = (await get(id)).run
      const key = { Process, TransactionID, ReplayID }
      const at = { step: 'order', isFirst: true, version, owner: 'a worker' }
      const result = await source.claim({ ...key, ...at })
      if (result.kind !== 'claimed') throw new Error(result.kind)
      const { run, lease, items } = result.claim
      const course = { steps: process.steps, policy: defaultRetryPolicy, random: 0.5 }
      const options = { ...course, items, undoable: ['order'], events: [] }
      await source.record(lease, advanceUndo(run, outcome, options))
    }
    const completed = async (id: string, members: object = {}): Promise<void> => {
      await queue(id, members)
      await end(id, done)
    }
    /** Records that the files of all purged runs are removed; returns the ids of these runs. */
    const removeFilesLeft = async (): Promise<string[]> => {
      const filesLeft = source.records(FILES_LEFT)
      const rows = await filesLeft.rows()
      for (const row of rows) await filesLeft.replace(row, undefined)
      return rows
        .flatMap(({ Value }) => Value)
        .map(({ TransactionID, ReplayID }) => `${TransactionID}.${ReplayID}`)
        .toSorted()
    }
    /** Purges page by page, as a retention pass does. Returns the number of purged runs. */
    const purgeAll = async (policy: RetentionPolicy, limit = 2): Promise<number> => {
      await source.advance(2) // waits until the age of the ended runs is more than 0 ms
      let count = 0
      for (let after: typeof FIRST_END | null = FIRST_END; after !== null;) {
        const page = await source.purgeable(policy, after, limit)
        count += await source.purge(policy, page.runs)
        await removeFilesLeft()
        after = page.next
      }
      return count
    }

    it('a run that was undone, or could not be undone, is kept as long as a failed one', async () => {
      for (const id of ['undone', 'undo failed']) {
        await completed(id)
        await source.operate('undo', process, id, null, anAct)
      }
      await endUndo('undone', { kind: 'undone', response: null })
      await endUndo('undo failed', failed)
      expect((await get('undone')).run.Status).toBe('Undone')
      expect((await get('undo failed')).run.Status).toBe('UndoFailed')
      await source.advance(1)
      const purgeableIds = async (policy: RetentionPolicy): Promise<readonly string[]> =>
        (await source.purgeable(policy, FIRST_END, 10)).runs
          .map(({ TransactionID }) => TransactionID)
          .toSorted()
      expect(await purgeableIds(completedOnly)).toEqual([])
      expect(await purgeableIds({ ...nothing, completedMs: null })).toEqual([
        'undo failed',
        'undone',
      ])
    })

    it('purging a run keeps its key, realm, status and times, and removes its data, items, attempts, tags and error', async () => {
      await queue('1', { Realm: 'r1', Tags: { order: 'secret' } })
      await end('1', failed)
      const { run: before } = await get('1')
      expect(await purgeAll(nothing)).toBe(1)
      const { run, items, attempts } = await get('1')
      expect({ items, attempts }).toEqual({ items: [], attempts: [] })
      expect(run).toEqual({
        ...before,
        InitialData: null,
        LastError: null,
        Tags: null,
        PurgedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
      })
      expect(JSON.stringify(run)).not.toContain('secret')
      expect((await source.search(aSearch(process.name))).runs).toEqual([])
    })

    it('a run is purged only after the retention time for its own outcome, and never if that time is null', async () => {
      await completed('completed')
      await queue('failed')
      await end('failed', failed)
      await queue('cancelled')
      await source.operate('cancel', process, 'cancelled', null, anAct)
      await queue('active')
      expect(await purgeAll({ ...nothing, completedMs: 60_000, failedMs: 60_000 })).toBe(0)
      expect(await purgeAll(completedOnly)).toBe(1)
      expect((await get('completed')).run.PurgedAt).not.toBeNull()
      expect(await purgeAll(nothing)).toBe(2)
      expect((await get('active')).run).toMatchObject({ Status: 'Queued', PurgedAt: null })
      expect(await purgeAll({ ...nothing, process: 'OtherProcess' })).toBe(0)
    })

    it('all runs of a transaction are kept while one of them is active or younger than its retention time', async () => {
      await completed('1')
      await source.replay(process, '1', fromStart, anAct)
      expect(await purgeAll(nothing)).toBe(0)
      await end('1', failed)
      expect(await purgeAll(completedOnly)).toBe(0)
      expect(await purgeAll(nothing)).toBe(2)
    })

    it('a run is not purged if it was resumed after the check for purgeable runs', async () => {
      await queue('1')
      await source.operate('cancel', process, '1', null, anAct)
      await source.advance(2)
      const { runs } = await source.purgeable(nothing, FIRST_END, 10)
      expect(runs).toHaveLength(1)
      await source.operate('resume', process, '1', null, anAct)
      expect(await source.purge(nothing, runs)).toBe(0)
      expect((await get('1')).run.InitialData).toEqual({ secret: '1' })
    })

    it('a purged run is listed as having files until their removal is recorded, and its id is deleted only after that', async () => {
      await completed('1')
      await source.replay(process, '1', fromStart, anAct)
      await end('1', done)
      await completed('2')
      await queue('resumed')
      await source.operate('cancel', process, 'resumed', null, anAct)
      await source.advance(2)
      const { runs } = await source.purgeable(nothing, FIRST_END, 10)
      expect(runs).toHaveLength(4)
      await source.operate('resume', process, 'resumed', null, anAct)
      expect(await source.records(FILES_LEFT).rows()).toEqual([])
      expect(await source.purge(nothing, runs)).toBe(3)
      await source.advance(2)
      expect(await source.forget(0, 10)).toBe(0)
      expect(await removeFilesLeft()).toEqual(['1.0', '1.1', '2.0'])
      expect(await source.forget(0, 10)).toBe(3)
    })

    it('queueing the id of a purged run again returns its stub (the row that a purge keeps) and starts no run', async () => {
      await completed('1', { Tags: { a: 'b' } })
      await completed('2', { Realm: 'r1' })
      await purgeAll(nothing)
      const results = await source.queue(process, [
        { TransactionID: '1', InitialData: 'other data' },
        { TransactionID: '2', InitialData: { secret: '2' }, Realm: 'r2' },
      ])
      expect(results).toMatchObject([
        { outcome: 'exists', run: { Status: 'Completed', InitialData: null } },
        { outcome: 'conflict' },
      ])
      const refs = [{ process: process.name, step: 'order', isFirst: true }]
      await source.advance(contractTimes.sweepMs)
      expect(await source.due(refs, 10)).toEqual([])
    })

    it('a purged run can be neither replayed nor resumed nor cancelled', async () => {
      await queue('1')
      await end('1', failed)
      await purgeAll(nothing)
      for (const act of [
        () => source.replay(process, '1', fromStart, anAct),
        () => source.operate('resume', process, '1', null, anAct),
        () => source.operate('cancel', process, '1', 0, anAct),
      ])
        await expect(act()).rejects.toMatchObject({ code: 'transaction_purged' })
    })

    it('an id whose runs were all purged long enough ago is deleted, and can then be queued again', async () => {
      await completed('1')
      await source.replay(process, '1', fromStart, anAct)
      await end('1', done)
      await completed('2')
      expect(await source.forget(0, 10)).toBe(0)
      await purgeAll(nothing)
      await source.advance(2)
      expect(await source.forget(60_000, 10)).toBe(0)
      // The limit counts ids, and the result counts runs.
      const forgotten = new Set([await source.forget(0, 1), await source.forget(0, 1)])
      expect(forgotten).toEqual(new Set([1, 2]))
      expect(await source.get(process.name, '1', null)).toBeNull()
      expect(await queue('1')).toMatchObject([{ outcome: 'queued', run: { ReplayID: 0 } }])
      expect(await source.forget(0, 10)).toBe(0)
    })

    it('an audit reports no violation for purged runs, and does not count these runs', async () => {
      await completed('1')
      await completed('2')
      await purgeAll(nothing, 1)
      await completed('3')
      const { violations, runsByStatus } = await source.audit([process.name])
      expect(Object.values(violations).filter((count) => count !== 0)).toEqual([])
      expect(runsByStatus).toEqual({ Completed: 1 })
    })

    it('the action log has the numbers of purged runs and deleted ids, including those of an interrupted retention pass', async () => {
      for (const id of ['1', '2', '3']) await completed(id)
      await passes.begin('a killed owner', [process.name], 0)
      await purgeAll(nothing)
      await completed('4')
      await source.advance(contractTimes.leaseMs)
      expect(await passes.begin('another owner', [process.name], 0)).toMatchObject({
        kind: 'begun',
      })
      await purgeAll(nothing)
      await source.forget(0, 1)
      await passes.end('another owner', [process.name])
      const entry = {
        KeyID: RETENTION_KEY_ID,
        Person: null,
        Process: process.name,
        TransactionID: null,
        Outcome: 'done',
      }
      const actions = await readActions(source, { limit: 10 })
      expect(actions.toSorted((a, b) => (a.Action < b.Action ? -1 : 1))).toMatchObject([
        { ...entry, Action: 'forget', Reason: '1 runs' },
        { ...entry, Action: 'purge', Reason: '4 runs' },
      ])
      await passes.begin('another owner', [process.name], 0)
      await passes.end('another owner', [process.name])
      expect(await readActions(source, { limit: 10 })).toHaveLength(2)
    })

    it('a retention pass begins only when the required interval since the last completed pass is over', async () => {
      expect(await passes.begin('one', [process.name], 60_000)).toEqual({
        kind: 'begun',
        lastPassMs: null,
      })
      expect(await passes.renew('one')).toBe(true)
      await passes.end('one', [process.name])
      const waiting = await passes.begin('two', [process.name], 60_000)
      expect(waiting.kind).toBe('waiting')
      expect(waiting.lastPassMs).toBeLessThan(60_000)
      await source.advance(5)
      expect(await passes.begin('two', [process.name], 1)).toMatchObject({ kind: 'begun' })
    })

    it('purged runs do not count for the age of the oldest finished run of a process', async () => {
      const oldestMs = async (of = process.name) =>
        (await source.purgeable({ ...nothing, process: of }, FIRST_END, 1)).oldestMs
      expect(await oldestMs()).toBeNull()
      await completed('1')
      await source.advance(50)
      await completed('2')
      await source.advance(1)
      expect(await oldestMs('OtherProcess')).toBeNull()
      expect(await oldestMs()).toBeGreaterThanOrEqual(50)
      const { runs } = await source.purgeable(nothing, FIRST_END, 10)
      const older = runs.filter(({ TransactionID }) => TransactionID === '1')
      const before = await oldestMs()
      await source.purge(nothing, older)
      expect(await oldestMs()).toBeLessThan(before ?? 0)
    })
  })
}
