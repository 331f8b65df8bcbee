import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { contractTimes, MARGIN_MS, type MovableSource } from '../../test-support/movable-source.ts'
import {
  done,
  failed,
  failing,
  fromStart,
  process,
  refs,
  workOn,
} from '../../test-support/order-runs.ts'
import type { StepOutcome } from './progress.ts'
import { createPauseStore } from './pause.ts'
import type { ClaimedRun, Run } from './run.ts'
import type { ProcessOutline } from './transaction-source.ts'

const { leaseMs, sweepMs } = contractTimes

/**
 * Tests the members of the port `TransactionSource` for which there is no other contract; both the memory and the
 * PostgreSQL source must pass these tests.
 */
export function transactionSourceContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a transaction source`, () => {
    let source: MovableSource
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())
    const { queue, request, claim, record, finish } = workOn(() => source)

    it('runsAtUnknownStep() returns overdue runs at a step that their process does not have', async () => {
      await queue('known')
      const next = await record(await claim(await queue('unknown')), done)
      await record(await claim(await queue('early')), failing(60_000))
      const without = { name: process.name, steps: ['order', 'csv'] } satisfies ProcessOutline
      expect(await source.runsAtUnknownStep([without], 10)).toEqual([])
      await source.advance(sweepMs)
      expect(await source.runsAtUnknownStep([without], 10)).toMatchObject([next as ClaimedRun])
      expect(await source.runsAtUnknownStep([process], 10)).toEqual([])
      expect(await source.runsAtUnknownStep([{ ...without, name: 'Other' }], 10)).toEqual([])
    })

    describe('publishing the step messages of overdue runs', () => {
      it('due() returns an unclaimed run again and again, at growing intervals', async () => {
        const run = await queue('1')
        for (const intervalMs of [sweepMs, sweepMs, sweepMs * 2]) {
          await source.advance(intervalMs - MARGIN_MS)
          expect(await source.due(refs, 10)).toEqual([])
          await source.advance(MARGIN_MS)
          expect(await source.due(refs, 10)).toEqual([run])
        }
      })

      it('due() returns at most `limit` runs, and no run that is leased, finished, not due yet or at another step', async () => {
        const inFlight = await queue('in flight')
        await finish(await queue('over'))
        await record(await claim(await queue('early')), failing(60_000))
        await queue('a')
        await queue('b')
        await source.advance(sweepMs)
        await claim(inFlight)
        const others = refs.filter(({ step }) => step !== 'order')
        expect(await source.due(others, 10)).toEqual([])
        expect(await source.due([], 10)).toEqual([])
        const first = await source.due(refs, 1)
        const second = await source.due(refs, 10)
        const ids = [...first, ...second].map(({ TransactionID }) => TransactionID)
        expect(ids.toSorted()).toEqual(['a', 'b'])
      })

      it('if several sweepers call due() concurrently, each run is returned to only one of them', async () => {
        await Promise.all(Array.from({ length: 40 }, (_, n) => queue(String(n))))
        await source.advance(sweepMs)
        const found = await Promise.all(Array.from({ length: 8 }, () => source.due(refs, 10)))
        const ids = found.flat().map(({ TransactionID }) => TransactionID)
        expect(new Set(ids).size).toBe(ids.length)
      })
    })

    describe('replaying a transaction', () => {
      it('a replay has the initial data of the previous run, new idempotency keys and the next ReplayID', async () => {
        await finish(await queue('1', { x: 1 }))
        const replay = await source.replay(process, '1', fromStart, anAct)
        expect(replay).toMatchObject({
          ReplayID: 1,
          Status: 'Queued',
          StepName: 'order',
          InitialData: { x: 1 },
          Version: 0,
        })
        await finish(replay)
        const run = await source.get(process.name, '1', null)
        expect(run?.run.ReplayID).toBe(1)
        expect(run?.items[0]?.IdempotencyKey).toMatch(/^OrderProcess\/1\/1\//)
        expect((await source.get(process.name, '1', 0))?.run.Status).toBe('Completed')
      })

      it('a replay that begins at a later step gets copies of the items of earlier steps', async () => {
        await finish(await queue('1'))
        const replay = await source.replay(process, '1', { fromStep: 'csv', latest: null }, anAct)
        expect(replay.StepName).toBe('csv')
        const { items } = await claim(replay)
        expect(items.map(({ StepName, Data }) => ({ StepName, Data }))).toEqual(
          expect.arrayContaining([
            { StepName: 'order', Data: { a: 1 } },
            { StepName: 'report', Data: { a: 1 } },
          ]),
        )
        expect(items).toHaveLength(2)
        const run = await source.get(process.name, '1', null)
        expect(run?.items.map(({ Status }) => Status)).toEqual(['Copied', 'Copied'])
      })

      it('a replay that begins at a later step is rejected and changes nothing if an earlier step was never completed', async () => {
        await record(await claim(await queue('1')), failed)
        await expect(
          source.replay(process, '1', { fromStep: 'csv', latest: null }, anAct),
        ).rejects.toMatchObject({
          code: 'invalid_request',
        })
        expect((await source.get(process.name, '1', null))?.run.ReplayID).toBe(0)
      })

      it('a replay is rejected if the transaction is unknown or has an active run', async () => {
        await expect(source.replay(process, 'unknown', fromStart, anAct)).rejects.toMatchObject({
          code: 'transaction_not_found',
          message: `${process.name} has no transaction unknown`,
        })
        await queue('1')
        await expect(source.replay(process, '1', fromStart, anAct)).rejects.toMatchObject({
          code: 'transaction_active',
        })
      })

      it('many concurrent requests for a replay start one run', async () => {
        await finish(await queue('1'))
        const results = await Promise.allSettled(
          Array.from({ length: 10 }, () => source.replay(process, '1', fromStart, anAct)),
        )
        expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
        for (const result of results)
          if (result.status === 'rejected')
            expect(result.reason).toMatchObject({ code: 'transaction_active' })
      })
    })

    describe('resuming and cancelling a run', () => {
      it('a resumed run continues at its failed step, and counts the attempts of that step from the start', async () => {
        const next = await record(await claim(await queue('1')), done)
        await record(await claim(next as Run), failed)
        const resumed = await source.operate('resume', process, '1', null, anAct)
        expect(resumed).toMatchObject({
          ReplayID: 0,
          StepName: 'report',
          Attempt: 0,
          LastError: null,
          CompletedAt: null,
        })
        expect((await finish(resumed)).Status).toBe('Completed')
      })

      it('the outcome of a step is rejected after its run was cancelled, and the run can be resumed', async () => {
        const claimed = await claim(await queue('1'))
        expect(await source.operate('cancel', process, '1', 0, anAct)).toMatchObject({
          Status: 'Cancelled',
        })
        expect(await record(claimed, done)).toBeNull()
        expect(await source.operate('resume', process, '1', null, anAct)).toMatchObject({
          StepName: 'order',
        })
      })

      it('an active run cannot be resumed, a finished run cannot be cancelled, and an unknown run can be neither resumed nor cancelled', async () => {
        await finish(await queue('1'))
        await queue('2')
        await expect(source.operate('resume', process, '1', null, anAct)).rejects.toMatchObject({
          code: 'transaction_not_resumable',
        })
        await expect(source.operate('resume', process, '2', null, anAct)).rejects.toMatchObject({
          code: 'transaction_not_resumable',
        })
        await expect(source.operate('cancel', process, '1', null, anAct)).rejects.toMatchObject({
          code: 'transaction_not_active',
        })
        for (const change of [
          () => source.operate('resume', process, '1', 7, anAct),
          () => source.operate('cancel', process, '1', 7, anAct),
        ])
          await expect(change()).rejects.toMatchObject({
            code: 'transaction_not_found',
            message: `${process.name} has no transaction 1 with a run 7`,
          })
      })
    })

    describe('a run that waits for a credential', () => {
      it('a run that waits for a credential is due again when the credential is usable, and the attempt is not counted', async () => {
        const waiting: StepOutcome = { kind: 'waiting', credential: 'ACC-1', error: 'faulted' }
        const waitingRun = await record(await claim(await queue('1')), waiting)
        expect(waitingRun).toMatchObject({ Status: 'Waiting', Attempt: 0, WaitingFor: 'ACC-1' })
        expect(await source.claim(request(waitingRun as Run))).toEqual({ kind: 'stale' })
        expect(await source.wake('ACC-2', 10)).toEqual([])
        const [woken] = await source.wake('ACC-1', 10)
        expect(woken).toMatchObject({ TransactionID: '1', WaitingFor: null, LastError: null })
        expect(await source.wake('ACC-1', 10)).toEqual([])
        expect((await finish(woken as Run)).Status).toBe('Completed')
      })
    })

    it('a run that waits because its step called waitFor() has an error class until its next outcome is recorded', async () => {
      const waits = await record(await claim(await queue('1')), { kind: 'later', delayMs: 0 })
      expect(waits).toMatchObject({ Status: 'Retrying', Attempt: 0, ErrorClass: 'step_waits' })
      expect(waits?.LastError).toContain('waitFor')
      const stored = await source.get(process.name, '1', 0)
      expect(stored?.run).toMatchObject({ ErrorClass: 'step_waits', LastError: waits?.LastError })
      expect(stored?.attempts).toEqual([])
      const finished = await finish(stored?.run as Run)
      expect(finished).toMatchObject({ Status: 'Completed', ErrorClass: null, LastError: null })
    })

    it('failRun() fails a run only if the run has the given version', async () => {
      const run = await queue('1')
      const failedRun = await source.failRun(run, run.Version, 'transaction_id_invalid', 'why')
      expect(failedRun).toMatchObject({ Status: 'Failed', ErrorClass: 'transaction_id_invalid' })
      expect(await source.failRun(run, run.Version, 'x', 'y')).toBeNull()
    })

    it('a transaction source stores which business processes are paused', async () => {
      expect((await createPauseStore(source).paused()).size).toBe(0)
      await createPauseStore(source).setPaused('A', true, anAct)
      await createPauseStore(source).setPaused('B', true, anAct)
      await createPauseStore(source).setPaused('A', true, anAct)
      await createPauseStore(source).setPaused('B', false, anAct)
      expect([...(await createPauseStore(source).paused()).keys()]).toEqual(['A'])
    })

    it('a second pause of a process keeps the time, the person and the reason of the first pause', async () => {
      const person = { keyId: 'console', person: 'ada@example.com' }
      await createPauseStore(source).setPaused('A', true, {
        ...anAct,
        by: person,
        reason: 'the provider is down',
      })
      const first = (await createPauseStore(source).paused()).get('A')
      expect(first).toEqual({
        Process: 'A',
        PausedAt: expect.stringMatching(/^\d{4}-.*Z$/),
        PausedBy: 'ada@example.com',
        Reason: 'the provider is down',
      })
      await createPauseStore(source).setPaused('A', true, anAct)
      expect((await createPauseStore(source).paused()).get('A')).toEqual(first)
      await createPauseStore(source).setPaused('A', false, anAct)
      await createPauseStore(source).setPaused('A', true, anAct)
      expect((await createPauseStore(source).paused()).get('A')).toMatchObject({
        PausedBy: 'ops',
        Reason: null,
      })
    })

    it('audit() counts a run of an unknown business process as a violation', async () => {
      await queue('1')
      await eventually(async () => {
        const { violations, dueBySteps, runsByStatus } = await source.audit(['Another'])
        expect(runsByStatus).toEqual({ Queued: 1 })
        expect(violations).toMatchObject({ unknownProcess: 1, stuck: 0, itemAhead: 0 })
        expect(dueBySteps).toMatchObject([{ process: process.name, step: 'order', due: 1 }])
      })
    })

    it('audit() returns for each step how long its oldest claimable run has been due', async () => {
      const queuedAt = performance.now()
      const first = await queue('1')
      await source.advance(50_000)
      await queue('2')
      const audited = async () => (await source.audit([process.name])).dueBySteps
      const [both] = await audited()
      expect(both).toMatchObject({ due: 2 })
      // The oldest run has been due for 50 s. The two clocks have a resolution of 1 ms.
      expect(both?.oldestMs).toBeGreaterThan(49_998)
      expect(both?.oldestMs).toBeLessThan(performance.now() - queuedAt + 50_002)

      await claim(first)
      const [second] = await audited()
      expect(second).toMatchObject({ due: 1 })
      expect(second?.oldestMs).toBeLessThan(performance.now() - queuedAt + 2)
    })

    it('audit() counts a run as due from the time when its lease expired', async () => {
      const claimedAt = performance.now()
      await claim(await queue('1'))
      expect((await source.audit([process.name])).dueBySteps).toEqual([])
      await source.advance(leaseMs + 1_000)
      const [abandoned] = (await source.audit([process.name])).dueBySteps
      expect(abandoned).toMatchObject({ due: 1 })
      // The two clocks have a resolution of 1 ms.
      expect(abandoned?.oldestMs).toBeGreaterThan(998)
      expect(abandoned?.oldestMs).toBeLessThan(performance.now() - claimedAt + 1_002)
    })
  })
}
