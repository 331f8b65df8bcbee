import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { contractTimes, MARGIN_MS, type MovableSource } from '../../test-support/movable-source.ts'
import { aSearch } from '../../test-support/search.ts'
import { advance, type StepOutcome } from '../process/progress.ts'
import { defaultRetryPolicy } from '../process/retry-policy.ts'
import type { ClaimedRun, Run } from './run.ts'
import type { Claim, ClaimRequest, ProcessOutline, StepRef } from './transaction-source.ts'

const { leaseMs, sweepMs } = contractTimes
const process: ProcessOutline = { name: 'OrderProcess', steps: ['order', 'report', 'csv'] }
const refs: StepRef[] = process.steps.map((step, index) => ({
  process: process.name,
  step,
  isFirst: index === 0,
}))
const done: StepOutcome = {
  kind: 'completed',
  response: { status: 200, body: '{"a":1}' },
  data: { a: 1 },
  endsRun: false,
}

const fromStart = { fromStep: null, latest: null }

/** The contract of the port `TransactionSource`; both the memory and the PostgreSQL source must pass it. */
export function transactionSourceContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a transaction source`, () => {
    let source: MovableSource
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())

    const queue = async (id: string, data: unknown = id): Promise<Run> => {
      const [result] = await source.queue(process, [
        { TransactionID: id, InitialData: data as string },
      ])
      if (result === undefined || result.outcome === 'conflict') throw new Error('not queued')
      return result.run
    }
    const request = (run: ClaimedRun, overrides: Partial<ClaimRequest> = {}): ClaimRequest => {
      const step = overrides.step ?? (run.StepName || 'order')
      return {
        Process: run.Process,
        TransactionID: run.TransactionID,
        ReplayID: run.ReplayID,
        version: run.Version,
        step,
        isFirst: step === 'order',
        owner: 'worker-1',
        ...overrides,
      }
    }
    const claim = async (
      run: ClaimedRun,
      overrides: Partial<ClaimRequest> = {},
    ): Promise<Claim> => {
      const result = await source.claim(request(run, overrides))
      if (result.kind !== 'claimed') throw new Error(`not claimed: ${result.kind}`)
      return result.claim
    }
    const record = async (
      { lease, run }: Claim,
      outcome: StepOutcome,
    ): Promise<ClaimedRun | null> => {
      const course = { steps: process.steps, policy: defaultRetryPolicy, random: 0.5 }
      const moved = await source.record(lease, advance(run, outcome, course))
      return moved === null ? null : { ...run, ...moved }
    }
    const finish = async (run: ClaimedRun): Promise<ClaimedRun> => {
      let current = run
      while (current.Status !== 'Completed')
        current = (await record(await claim(current), done)) as ClaimedRun
      return current
    }
    const failing = (retryAfterMs: number): StepOutcome => ({
      kind: 'retry',
      errorClass: 'http_503',
      error: 'GET x responded with 503',
      response: { status: 503, body: 'busy' },
      retryAfterMs,
    })
    const failed: StepOutcome = {
      kind: 'failed',
      errorClass: 'http_400',
      error: 'no',
      response: null,
    }

    describe('queueing transactions', () => {
      it('a transaction source stores any JSON as initial data unchanged', async () => {
        for (const data of ['66', 66, null, true, ['a', { b: null }], { 'ä "': 1.5 }]) {
          const id = JSON.stringify(data)
          expect(await queue(id, data)).toMatchObject({ Status: 'Queued', InitialData: data })
          expect((await source.get(process.name, id, null))?.run.InitialData).toEqual(data)
        }
      })

      it('queueing an id again is reported as existing with equal data, and as a conflict with other data or another realm', async () => {
        const data = { b: 1, a: [2] }
        await queue('1', data)
        const results = await source.queue(process, [
          { TransactionID: '1', InitialData: { a: [2], b: 1 } },
          { TransactionID: '1', InitialData: { a: [2] } },
          { TransactionID: '1', InitialData: data, Realm: 'r1' },
          { TransactionID: '2', InitialData: 'x' },
          { TransactionID: '2', InitialData: 'x' },
          { TransactionID: '2', InitialData: 'y' },
        ])
        expect(results.map(({ outcome }) => outcome)).toEqual([
          'exists',
          'conflict',
          'conflict',
          'queued',
          'exists',
          'conflict',
        ])
      })

      it('if a run was claimed when it was queued and its worker is lost, the run continues after the lease has expired', async () => {
        const start = { owner: 'worker-1', limit: 1 }
        const transactions = ['1', '2'].map((TransactionID) => ({
          TransactionID,
          InitialData: 'x',
        }))
        const by = { keyId: 'k', person: null }
        const [first, second] = await source.queue(process, transactions, by, start)
        expect(first).toMatchObject({
          outcome: 'queued',
          run: { Status: 'Queued', Version: 0, Attempt: 0 },
          claim: {
            lease: { TransactionID: '1', step: 'order', version: 1, attempt: 1, owner: 'worker-1' },
            run: { Status: 'Running', StepName: 'order', InitialData: 'x', InDoubt: false },
            items: [],
          },
        })
        expect(second).toMatchObject({ outcome: 'queued', run: { Version: 0 } })
        expect(second?.claim).toBeUndefined()
        const taken = await source.claim(request(first?.run as Run))
        expect(taken.kind).toBe('stale')
        expect(
          (await finish((await record(first?.claim as Claim, done)) as ClaimedRun)).Version,
        ).toBe(6)
        expect((await finish(second?.run as Run)).Version).toBe(6)

        const [lost] = await source.queue(
          process,
          [{ TransactionID: '3', InitialData: 'x' }],
          undefined,
          start,
        )
        await source.advance(leaseMs)
        expect(await source.recoverExpiredLeases(10)).toHaveLength(1)
        expect(await record(lost?.claim as Claim, done)).toBeNull()
        const { run, attempts } = (await source.get(process.name, '3', 0)) ?? {}
        expect(run).toMatchObject({ Status: 'Running', Version: 2, InDoubt: true })
        expect(attempts).toMatchObject([{ StepName: 'order', Attempt: 1, Outcome: 'in_doubt' }])
      })

      it('a delayed, debounced or existing transaction is not claimed when it is queued', async () => {
        await queue('known', 'x')
        const results = await source.queue(
          process,
          [
            { TransactionID: 'known', InitialData: 'x' },
            { TransactionID: 'delayed', InitialData: 'x', NotBefore: 60 },
            { TransactionID: 'debounced', InitialData: 'x', Debounce: { Key: 'k', Seconds: 60 } },
            { TransactionID: 'now', InitialData: 'x' },
          ],
          undefined,
          { owner: 'worker-1', limit: 10 },
        )
        expect(results.map((result) => [result.outcome, result.claim !== undefined])).toEqual([
          ['exists', false],
          ['queued', false],
          ['queued', false],
          ['queued', true],
        ])
        expect((await source.get(process.name, 'delayed', 0))?.run.Status).toBe('Queued')
      })

      it('tags are stored, and every replay keeps them', async () => {
        const tags = { order: 'A-7', 'ä "': '' }
        const [queued] = await source.queue(process, [
          { TransactionID: '1', InitialData: 1, Tags: tags },
          { TransactionID: '2', InitialData: 1, Tags: {} },
        ])
        expect(queued).toMatchObject({ outcome: 'queued', run: { Tags: tags } })
        expect((await source.get(process.name, '2', null))?.run.Tags).toBeNull()
        await source.cancel(process.name, '1', null, anAct)
        await source.replay(process, '1', fromStart, anAct)
        const { run } = (await source.get(process.name, '1', 1)) ?? {}
        expect(run).toMatchObject({
          Tags: tags,
          InputChanged: false,
          ErasedAt: null,
          PurgedAt: null,
        })
      })

      it('queueing an id again is a conflict if the tags differ; no tags and an empty tag object are equal', async () => {
        const one = { TransactionID: '1', InitialData: 1 }
        await source.queue(process, [{ ...one, Tags: { a: '1' } }])
        const results = await source.queue(process, [
          { ...one, Tags: { a: '1' } },
          { ...one, Tags: { a: '2' } },
          one,
          { ...one, TransactionID: '2' },
          { ...one, TransactionID: '2', Tags: {} },
        ])
        const outcomes = ['exists', 'conflict', 'conflict', 'queued', 'exists']
        expect(results.map(({ outcome }) => outcome)).toEqual(outcomes)
      })

      it('a thousand concurrent requests to queue the same id create one run', async () => {
        const results = await Promise.all(
          Array.from({ length: 1_000 }, () =>
            source.queue(process, [{ TransactionID: '7', InitialData: '7' }]),
          ),
        )
        const outcomes = results.map(([result]) => result?.outcome)
        expect(outcomes.filter((outcome) => outcome === 'queued')).toHaveLength(1)
        expect(outcomes.filter((outcome) => outcome === 'exists')).toHaveLength(999)
        expect((await source.search(aSearch(process.name))).runs).toHaveLength(1)
      })
    })

    describe('claiming a run', () => {
      it('of many concurrent workers, only one can claim a run', async () => {
        const run = await queue('1')
        const results = await Promise.all(
          Array.from({ length: 50 }, (_, n) =>
            source.claim(request(run, { owner: `worker-${n}` })),
          ),
        )
        expect(results.filter(({ kind }) => kind === 'claimed')).toHaveLength(1)
        expect(results.filter(({ kind }) => kind === 'stale')).toHaveLength(49)
      })

      it('a claim increments the attempt and the version of the run, so that a copy of its step message becomes outdated', async () => {
        const run = await queue('1')
        const claimed = await claim(run)
        expect(claimed.run).toMatchObject({ Status: 'Running', Attempt: 1, Version: 1 })
        expect(await source.claim(request(run))).toEqual({ kind: 'stale' })
      })

      it('a claim is rejected if the run is unknown or finished, or is at another step or version', async () => {
        const run = await queue('1')
        expect(await source.claim(request(run, { step: 'csv' }))).toEqual({ kind: 'stale' })
        expect(await source.claim(request(run, { version: 5 }))).toEqual({ kind: 'stale' })
        expect(await source.claim(request(run, { TransactionID: '2' }))).toEqual({
          kind: 'unknown',
        })
        const finished = await finish(run)
        expect(await source.claim(request(finished))).toEqual({ kind: 'stale' })
      })

      it('a claim is rejected with the remaining time if the next attempt of the run is not due yet', async () => {
        const retrying = await record(await claim(await queue('1')), failing(60_000))
        const result = await source.claim(request(retrying as Run))
        expect(result).toMatchObject({ kind: 'early', version: retrying?.Version })
        expect((result as { delayMs: number }).delayMs).toBeGreaterThan(50_000)
      })

      it('the redelivered step message of a lost worker can claim the run after its lease has expired', async () => {
        const run = await queue('1')
        const lost = await claim(run)
        await source.advance(leaseMs - MARGIN_MS)
        expect(await source.claim(request(run, { owner: 'worker-2' }))).toEqual({
          kind: 'stale',
        })
        await source.advance(MARGIN_MS)
        const claimedAgain = await claim(run, { owner: 'worker-2' })
        expect(claimedAgain.run).toMatchObject({ Attempt: 2, Version: 2 })
        expect(await record(lost, done)).toBeNull()
        expect(await record(claimedAgain, done)).toMatchObject({ StepName: 'report' })
        const stored = await source.get(process.name, '1', null)
        expect(stored?.attempts.map(({ Outcome }) => Outcome)).toEqual(['in_doubt', 'completed'])
      })
    })

    describe('recording the outcome of a step', () => {
      it('each completed item is stored with response body, data and idempotency key, and the last item completes the run', async () => {
        const run = await queue('a/b é')
        const completed = await finish(run)
        expect(completed).toMatchObject({ Status: 'Completed', StepName: 'csv', Version: 6 })
        expect(completed.CompletedAt).not.toBeNull()
        const stored = await source.get(process.name, 'a/b é', 0)
        const items = stored?.items.toSorted((a, b) => (a.StepName < b.StepName ? 1 : -1))
        expect(items?.map(({ StepName }) => StepName)).toEqual(['report', 'order', 'csv'])
        expect(items?.[1]).toMatchObject({
          StepName: 'order',
          Status: 'Completed',
          Attempt: 1,
          IdempotencyKey: 'OrderProcess/a%2Fb%20%C3%A9/0/order',
          ResponseStatus: 200,
          ResponseBody: '{"a":1}',
          Data: { a: 1 },
          Error: null,
        })
        expect(stored?.attempts).toHaveLength(3)
      })

      it('the claim of a step returns the items of the finished steps', async () => {
        const next = await record(await claim(await queue('1')), done)
        const { items } = await claim(next as Run)
        expect(items).toMatchObject([{ StepName: 'order', Data: { a: 1 } }])
      })

      it('the outcome of an attempt of a step can be recorded only once', async () => {
        const claimed = await claim(await queue('1'))
        const results = await Promise.all(Array.from({ length: 20 }, () => record(claimed, done)))
        expect(results.filter((result) => result !== null)).toHaveLength(1)
        expect((await source.get(process.name, '1', 0))?.attempts).toHaveLength(1)
      })

      it('a retried step is stored with its error, its response and all of its attempts', async () => {
        const first = await record(await claim(await queue('1')), failing(0))
        expect(first).toMatchObject({
          Status: 'Retrying',
          Attempt: 1,
          ErrorClass: 'http_503',
          LastError: 'GET x responded with 503',
        })
        const second = await record(await claim(first as Run), done)
        expect(second).toMatchObject({ Status: 'Running', StepName: 'report', LastError: null })
        const run = await source.get(process.name, '1', 0)
        expect(run?.items).toMatchObject([{ Status: 'Completed', Attempt: 2, Error: null }])
        expect(run?.attempts).toMatchObject([
          {
            Attempt: 1,
            Outcome: 'http_503',
            ResponseStatus: 503,
            Error: 'GET x responded with 503',
          },
          { Attempt: 2, Outcome: 'completed' },
        ])
      })

      it('an attempt that ended before a call was sent is neither counted nor stored', async () => {
        const released = await record(await claim(await queue('1')), { kind: 'released' })
        expect(released).toMatchObject({ Status: 'Queued', Attempt: 0, Version: 2 })
        expect((await source.get(process.name, '1', 0))?.attempts).toEqual([])
        expect((await claim(released as Run)).run.Attempt).toBe(1)
      })

      it('record() returns the stored state of each outcome if outcomes of different kinds are recorded in one batch', async () => {
        const outcomes: StepOutcome[] = [
          done,
          failing(60_000),
          { kind: 'later', delayMs: 1_234.5 },
          { kind: 'released' },
          failed,
          done,
        ]
        const claims: Claim[] = []
        for (const n of outcomes.keys()) claims.push(await claim(await queue(String(n))))
        const lost = claims.at(-1) as Claim
        await source.cancel(process.name, lost.run.TransactionID, null, anAct)
        const recorded = await Promise.all(
          outcomes.map((outcome, n) => record(claims[n] as Claim, outcome)),
        )
        expect(recorded.at(-1)).toBeNull()
        for (const run of recorded.slice(0, -1)) {
          const stored = await source.get(process.name, run?.TransactionID ?? '', null)
          expect(stored?.run).toMatchObject(run ?? {})
        }
      })

      it('each step of hundreds of concurrent runs is recorded exactly once', async () => {
        const runs = await Promise.all(Array.from({ length: 300 }, (_, n) => queue(String(n))))
        await Promise.all(runs.map(finish))
        const { runsByStatus: counts, violations } = await source.audit([process.name])
        expect(counts).toEqual({ Completed: 300 })
        expect(new Set(Object.values(violations))).toEqual(new Set([0]))
      })
    })

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
        await source.cancel(process.name, '1', null, anAct)
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
        const resumed = await claim(await source.resume(process, '1', null, anAct))
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
          await source.cancel(process.name, id, null, anAct)
          const resumed = await source.resume(process, id, null, anAct)
          expect((await claim(resumed)).run.InDoubt).toBe(isInDoubt)
        }
      })
    })

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
        const resumed = await source.resume(process, '1', null, anAct)
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
        expect(await source.cancel(process.name, '1', 0, anAct)).toMatchObject({
          Status: 'Cancelled',
        })
        expect(await record(claimed, done)).toBeNull()
        expect(await source.resume(process, '1', null, anAct)).toMatchObject({
          StepName: 'order',
        })
      })

      it('an active run cannot be resumed, a finished run cannot be cancelled, and an unknown run can be neither resumed nor cancelled', async () => {
        await finish(await queue('1'))
        await queue('2')
        await expect(source.resume(process, '1', null, anAct)).rejects.toMatchObject({
          code: 'transaction_not_resumable',
        })
        await expect(source.resume(process, '2', null, anAct)).rejects.toMatchObject({
          code: 'transaction_not_resumable',
        })
        await expect(source.cancel(process.name, '1', null, anAct)).rejects.toMatchObject({
          code: 'transaction_not_active',
        })
        for (const change of [
          () => source.resume(process, '1', 7, anAct),
          () => source.cancel(process.name, '1', 7, anAct),
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
      expect((await source.paused()).size).toBe(0)
      await source.setPaused('A', true, anAct)
      await source.setPaused('B', true, anAct)
      await source.setPaused('A', true, anAct)
      await source.setPaused('B', false, anAct)
      expect([...(await source.paused()).keys()]).toEqual(['A'])
    })

    it('a second pause of a process keeps the time, the person and the reason of the first pause', async () => {
      const person = { keyId: 'console', person: 'ada@example.com' }
      await source.setPaused('A', true, { ...anAct, by: person, reason: 'the provider is down' })
      const first = (await source.paused()).get('A')
      expect(first).toEqual({
        Process: 'A',
        PausedAt: expect.stringMatching(/^\d{4}-.*Z$/),
        PausedBy: 'ada@example.com',
        Reason: 'the provider is down',
      })
      await source.setPaused('A', true, anAct)
      expect((await source.paused()).get('A')).toEqual(first)
      await source.setPaused('A', false, anAct)
      await source.setPaused('A', true, anAct)
      expect((await source.paused()).get('A')).toMatchObject({ PausedBy: 'ops', Reason: null })
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
