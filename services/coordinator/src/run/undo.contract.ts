import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { contractTimes, type MovableSource } from '../../test-support/movable-source.ts'
import { done, failed, failing, process, refs, workOn } from '../../test-support/order-runs.ts'
import type { StepOutcome } from './progress.ts'
import { defaultRetryPolicy } from './retry-policy.ts'
import { type ClaimedRun, type Run, runKey } from './run.ts'
import { WHOLE_PROCESS } from './slots.ts'
import type { Claim } from './transaction-source.ts'
import { LOST_BASE_MS } from './transitions.ts'
import { advanceUndo, STEP_IN_DOUBT } from './undo.ts'
import { readActions } from './action.ts'

const { leaseMs, sweepMs } = contractTimes
const undone: StepOutcome = { kind: 'undone', response: { status: 204, body: '' } }
const left: StepOutcome = { kind: 'left' }
const faulted: StepOutcome = { kind: 'waiting', credential: 'ACC-1', error: 'faulted' }
const undoable = ['order', 'report']

/** Tests how runs are undone; a part of the contract of the port `TransactionSource`. */
export function undoContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a source of runs that are undone`, () => {
    let source: MovableSource
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())
    const { queue, request, claim, record, finish } = workOn(() => source)

    const undo = (id = '1', replayId: number | null = null) =>
      source.operate('undo', process, id, replayId, anAct)
    /** Records the outcome of an undo. */
    const recordUndo = async ({ lease, run, items }: Claim, outcome: StepOutcome) => {
      const options = { policy: defaultRetryPolicy, random: 0.5, events: [], undoable, items }
      const moved = await source.record(
        lease,
        advanceUndo(run, outcome, { ...options, steps: process.steps, mayContinue: false }),
      )
      return moved === null ? null : { ...run, ...moved }
    }
    const work = async (run: ClaimedRun, outcome: StepOutcome) =>
      (await recordUndo(await claim(run), outcome)) as ClaimedRun
    /** Returns the run that is due to undo the step `report`. */
    const atReport = async () => {
      await finish(await queue('1'))
      return work(await undo(), left)
    }
    const read = async (id = '1', replayId: number | null = null) => {
      const found = await source.get(process.name, id, replayId)
      if (found === null) throw new Error('there is no such run')
      return {
        ...found,
        statuses: Object.fromEntries(found.items.map((item) => [item.StepName, item.Status])),
      }
    }

    it('a completed run is undone step by step, keeps the data of its items, and names the step that is left', async () => {
      const completed = await finish(await queue('1'))
      const begun = await undo()
      expect(begun).toMatchObject({
        Status: 'Undoing',
        StepName: 'csv',
        Version: completed.Version + 1,
        Attempt: 0,
        CompletedAt: null,
      })
      const first = await claim(begun)
      expect(first.run.Status).toBe('Undoing')
      expect(first.items.map(({ StepName }) => StepName).toSorted()).toEqual([
        'csv',
        'order',
        'report',
      ])
      const second = (await recordUndo(first, left)) as ClaimedRun
      expect(second).toMatchObject({ Status: 'Undoing', StepName: 'report', Attempt: 0 })
      const third = await work(second, undone)
      expect(third).toMatchObject({ Status: 'Undoing', StepName: 'order' })
      const claimed = await claim(third)
      expect(claimed.items.map(({ StepName }) => StepName).toSorted()).toEqual(['csv', 'order'])
      const end = await recordUndo(claimed, undone)
      expect(end).toMatchObject({
        Status: 'Undone',
        LastError: 'not undone, because they have no undo: csv',
        NextAttemptAt: null,
      })
      const { statuses, items, attempts, run } = await read()
      expect(run.CompletedAt).not.toBeNull()
      expect(statuses).toEqual({ order: 'Undone', report: 'Undone', csv: 'Completed' })
      expect(items.find(({ StepName }) => StepName === 'order')).toMatchObject({
        Data: { a: 1 },
        ResponseBody: '{"a":1}',
        ResponseStatus: 200,
        IdempotencyKey: 'OrderProcess/1/0/order',
      })
      expect(
        attempts.map(({ StepName, Outcome, ResponseStatus }) => [
          StepName,
          Outcome,
          ResponseStatus,
        ]),
      ).toEqual([
        ['order', 'completed', 200],
        ['report', 'completed', 200],
        ['csv', 'completed', 200],
        ['report', 'undone', 204],
        ['order', 'undone', 204],
      ])
      expect(await readActions(source, { transactionId: '1', limit: 1 })).toMatchObject([
        { Action: 'undo', Outcome: 'done' },
      ])
    })

    it('only the latest run can be undone, and only if it is failed, cancelled or completed', async () => {
      const rejected = { code: 'transaction_not_undoable' }
      const active = await queue('1')
      await expect(undo()).rejects.toMatchObject(rejected)
      await source.operate('cancel', process, '1', null, anAct)
      const replay = await source.replay(process, '1', { fromStep: null, latest: null }, anAct)
      await expect(undo('1', 0)).rejects.toMatchObject(rejected)
      await record(await claim(replay), failed)
      const begun = await undo()
      expect(begun).toMatchObject({ ReplayID: 1, LastError: 'no', ErrorClass: 'http_400' })
      await expect(undo()).rejects.toMatchObject(rejected)
      await expect(source.operate('resume', process, '1', null, anAct)).rejects.toMatchObject({
        code: 'transaction_not_resumable',
      })
      await expect(
        source.replay(process, '1', { fromStep: null, latest: null }, anAct),
      ).rejects.toMatchObject({ code: 'transaction_active' })
      expect(await work(begun, left)).toMatchObject({ Status: 'Undone', LastError: 'no' })
      await expect(undo()).rejects.toMatchObject(rejected)
      await expect(source.operate('resume', process, '1', null, anAct)).rejects.toMatchObject({
        code: 'transaction_not_resumable',
      })
      expect(active.ReplayID).toBe(0)
    })

    it('an erased or purged run cannot be undone', async () => {
      for (const id of ['1', '2']) {
        await record(await claim(await queue(id)), failed)
        const key = { Process: process.name, TransactionID: id, ReplayID: 0 }
        if (id === '1') expect(await source.erase([(await read()).run], anAct)).toBe(1)
        else {
          const policy = { process: process.name, completedMs: 1, failedMs: 1 }
          await source.advance(10)
          expect(await source.purge(policy, [key])).toBe(1)
        }
      }
      await expect(undo('1')).rejects.toMatchObject({ code: 'transaction_erased' })
      await expect(undo('2')).rejects.toMatchObject({ code: 'transaction_purged' })
    })

    it('a failed attempt of an undo leaves the item as it was; without attempts left, a resume goes on', async () => {
      const waiting = await work(await atReport(), failing(20_000))
      expect(waiting).toMatchObject({ Status: 'Undoing', Attempt: 1, ErrorClass: 'http_503' })
      expect((await read()).statuses['report']).toBe('Completed')
      expect(await source.claim(request(waiting))).toMatchObject({ kind: 'early' })
      const retried = await source.operate('retry', process, '1', null, anAct)
      expect(retried).toMatchObject({ Status: 'Undoing', Attempt: 1 })
      const ended = await work(retried, failed)
      expect(ended).toMatchObject({ Status: 'UndoFailed', StepName: 'report', LastError: 'no' })
      expect((await read()).statuses['report']).toBe('Completed')
      const resumed = await source.operate('resume', process, '1', null, anAct)
      expect(resumed).toMatchObject({ Status: 'Undoing', StepName: 'report', Attempt: 0 })
      expect(await work(resumed, undone)).toMatchObject({ Status: 'Undoing', StepName: 'order' })
    })

    it('waits for a credential as Undoing, and is due again when the credential is usable', async () => {
      const waiting = await work(await atReport(), faulted)
      expect(waiting).toMatchObject({ Status: 'Undoing', WaitingFor: 'ACC-1', Attempt: 0 })
      expect((await source.claim(request(waiting))).kind).toBe('stale')
      const [woken] = await source.wake('ACC-1', 10)
      expect(woken).toMatchObject({ Status: 'Undoing', WaitingFor: null })
      expect(await work(woken as Run, undone)).toMatchObject({ StepName: 'order' })
    })

    it('an undo whose worker is lost is in doubt and due again, and waits after two lost workers in a row', async () => {
      const first = await claim(await atReport())
      await source.advance(leaseMs)
      const [recovered] = await source.recoverExpiredLeases(10)
      expect(recovered).toMatchObject({ Status: 'Undoing', InDoubt: true, StepName: 'report' })
      expect(await recordUndo(first, undone)).toBeNull()
      await claim(recovered as Run)
      await source.advance(leaseMs)
      const [later] = await source.recoverExpiredLeases(10)
      expect(later).toMatchObject({ Status: 'Undoing', ErrorClass: 'worker_lost' })
      await source.advance(LOST_BASE_MS)
      const next = await work(later as Run, undone)
      expect(next).toMatchObject({ StepName: 'order', InDoubt: false, ErrorClass: null })
    })

    it('a worker that is lost at a step without a finished item leaves no doubt, because it has called nothing', async () => {
      await record(await claim(await queue('1')), { ...failed, undo: true })
      const before = (await read()).run
      const first = await claim(before)
      await source.advance(leaseMs)
      const takenOver = await claim(before)
      expect([first.run.InDoubt, takenOver.run.InDoubt]).toEqual([false, false])
      await source.advance(leaseMs)
      const [recovered] = await source.recoverExpiredLeases(10)
      expect(recovered).toMatchObject({ Status: 'Undoing', InDoubt: false })
      const { attempts } = await read()
      expect(attempts.map(({ Outcome }) => Outcome)).toEqual(['http_400', 'in_doubt', 'in_doubt'])
    })

    it('a child that is cancelled at a step without a finished item leaves no doubt', async () => {
      const parent = await claim(await queue('parent'))
      const child = { TransactionID: 'child', InitialData: null, Realm: null, ConcurrencyKey: null }
      const place = { Place: 'order', Prefix: '', Total: 1, Tolerated: 0, Concurrent: null }
      await source.recordChildren(
        parent.lease,
        { ...place, process, children: [{ ...child, Item: 0 }] },
        () => ({
          status: 'Waiting',
          stepName: 'order',
          attempt: 0,
          delayMs: null,
          waitingFor: 'children:order',
          lastError: null,
          errorClass: null,
          isInDoubt: false,
          item: { status: 'Waiting', response: null, data: null, error: null, ask: null },
        }),
      )
      await record(await claim((await read('child')).run), { ...failed, undo: true })
      await claim((await read('child')).run)
      const family = { ...runKey(parent.run), Place: 'order' }
      expect(
        await source.cancelChildren([{ ...family, which: 'active', isCascade: false }], 10),
      ).toMatchObject([{ Status: 'UndoFailed', InDoubt: false }])
    })

    it('is returned by the sweeper', async () => {
      await atReport()
      await source.advance(sweepMs)
      expect(await source.due(refs, 10)).toMatchObject([{ Status: 'Undoing', StepName: 'report' }])
    })

    it('needs no slot, and leaves the slot of its run to another one', async () => {
      const slot = { limit: 1, key: WHOLE_PROCESS }
      const run = await queue('1')
      await record(await claim(run, { slot }), failed)
      const other = await queue('2')
      await claim(other, { slot })
      const begun = await undo()
      expect((await claim(begun, { slot })).run.Status).toBe('Undoing')
    })

    it('has no deadline', async () => {
      const terms = { ...process, deadlineMs: 60_000 }
      await source.queue(terms, [{ TransactionID: '1', InitialData: 1 }])
      await source.operate('cancel', process, '1', null, anAct)
      const begun = await undo()
      await source.advance(61_000)
      expect(await source.failPastDeadline(10)).toEqual([])
      expect(await work(begun, left)).toMatchObject({ Status: 'Undone' })
    })

    it('begins at the deadline of a process that is undone if it fails', async () => {
      const terms = { ...process, deadlineMs: 60_000 }
      for (const id of ['1', '2']) {
        await source.queue(terms, [{ TransactionID: id, InitialData: 1 }])
        await source.advance(61_000)
        const named = id === '1' ? [process.name] : ['Other']
        const [ended] = await source.failPastDeadline(10, named)
        expect(ended).toMatchObject({
          Status: id === '1' ? 'Undoing' : 'Failed',
          ErrorClass: 'deadline_exceeded',
        })
        expect(ended?.CompletedAt === null).toBe(id === '1')
      }
      expect(await work((await read()).run, left)).toMatchObject({ Status: 'Undone' })
    })

    it('begins when an event does not arrive in time, and accepts no event then', async () => {
      const place = {
        process: process.name,
        place: 'report',
        next: 'csv',
        onTimeout: 'undo',
      } as const
      const atEvent = (await record(await claim(await queue('1')), done)) as Run
      await record(await claim(atEvent), { kind: 'parked', timeoutMs: 1_000, ask: null })
      await source.advance(sweepMs)
      const [begun] = await source.settleWaits([place], { limit: 10 })
      expect(begun).toMatchObject({ Status: 'Undoing', ErrorClass: 'event_timeout' })
      const event = { data: 1, eventId: null }
      expect((await source.signal(place, '1', null, event, anAct)).isAccepted).toBe(false)
      expect(await work(begun as Run, left)).toMatchObject({ Status: 'Undoing', StepName: 'order' })
    })

    it('ends as UndoFailed if it is cancelled, or if its step is unknown', async () => {
      const begun = await atReport()
      const claimed = await claim(begun)
      const cancelled = await source.operate('cancel', process, '1', null, anAct)
      expect(cancelled).toMatchObject({
        Status: 'UndoFailed',
        ErrorClass: 'undo_cancelled',
        InDoubt: true,
      })
      expect(await recordUndo(claimed, undone)).toBeNull()
      const resumed = await source.operate('resume', process, '1', null, anAct)
      expect(await source.failRun(resumed, resumed.Version, 'step_unknown', 'gone')).toMatchObject({
        Status: 'UndoFailed',
        ErrorClass: 'step_unknown',
      })
    })

    it('begins at a given step when a run fails that no worker can continue, unless another step is in doubt', async () => {
      const queued = await queue('1')
      const before = (await record(await claim(queued), done)) as Run
      const fail = (run: Run, undoAt: string) =>
        source.failRun(run, run.Version, 'step_unknown', 'gone', undoAt)
      const begun = (await fail(before, 'csv')) as Run
      expect(begun).toMatchObject({
        Status: 'Undoing',
        StepName: 'csv',
        ErrorClass: 'step_unknown',
        LastError: 'gone',
        Attempt: 0,
        InDoubt: false,
        CompletedAt: null,
      })
      // The undo itself arrives at a step that the process does not have any more. It keeps its reason.
      const moved = await source.failRun(begun, begun.Version, 'step_unknown', 'later', 'report')
      expect(moved).toMatchObject({ Status: 'Undoing', StepName: 'report', LastError: 'gone' })
      expect(await work(moved as Run, left)).toMatchObject({ StepName: 'order' })
      const other = await claim(await queue('2'))
      await source.advance(leaseMs + 1)
      const doubtful = { ...other.run, Version: other.lease.version } as Run
      expect(await fail(doubtful, 'csv')).toMatchObject({
        Status: 'UndoFailed',
        StepName: 'order',
        InDoubt: true,
      })
      const third = await claim(await queue('3'))
      await source.advance(leaseMs + 1)
      const same = { ...third.run, Version: third.lease.version } as Run
      expect(await fail(same, 'order')).toMatchObject({ Status: 'Undoing', InDoubt: true })
    })

    it.each([
      ['done', 'Completed', 'report'],
      ['not_done', 'Failed', 'order'],
    ] as const)(
      'goes on after a step in doubt is settled as %s',
      async (outcome, status, following) => {
        const before = (await record(await claim(await queue('1')), done)) as Run
        await record(await claim(before), { ...failed, isInDoubt: true, undo: true })
        const begun = (await read()).run
        expect(begun).toMatchObject({ Status: 'Undoing', StepName: 'report', InDoubt: true })
        const inDoubt = { ...failed, errorClass: STEP_IN_DOUBT, isInDoubt: true }
        const stopped = await work(begun, inDoubt)
        expect(stopped).toMatchObject({ Status: 'UndoFailed', InDoubt: true })
        const settlement = outcome === 'done' ? { outcome, data: { b: 2 } } : { outcome }
        const settled = await source.settle(process, '1', null, settlement, anAct)
        expect(settled).toMatchObject({ Status: 'Undoing', StepName: 'report', InDoubt: false })
        const { statuses, attempts } = await read()
        expect(statuses['report']).toBe(status)
        expect(attempts.map(({ Outcome }) => Outcome)).toEqual(['completed', 'http_400'])
        const claimed = await claim(settled)
        const item = claimed.items.find(({ StepName }) => StepName === 'report')
        expect(item?.Data).toEqual(outcome === 'done' ? { b: 2 } : undefined)
        const next = await recordUndo(claimed, outcome === 'done' ? failing(0) : left)
        expect(next).toMatchObject({ Status: 'Undoing', StepName: following })
      },
    )

    it('completes a step in doubt that `confirm` has found, and undoes it next', async () => {
      await record(await claim(await queue('1')), { ...failed, isInDoubt: true, undo: true })
      const found = await work((await read()).run, done)
      expect(found).toMatchObject({ Status: 'Undoing', StepName: 'order', InDoubt: false })
      expect((await read()).statuses['order']).toBe('Completed')
      expect(await work(found, undone)).toMatchObject({ Status: 'Undone', LastError: 'no' })
      expect((await read()).attempts.map(({ Outcome }) => Outcome)).toEqual([
        'http_400',
        'completed',
        'undone',
      ])
    })

    it.each(['done', 'not_done'] as const)(
      'goes on after an undo in doubt is settled as %s',
      async (outcome) => {
        await work(await atReport(), { ...failed, isInDoubt: true })
        const settlement = outcome === 'done' ? { outcome, data: 9 } : { outcome }
        const settled = await source.settle(process, '1', null, settlement, anAct)
        expect(settled).toMatchObject({ Status: 'Undoing', StepName: 'report', InDoubt: false })
        const { items } = await read()
        expect(items.find(({ StepName }) => StepName === 'report')).toMatchObject({
          Status: outcome === 'done' ? 'Undone' : 'Completed',
          Data: { a: 1 },
        })
      },
    )

    it('undoes copied items; a replay copies no item that was undone', async () => {
      await finish(await queue('1'))
      const replay = await source.replay(process, '1', { fromStep: 'csv', latest: null }, anAct)
      await record(await claim(replay), { ...failed, undo: true })
      const begun = await work((await read()).run, left)
      expect(begun).toMatchObject({ Status: 'Undoing', StepName: 'report', ReplayID: 1 })
      await work(await work(begun, undone), undone)
      expect((await read()).statuses).toEqual({
        order: 'Undone',
        report: 'Undone',
        csv: 'Failed',
      })
      expect((await read('1', 0)).statuses['order']).toBe('Completed')
      await expect(
        source.replay(process, '1', { fromStep: 'csv', latest: null }, anAct),
      ).rejects.toMatchObject({ code: 'invalid_request' })
      const again = await source.replay(process, '1', { fromStep: null, latest: null }, anAct)
      expect(again).toMatchObject({ Status: 'Queued', StepName: 'order', ReplayID: 2 })
    })
  })
}
