import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { contractTimes, type MovableSource } from '../../test-support/movable-source.ts'
import { done, failed, process, refs, workOn } from '../../test-support/order-runs.ts'
import { type Act, readActions } from './action.ts'
import { EVENT_TIMEOUT, type EventPlace, type NewEvent } from './events.ts'
import type { StepOutcome } from './progress.ts'
import type { ClaimedRun, Run } from './run.ts'

const { leaseMs, sweepMs } = contractTimes
/** The second step of the process is an event here. */
const place: EventPlace = {
  process: process.name,
  place: 'report',
  next: 'csv',
  onTimeout: 'fail',
}
const outline = { ...process, events: ['report'] }
const parked: StepOutcome = { kind: 'parked', timeoutMs: 3_600_000, ask: { title: 'Pay 5?' } }
const approval: NewEvent = { data: { approved: true }, eventId: null }
const by: Act = { by: { keyId: 'ops', person: 'ada' }, reason: 'it is right', ifVersion: null }
const sender = { KeyID: 'ops', Person: 'ada', Reason: 'it is right', EventID: null }
const fromCsv = { fromStep: 'csv', latest: null }

/** Tests how runs wait for events; a part of the contract of the port `TransactionSource`. */
export function eventsContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a source of runs that wait for events`, () => {
    let source: MovableSource
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())
    const { queue, request, claim, record } = workOn(() => source)

    /** Returns a run that is due at the event. */
    const atEvent = async (id = '1') => (await record(await claim(await queue(id)), done)) as Run
    /** Returns a run that waits for the event. */
    const waiting = async (id = '1', outcome = parked) =>
      (await record(await claim(await atEvent(id)), outcome)) as Run
    const signal = (event: NewEvent = approval, id = '1', to = place) =>
      source.signal(to, id, null, event, by)
    const read = async (id = '1', replayId: number | null = null) => {
      const found = await source.get(process.name, id, replayId)
      if (found === null) throw new Error('there is no such run')
      return { ...found, item: found.items.find(({ StepName }) => StepName === 'report') }
    }
    const look = (run: ClaimedRun, places = [place]) => source.settleWaits(places, run)
    const sweep = (places = [place]) => source.settleWaits(places, { limit: 10 })

    it('a run that enters the place waits without lease and without an attempt, and shows what is asked', async () => {
      const run = await waiting()
      expect(run).toMatchObject({ Status: 'Waiting', WaitingFor: 'event:report', Attempt: 0 })
      const { lease, item, attempts } = await read()
      expect(lease.LeaseOwner).toBeNull()
      expect(item).toMatchObject({ Status: 'Waiting', Ask: { title: 'Pay 5?' }, Data: null })
      expect(attempts.map(({ StepName }) => StepName)).toEqual(['order'])
      expect(await look(run)).toEqual([])
    })

    it('an event moves a waiting run on to the next place, and its item shows the data and the sender', async () => {
      await waiting()
      const result = await signal()
      expect(result).toMatchObject({ isAccepted: true, hasMoved: true })
      expect(result.run).toMatchObject({ Status: 'Running', StepName: 'csv', WaitingFor: null })
      const { run, item } = await read()
      expect(item).toMatchObject({ Status: 'Completed', Data: approval.data, Sender: sender })
      const { items } = await claim(run)
      expect(items.find(({ StepName }) => StepName === 'report')).toMatchObject({
        Data: approval.data,
      })
      expect(await readActions(source, { transactionId: '1', limit: 1 })).toMatchObject([
        { Action: 'signal', KeyID: 'ops', Person: 'ada', Reason: 'it is right', Outcome: 'done' },
      ])
    })

    it('an event of the last place completes the run', async () => {
      await waiting()
      const { run } = await signal(approval, '1', { ...place, next: null })
      expect(run).toMatchObject({ Status: 'Completed', StepName: 'report', NextAttemptAt: null })
      expect(run.CompletedAt).not.toBeNull()
    })

    it('an event that arrives early is kept, also while the place is entered, and the next look moves the run on', async () => {
      const run = await atEvent()
      const claimed = await claim(run)
      const early = await signal()
      expect(early).toMatchObject({ isAccepted: true, hasMoved: false })
      expect(early.item).toMatchObject({ Status: 'Received', Data: approval.data })
      const parkedRun = (await record(claimed, parked)) as Run
      expect(parkedRun).toMatchObject({ Status: 'Waiting', WaitingFor: 'event:report' })
      expect((await read()).item).toMatchObject({ Status: 'Received', Sender: sender })
      expect(await look(parkedRun)).toMatchObject([{ Status: 'Running', StepName: 'csv' }])
      expect((await read()).item).toMatchObject({ Status: 'Completed', Data: approval.data })
      expect(await look(parkedRun)).toEqual([])
    })

    it('if the worker died before it looked once more, the sweeper moves the run on', async () => {
      const claimed = await claim(await atEvent())
      await signal()
      await record(claimed, parked)
      expect(await sweep()).toEqual([])
      await source.advance(sweepMs)
      expect(await source.due(refs, 10)).toEqual([])
      expect(await sweep()).toMatchObject([{ Status: 'Running', StepName: 'csv' }])
    })

    it('if the worker died before it recorded that the run waits, the run enters the place again and keeps the event', async () => {
      await claim(await atEvent())
      await signal()
      await source.advance(leaseMs)
      const [recovered] = await source.recoverExpiredLeases(10)
      expect(recovered).toMatchObject({ StepName: 'report', InDoubt: true })
      await expect(
        source.settle(outline, '1', null, { outcome: 'done', data: null }, anAct),
      ).rejects.toMatchObject({ code: 'transaction_not_in_doubt' })
      const run = (await record(await claim(recovered as Run), parked)) as Run
      expect(run.InDoubt).toBe(false)
      expect(await look(run)).toMatchObject([{ StepName: 'csv' }])
    })

    it('only the first event counts: a second one changes nothing and gets the first', async () => {
      await waiting()
      await signal()
      const second = await signal({ data: { approved: false }, eventId: '7' })
      expect(second).toMatchObject({ isAccepted: false, hasMoved: false })
      expect(second.item).toMatchObject({ Data: approval.data, Sender: sender })
      expect((await read()).item).toMatchObject({ Data: approval.data })
    })

    it('of many concurrent events one is accepted', async () => {
      await waiting()
      const results = await Promise.all(
        Array.from({ length: 10 }, (_, n) => signal({ data: n, eventId: null })),
      )
      const accepted = results.filter(({ isAccepted }) => isAccepted)
      expect(accepted).toHaveLength(1)
      expect((await read()).item?.Data).toEqual(accepted[0]?.item?.Data)
    })

    it('events that arrive together are decided independently of each other', async () => {
      for (const id of ['1', 'over']) await waiting(id)
      const { Version: ifVersion } = await waiting('2')
      await atEvent('early')
      await source.operate('cancel', process, 'over', null, anAct)
      const results = await Promise.allSettled([
        signal(approval, 'missing'),
        signal(approval, '1'),
        signal({ data: { approved: false }, eventId: '7' }, '1'),
        source.signal(place, '2', null, { data: 2, eventId: null }, { ...by, ifVersion: 1 }),
        source.signal(place, '2', 0, approval, { ...by, ifVersion }),
        source.signal({ ...place, place: 'csv' }, '2', null, { data: 3, eventId: null }, by),
        signal(approval, 'early'),
        signal(approval, 'over'),
      ])
      const accepted = { isAccepted: true, item: { Data: approval.data, Sender: sender } }
      expect(
        results.map((result) => ('value' in result ? result.value : result.reason)),
      ).toMatchObject([
        { code: 'transaction_not_found' },
        { ...accepted, hasMoved: true, run: { TransactionID: '1', StepName: 'csv' } },
        { isAccepted: false, hasMoved: false, item: { Data: approval.data } },
        { code: 'version_moved' },
        { ...accepted, hasMoved: true, run: { TransactionID: '2', StepName: 'csv' } },
        { isAccepted: true, hasMoved: false, item: { StepName: 'csv', Status: 'Received' } },
        { ...accepted, hasMoved: false, run: { TransactionID: 'early', StepName: 'report' } },
        { isAccepted: false, hasMoved: false, run: { Status: 'Cancelled' } },
      ])
      expect((await read('1')).item).toMatchObject({ Status: 'Completed', Data: approval.data })
      expect((await read('early')).item).toMatchObject({ Status: 'Received' })
      const actions = await readActions(source, { limit: 20 })
      const signals = actions.filter(({ Action: kind }) => kind === 'signal')
      const ids = signals.map(({ TransactionID }): string => String(TransactionID))
      expect(ids.toSorted()).toEqual(['1', '2', '2', 'early'])
    })

    it('of an event and a cancel at the same time, the first one decides', async () => {
      const ids = Array.from({ length: 20 }, (_, n) => `${n}`)
      const runs = await Promise.all(ids.map((id) => waiting(id)))
      const send = (id: string) => signal(approval, id)
      const cancel = (id: string) => source.operate('cancel', process, id, null, anAct)
      const results = await Promise.all(
        ids.map(async (id, n) => {
          if (n % 2 === 0) return (await Promise.all([send(id), cancel(id)]))[0]
          return (await Promise.all([cancel(id), send(id)]))[1]
        }),
      )
      for (const [n, { isAccepted, hasMoved }] of results.entries()) {
        const { run, item } = await read(ids[n])
        expect(hasMoved).toBe(isAccepted)
        expect(run.Status).toBe('Cancelled')
        expect(run.Version).toBe(Number(runs[n]?.Version) + (isAccepted ? 2 : 1))
        expect(item).toMatchObject(
          isAccepted
            ? { Status: 'Completed', Data: approval.data }
            : { Status: 'Cancelled', Data: null },
        )
      }
    })

    it('if a run becomes waiting while events arrive, the run moves on exactly once', async () => {
      const ids = Array.from({ length: 20 }, (_, n) => `${n}`)
      const claims = await Promise.all(ids.map(async (id) => claim(await atEvent(id))))
      await Promise.all(
        claims.map(async (claimed, n) => {
          const id = `${n}`
          await Promise.all([signal(approval, id), record(claimed, parked)])
          await look(claimed.run)
        }),
      )
      for (const id of ids) {
        const { run, item } = await read(id)
        expect(run).toMatchObject({ Status: 'Running', StepName: 'csv', Version: 5 })
        expect(item?.Status).toBe('Completed')
      }
    })

    it('a run whose time is over fails, and a resume waits again with a new time', async () => {
      const run = await waiting()
      await look(run)
      await source.advance(3_600_000)
      expect(await sweep()).toMatchObject([
        { Status: 'Failed', ErrorClass: EVENT_TIMEOUT, WaitingFor: null },
      ])
      expect((await read()).item).toMatchObject({ Status: 'Failed', Error: EVENT_TIMEOUT })
      const resumed = await source.operate('resume', outline, '1', null, anAct)
      const again = (await record(await claim(resumed), parked)) as Run
      expect(again).toMatchObject({ Status: 'Waiting', WaitingFor: 'event:report' })
      expect(await look(again)).toEqual([])
      expect(await signal()).toMatchObject({ isAccepted: true, hasMoved: true })
    })

    it('a run whose time is over goes on without data if the place says so', async () => {
      const continuing: EventPlace = { ...place, onTimeout: 'continue' }
      const run = await waiting()
      await look(run, [continuing])
      await source.advance(3_600_000)
      expect(await sweep([continuing])).toMatchObject([{ Status: 'Running', StepName: 'csv' }])
      const { item } = await read()
      expect(item).toMatchObject({ Status: 'Completed', Data: null, Error: EVENT_TIMEOUT })
      expect(item?.Sender).toBeUndefined()
      expect(await signal()).toMatchObject({ isAccepted: false })
    })

    it('the sweeper looks at a waiting run once, and then not before its time is over', async () => {
      const run = await waiting('1', { kind: 'parked', timeoutMs: null, ask: null })
      expect(run.NextAttemptAt).toBeNull()
      await source.advance(sweepMs)
      expect(await sweep()).toEqual([])
      await source.advance(3_600_000)
      expect(await source.due(refs, 10)).toEqual([])
      expect((await read()).run).toMatchObject({ Status: 'Waiting', Version: run.Version })
    })

    it('a waiting run cannot be claimed or retried', async () => {
      const run = await waiting()
      expect(await source.claim(request(run))).toMatchObject({ kind: 'stale' })
      await expect(source.operate('retry', process, '1', null, anAct)).rejects.toMatchObject({
        code: 'transaction_not_retryable',
      })
    })

    it('a cancelled run accepts no event, and a resume keeps one that was received', async () => {
      const run = await atEvent()
      await signal()
      await source.operate('cancel', process, '1', null, anAct)
      expect(await signal({ data: 2, eventId: null })).toMatchObject({ isAccepted: false })
      const resumed = await source.operate('resume', outline, '1', null, anAct)
      expect(run.ReplayID).toBe(resumed.ReplayID)
      const again = (await record(await claim(resumed), parked)) as Run
      expect(await look(again)).toMatchObject([{ StepName: 'csv' }])
      await waiting('2')
      await source.operate('cancel', process, '2', null, anAct)
      expect(await signal(approval, '2')).toMatchObject({
        isAccepted: false,
        run: { Status: 'Cancelled' },
        item: { Status: 'Cancelled', FinishedAt: expect.any(String) },
      })
      const waitsAgain = await source.operate('resume', outline, '2', null, anAct)
      await record(await claim(waitsAgain), parked)
      expect((await read('2')).item).toMatchObject({ Status: 'Waiting', FinishedAt: null })
    })

    it('the place of a run that fails while it waits has failed with it', async () => {
      const run = await waiting()
      await source.failRun(run, run.Version, 'object_deleted', 'gone', 'report')
      expect(await read()).toMatchObject({
        run: { Status: 'Undoing' },
        item: { Status: 'Failed', Error: 'object_deleted' },
      })
    })

    it('an event that was received early survives a failure at its place', async () => {
      const claimed = await claim(await atEvent())
      await signal()
      await record(claimed, failed)
      expect((await read()).item).toMatchObject({ Status: 'Received', Data: approval.data })
      expect((await read()).run.Status).toBe('Failed')
    })

    it('a replay copies the event only if it starts at a later place', async () => {
      await waiting()
      await signal()
      await record(await claim((await read()).run), done)
      const later = await source.replay(outline, '1', fromCsv, anAct)
      expect((await read('1', later.ReplayID)).item).toMatchObject({
        Status: 'Copied',
        Data: approval.data,
        Sender: sender,
      })
      expect(await source.signal(place, '1', 0, approval, by)).toMatchObject({ isAccepted: false })
      await source.operate('cancel', process, '1', null, anAct)
      const fromPlace = { fromStep: 'report', latest: null }
      const earlier = await source.replay(outline, '1', fromPlace, anAct)
      expect((await read('1', earlier.ReplayID)).item).toBeUndefined()
    })

    it('an erasure removes the data and the sender of an event', async () => {
      await waiting()
      await signal()
      await source.operate('cancel', process, '1', null, anAct)
      const { run } = await read()
      await source.erase([{ ...run, filesLeft: false }], anAct)
      const { item } = await read()
      expect(item).toMatchObject({ Status: 'Completed', Data: null })
      expect(item?.Sender).toBeUndefined()
    })

    it('an event for an unknown transaction is rejected', async () => {
      await expect(signal(approval, 'other')).rejects.toMatchObject({
        code: 'transaction_not_found',
      })
    })
  })
}
