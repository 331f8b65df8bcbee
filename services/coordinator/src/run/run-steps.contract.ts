import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { contractTimes, MARGIN_MS, type MovableSource } from '../../test-support/movable-source.ts'
import { done, failed, failing, fromStart, process, workOn } from '../../test-support/order-runs.ts'
import { aSearch } from '../../test-support/search.ts'
import type { Json } from './json-normalization.ts'
import type { StepOutcome } from './progress.ts'
import type { ClaimedRun, Run } from './run.ts'
import type { Claim } from './transaction-source.ts'

const { leaseMs } = contractTimes
const skipped: StepOutcome = { kind: 'skipped' }
const repeat = (number: number, state: Json, delayMs = 0): StepOutcome => ({
  kind: 'repeated',
  response: { status: 200, body: 'page' },
  round: { number, state },
  delayMs,
})

/**
 * Tests how transactions are queued and the steps of their runs are claimed and recorded; the memory and the PostgreSQL
 * source must pass these tests, with and without payload keys.
 */
export function runStepsContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a source of runs and their steps`, () => {
    let source: MovableSource
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())
    const { queue, request, claim, record, finish } = workOn(() => source)
    const get = async (id: string) => {
      const found = await source.get(process.name, id, null)
      if (found === null) throw new Error('the run does not exist')
      return found
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
        await source.operate('cancel', process, '1', null, anAct)
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
        await source.operate('cancel', process, lost.run.TransactionID, null, anAct)
        const recorded = await Promise.all(
          outcomes.map((outcome, n) => record(claims[n] as Claim, outcome)),
        )
        expect(recorded.at(-1)).toBeNull()
        for (const run of recorded.slice(0, -1)) {
          const stored = await source.get(process.name, run?.TransactionID ?? '', null)
          expect(stored?.run).toMatchObject(run ?? {})
        }
      })

      it('a skipped step has an item without data and no attempt, and the next step continues under the same lease', async () => {
        const claimed = await claim(await queue('1'))
        const moved = await record(claimed, skipped)
        expect(moved).toMatchObject({ Status: 'Running', StepName: 'report', Attempt: 1 })
        const { run, lease, items, attempts } = await get('1')
        expect(run).toMatchObject(moved ?? {})
        expect(lease.LeaseOwner).toBe('worker-1')
        expect(items).toMatchObject([
          { StepName: 'order', Status: 'Skipped', Attempt: 0, Data: null, ResponseBody: null },
        ])
        expect(attempts).toEqual([])
        const next = await record(
          {
            ...claimed,
            lease: { ...claimed.lease, step: 'report', version: 2 },
            run: moved as Run,
          },
          done,
        )
        expect(next).toMatchObject({ StepName: 'csv', Attempt: 0 })
        const { items: finished } = await claim(next as Run)
        expect(
          Object.fromEntries(finished.map(({ StepName, Status }) => [StepName, Status])),
        ).toEqual({ order: 'Skipped', report: 'Completed' })
      })

      it('a run whose last step is skipped is completed, consistent, and can be replayed from every step', async () => {
        let run = await claim(await queue('1'))
        for (const step of ['report', 'csv']) {
          const moved = (await record(run, skipped)) as Run
          const lease = { ...run.lease, step, version: moved.Version }
          run = { ...run, lease, run: moved }
        }
        expect(await record(run, skipped)).toMatchObject({ Status: 'Completed', StepName: 'csv' })
        const { violations } = await source.audit([process.name])
        expect(new Set(Object.values(violations))).toEqual(new Set([0]))
        await source.replay(process, '1', { fromStep: 'csv', latest: null }, anAct)
        const { items } = await get('1')
        expect(Object.fromEntries(items.map(({ StepName, Status }) => [StepName, Status]))).toEqual(
          {
            order: 'Skipped',
            report: 'Skipped',
          },
        )
      })

      it('each round of a repeated step has its own attempts and key, and the claim of a round returns its state', async () => {
        const first = await claim(await queue('1'))
        expect(first.round).toBeUndefined()
        const repeated = await record(first, repeat(1, { page: 2 }))
        expect(repeated).toMatchObject({ Status: 'Running', StepName: 'order', Attempt: 0 })
        const second = await claim(repeated as Run)
        expect(second).toMatchObject({
          run: { Attempt: 1, InDoubt: false },
          round: { number: 1, state: { page: 2 } },
          lease: { round: 1 },
          items: [],
        })
        const retried = await record(second, failing(0))
        const third = await claim(retried as Run)
        expect(third).toMatchObject({ run: { Attempt: 2 }, round: second.round })
        const { items, attempts } = await get('1')
        expect(items).toMatchObject([
          {
            StepName: 'order',
            Status: 'Retrying',
            Round: 1,
            State: { page: 2 },
            IdempotencyKey: 'OrderProcess/1/0/order/round-1',
          },
        ])
        expect(attempts.map(({ Attempt, Outcome }) => [Attempt, Outcome])).toEqual([
          [1, 'repeated'],
          [1, 'http_503'],
        ])
        expect(await record(third, done)).toMatchObject({ StepName: 'report' })
        expect((await get('1')).items).toMatchObject([
          { Status: 'Completed', Data: { a: 1 }, Round: 1 },
        ])
      })

      it('the state of a round can be any JSON, and replaces the state of the previous round', async () => {
        let run = (await queue('1')) as ClaimedRun
        for (const [n, state] of [{ a: 1 }, 7, 'x', null, [null]].entries()) {
          run = (await record(await claim(run), repeat(n + 1, state))) as ClaimedRun
          const claimed = await claim(run)
          expect(claimed.round).toEqual({ number: n + 1, state })
          run = (await record(claimed, { kind: 'later', delayMs: 0 })) as ClaimedRun
        }
      })

      it('a round can begin later, and the claim is rejected with the remaining time until then', async () => {
        const repeated = await record(await claim(await queue('1')), repeat(1, 1, 60_000))
        expect(repeated).toMatchObject({ Status: 'Running' })
        expect(await source.claim(request(repeated as Run))).toMatchObject({ kind: 'early' })
      })

      it('a resume continues in the round that has failed; a replay from the step starts with round 0', async () => {
        const repeated = await record(await claim(await queue('1')), repeat(1, { page: 2 }))
        await record(await claim(repeated as Run), failed)
        const resumed = await source.operate('resume', process, '1', null, anAct)
        const claimed = await claim(resumed)
        expect(claimed.round).toEqual({ number: 1, state: { page: 2 } })
        await record(claimed, failed)
        const replay = await source.replay(process, '1', { fromStep: 'order', latest: null }, anAct)
        expect((await claim(replay)).round).toBeUndefined()
        expect((await get('1')).items).toEqual([])
      })

      it('if the worker of a round is lost, the round is in doubt and keeps its state', async () => {
        const repeated = await record(await claim(await queue('1')), repeat(1, { page: 2 }))
        await claim(repeated as Run)
        await source.advance(leaseMs)
        const claimed = await claim(repeated as Run)
        expect(claimed).toMatchObject({
          run: { InDoubt: true, Attempt: 2 },
          round: { number: 1, state: { page: 2 } },
        })
      })

      it('of the rounds of a step, the attempts of the last ten and those that failed are kept', async () => {
        let run = (await queue('1')) as ClaimedRun
        for (let round = 1; round <= 13; round += 1) {
          if (round === 2) run = (await record(await claim(run), failing(0))) as ClaimedRun
          run = (await record(await claim(run), repeat(round, round))) as ClaimedRun
        }
        await record(await claim(run), done)
        const { attempts } = await get('1')
        expect(attempts.map(({ Outcome }) => Outcome)).toEqual([
          'http_503',
          ...Array.from({ length: 10 }, () => 'repeated'),
          'completed',
        ])
      })

      it('reported progress is stored with a renewal and with an outcome, and stays when the step is retried', async () => {
        const claimed = await claim(await queue('1'))
        const report = { Done: 1, Of: 4, Note: null, At: '2026-11-20T08:00:00.000Z' }
        expect(await source.renew([{ ...claimed.lease, report }])).toEqual([])
        expect((await get('1')).items).toMatchObject([
          { StepName: 'order', Status: 'Running', Attempt: 1, Report: report, Data: null },
        ])
        const retried = await record(claimed, failing(0))
        expect((await get('1')).items).toMatchObject([{ Status: 'Retrying', Report: report }])
        const again = await claim(retried as Run)
        expect(again.items).toEqual([])
        await record(again, done, { ...report, Done: 4 })
        expect((await get('1')).items).toMatchObject([{ Status: 'Completed', Report: { Done: 4 } }])
        expect(await source.renew([{ ...claimed.lease, report }])).toMatchObject([
          { step: 'order' },
        ])
        expect((await get('1')).items).toMatchObject([{ Report: { Done: 4 } }])
      })

      it('each step of hundreds of concurrent runs is recorded exactly once', async () => {
        const runs = await Promise.all(Array.from({ length: 300 }, (_, n) => queue(String(n))))
        await Promise.all(runs.map(finish))
        const { runsByStatus: counts, violations } = await source.audit([process.name])
        expect(counts).toEqual({ Completed: 300 })
        expect(new Set(Object.values(violations))).toEqual(new Set([0]))
      })
    })
  })
}
