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
import type { ClaimedRun, Run } from './run.ts'

const { leaseMs } = contractTimes

/** Tests the leases of runs; both the memory and the PostgreSQL source must pass these tests. */
export function leasesContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a source of leases`, () => {
    let source: MovableSource
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())
    const { queue, request, claim, record } = workOn(() => source)

    describe('the leases of runs', () => {
      it('a lease is valid as long as it is renewed', async () => {
        const run = await queue('1')
        const claimed = await claim(run)
        for (let n = 0; n < 5; n += 1) {
          await source.advance(leaseMs / 3)
          expect(await source.renew([claimed.lease])).toEqual([])
        }
        expect(await source.claim(request(run, { owner: 'worker-2' }))).toEqual({
          kind: 'stale',
        })
        expect(await record(claimed, done)).toMatchObject({ StepName: 'report' })
      })

      it('the renewal of a lease reports the lease as lost if another worker has claimed the run or the run was cancelled', async () => {
        const [a, b, c] = await Promise.all(
          ['1', '2', '3'].map(async (id) => claim(await queue(id))),
        )
        if (!a || !b || !c) throw new Error('not claimed')
        await source.operate('cancel', process, '1', null, anAct)
        await record(b, done)
        expect(await source.renew([a.lease, b.lease, c.lease])).toEqual([a.lease, b.lease])
      })

      it('the recovery of an expired lease makes its run due again', async () => {
        const claimed = await claim(await queue('1'))
        await source.advance(leaseMs - MARGIN_MS)
        expect(await source.recoverExpiredLeases(10)).toEqual([])
        await source.advance(MARGIN_MS)
        const [recovered, ...others] = await source.recoverExpiredLeases(10)
        expect(others).toEqual([])
        expect(recovered).toMatchObject({ TransactionID: '1', Version: 2, Attempt: 1 })
        expect(await record(claimed, done)).toBeNull()
        expect((await claim(recovered as Run)).run.Attempt).toBe(2)
      })
    })

    describe('a run that loses its workers', () => {
      const loseWorkers = async (...runs: readonly ClaimedRun[]): Promise<Run[]> => {
        for (const run of runs) await claim(run)
        await source.advance(leaseMs)
        const recovered = await source.recoverExpiredLeases(10)
        return runs.map(
          ({ TransactionID: id }) =>
            recovered.find(({ TransactionID }) => TransactionID === id) as Run,
        )
      }
      const delayMs = ({ NextAttemptAt, UpdatedAt }: Run) =>
        Math.max(0, Date.parse(NextAttemptAt ?? '') - Date.parse(UpdatedAt))

      it('a run that has lost one worker is due at once; after the second in a row it waits for half a minute', async () => {
        const once = await loseWorkers(await queue('lost twice'), await queue('failed between'))
        expect(once).toMatchObject([
          { Status: 'Running', ErrorClass: 'worker_lost' },
          { Status: 'Running', ErrorClass: 'worker_lost' },
        ])
        expect(once.map(delayMs)).toEqual([0, 0])
        const [first, second] = once as [Run, Run]
        const failedOnce = (await record(await claim(second), failing(0))) as ClaimedRun
        const twice = await loseWorkers(first, failedOnce)
        expect(twice).toMatchObject([
          { Status: 'Retrying', Attempt: 2, ErrorClass: 'worker_lost' },
          { Status: 'Running', Attempt: 3, ErrorClass: 'worker_lost' },
        ])
        expect(twice.map(delayMs)).toEqual([30_000, 0])
      })

      it('a redelivered message claims the run of a lost worker, but not a run that has lost two', async () => {
        const first = await queue('1')
        await claim(first)
        await source.advance(leaseMs)
        const second = await claim(first)
        expect(second.run).toMatchObject({ Attempt: 2, ErrorClass: 'worker_lost' })
        await source.advance(leaseMs)
        expect((await source.claim(request(second.run))).kind).toBe('stale')
        expect(await source.due(refs, 10)).toEqual([])
        const [recovered] = await source.recoverExpiredLeases(10)
        expect(recovered).toMatchObject({ Status: 'Retrying', Attempt: 2 })
      })
    })

    describe('the doubt about a step', () => {
      const inDoubt: StepOutcome = { ...failing(0), isInDoubt: true } as StepOutcome

      it('the step of a lost worker is marked as in doubt when its run is claimed again or its lease is recovered', async () => {
        const reclaimed = await queue('reclaimed')
        const recovered = await claim(await queue('recovered'))
        expect(recovered.run.InDoubt).toBe(false)
        await claim(reclaimed)
        await source.advance(leaseMs)
        expect((await claim(reclaimed, { owner: 'worker-2' })).run.InDoubt).toBe(true)
        const [run] = await source.recoverExpiredLeases(10)
        expect(run?.InDoubt).toBe(true)
        expect((await claim(run as Run)).run.InDoubt).toBe(true)
      })

      it('a run is in doubt if the latest recorded outcome left its step in doubt', async () => {
        const queued = await queue('1')
        const first = (await record(await claim(queued), inDoubt)) as Run
        const second = await claim(first)
        expect(second.run.InDoubt).toBe(true)
        const undone = (await record(second, failing(0))) as Run
        expect((await claim(undone)).run.InDoubt).toBe(false)
        expect([queued.InDoubt, first.InDoubt, undone.InDoubt]).toEqual([false, true, false])
      })

      it('a run is no longer in doubt when its step in doubt is completed', async () => {
        const doubtful = await claim((await record(await claim(await queue('1')), inDoubt)) as Run)
        const next = await record(doubtful, done)
        expect((await claim(next as Run)).run.InDoubt).toBe(false)
      })

      it('a failed run in doubt stays in doubt after a resume, but its replay is not in doubt', async () => {
        const claimed = await claim(await queue('1'))
        await record(claimed, { ...failed, isInDoubt: true })
        const resumed = await claim(await source.operate('resume', process, '1', null, anAct))
        expect(resumed.run.InDoubt).toBe(true)
        await record(resumed, { ...failed, isInDoubt: true })
        expect((await claim(await source.replay(process, '1', fromStart, anAct))).run.InDoubt).toBe(
          false,
        )
      })

      it('a run that is cancelled during a step is marked as in doubt', async () => {
        await claim(await queue('in flight'))
        await queue('at rest')
        for (const [id, isInDoubt] of [
          ['in flight', true],
          ['at rest', false],
        ] as const) {
          await source.operate('cancel', process, id, null, anAct)
          const resumed = await source.operate('resume', process, id, null, anAct)
          expect((await claim(resumed)).run.InDoubt).toBe(isInDoubt)
        }
      })
    })
  })
}
