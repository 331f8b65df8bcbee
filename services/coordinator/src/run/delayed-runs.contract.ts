import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { contractTimes, MARGIN_MS, type MovableSource } from '../../test-support/movable-source.ts'
import { DELAYED_RUNS_PER_KEY } from './start-time.ts'
import { runKey, type Run } from './run.ts'
import type { ClaimResult, NewTransaction, ProcessOutline } from './transaction-source.ts'

const process: ProcessOutline = { name: 'OrderProcess', steps: ['order', 'report'] }
const HOUR_MS = 3_600_000
const fromStart = { fromStep: null, latest: null }

/** Tests runs with an earliest start time; both the memory and the PostgreSQL source must pass these tests. */
export function delayedRunsContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a source of delayed runs`, () => {
    let source: MovableSource
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())

    const queue = async (
      id: string,
      NotBefore: NonNullable<NewTransaction['NotBefore']>,
      outline = process,
    ): Promise<Run> => {
      const [result] = await source.queue(outline, [
        { TransactionID: id, InitialData: id, NotBefore },
      ])
      if (result?.outcome !== 'queued') throw new Error('not queued')
      return result.run
    }
    const claim = (run: Run): Promise<ClaimResult> => {
      const { Version: version, StepName: step } = run
      return source.claim({ ...runKey(run), version, step, isFirst: true, owner: 'worker' })
    }
    const msBetween = (from: string | null, to: string | null): number =>
      Date.parse(to ?? '') - Date.parse(from ?? '')

    it('a run that is queued with NotBefore is due at that time, and a claim before that time returns `early`', async () => {
      const at = new Date(Date.now() + HOUR_MS)
      const byTime = await queue('time', at.toISOString())
      expect(byTime).toMatchObject({
        Status: 'Queued',
        NotBefore: at.toISOString(),
        NextAttemptAt: at.toISOString(),
      })
      const inSeconds = await queue('seconds', 7_200)
      expect(msBetween(inSeconds.CreatedAt, inSeconds.NotBefore)).toBe(2 * HOUR_MS)
      expect(inSeconds.NextAttemptAt).toBe(inSeconds.NotBefore)
      const results = [await claim(byTime), await claim(inSeconds)]
      expect(results).toMatchObject([{ kind: 'early' }, { kind: 'early' }])
      const [first, second] = results.map((result) =>
        result.kind === 'early' ? result.delayMs : 0,
      )
      expect(first).toBeGreaterThan(HOUR_MS - 60_000)
      expect(second).toBeGreaterThan(2 * HOUR_MS - 60_000)
      expect((await source.get(process.name, 'time', null))?.run.NotBefore).toBe(at.toISOString())
    })

    it('a delayed run can be claimed as soon as its start time has come', async () => {
      const run = await queue('1', 60)
      await source.advance(60_000 - MARGIN_MS)
      expect((await claim(run)).kind).toBe('early')
      await source.advance(MARGIN_MS)
      expect(await claim(run)).toMatchObject({ kind: 'claimed' })
    })

    it('a run whose NotBefore has passed starts at once, even if its year is too early for the store', async () => {
      const past = await queue('1', '2020-01-01T00:00:00+02:00')
      expect(past).toMatchObject({
        NotBefore: '2019-12-31T22:00:00.000Z',
        NextAttemptAt: past.CreatedAt,
      })
      expect(await claim(past)).toMatchObject({ kind: 'claimed' })
      expect(await claim(await queue('2', '0000-01-01T00:00:00Z'))).toMatchObject({
        kind: 'claimed',
      })
      expect((await queue('3', 0)).NextAttemptAt).toBe(
        (await source.get(process.name, '3', null))?.run.CreatedAt,
      )
    })

    it('the deadline of a delayed run counts from its start, even if an operator starts the run early', async () => {
      const withDeadline = { ...process, deadlineMs: HOUR_MS }
      const run = await queue('1', 7_200, withDeadline)
      expect(msBetween(run.NotBefore, run.DeadlineAt)).toBe(HOUR_MS)
      const started = await source.operate('retry', process, '1', null, anAct)
      expect(started).toMatchObject({
        Status: 'Queued',
        NotBefore: null,
        NextAttemptAt: started.UpdatedAt,
        Version: run.Version + 1,
      })
      expect(Math.abs(msBetween(started.UpdatedAt, started.DeadlineAt) - HOUR_MS)).toBeLessThan(2)
      expect(await claim(run)).toEqual({ kind: 'stale' })
      expect(await claim(started)).toMatchObject({ kind: 'claimed' })
      await source.operate('cancel', process, '1', null, anAct)
    })

    it('a run that is queued without a delay cannot be retried before its first claim', async () => {
      await queue('1', 0)
      await expect(source.operate('retry', process, '1', null, anAct)).rejects.toMatchObject({
        code: 'transaction_not_retryable',
      })
    })

    it('a delayed run can be cancelled, and starts at once when it is resumed or replayed', async () => {
      await queue('1', 3_600)
      await expect(source.replay(process, '1', fromStart, anAct)).rejects.toMatchObject({
        code: 'transaction_active',
      })
      await source.operate('cancel', process, '1', null, anAct)
      const replay = await source.replay(process, '1', fromStart, anAct)
      expect(replay).toMatchObject({ NotBefore: null, NextAttemptAt: replay.CreatedAt })
      await queue('2', 3_600)
      await source.operate('cancel', process, '2', null, anAct)
      const resumed = await source.operate('resume', process, '2', null, anAct)
      expect(resumed).toMatchObject({ NotBefore: null, NextAttemptAt: resumed.UpdatedAt })
      expect(await claim(resumed)).toMatchObject({ kind: 'claimed' })
    })

    const queueFor = async (
      shareOf: string,
      ids: readonly string[],
      start: Pick<NewTransaction, 'NotBefore' | 'Debounce'> = { NotBefore: 7_200 },
    ) => {
      const transactions = ids.map((id) => ({ TransactionID: id, InitialData: 1, ...start }))
      const by = { keyId: shareOf, person: null, shareOf }
      return (await source.queue(process, transactions, by)).map(({ outcome }) => outcome)
    }
    const times = <Outcome>(count: number, outcome: Outcome) =>
      Array.from({ length: count }, () => outcome)
    const cancel = async (...ids: readonly string[]): Promise<void> => {
      for (const id of ids) await source.operate('cancel', process, id, null, anAct)
    }

    it('a key has at most 10,000 delayed runs, and runs that have ended, exist already or are absorbed take no further place', async () => {
      const ids = Array.from({ length: DELAYED_RUNS_PER_KEY }, (_, n) => `limited ${n}`)
      for (let at = 0; at < ids.length; at += 500)
        expect(await queueFor('one', ids.slice(at, at + 500))).toEqual(times(500, 'queued'))
      expect(await queueFor('one', ['limited 0', 'further'])).toEqual(['exists', 'limited'])
      expect(await source.get(process.name, 'further', null)).toBeNull()
      expect(await queueFor('two', ['of two'])).toEqual(['queued'])
      expect(await queueFor('one', ['at once'], {})).toEqual(['queued'])
      await cancel('limited 1')
      expect(await queueFor('one', ['further', 'beyond'])).toEqual(['queued', 'limited'])

      await cancel('limited 2', 'limited 3', 'limited 4')
      const requests = Array.from({ length: 8 }, (_, n) => queueFor('one', [`x ${n}`, `y ${n}`]))
      const outcomes = (await Promise.all(requests)).flat()
      expect(outcomes.toSorted()).toEqual([...times(13, 'limited'), ...times(3, 'queued')])

      await cancel('limited 5', 'limited 6', 'limited 7')
      const debounced = { Debounce: { Key: 'k', Seconds: 3_600 } }
      expect(await queueFor('one', ['a', 'b', 'c', 'd'], debounced)).toEqual([
        'queued',
        'absorbed',
        'absorbed',
        'limited',
      ])
      expect(await queueFor('one', ['e', 'f', 'g'])).toEqual(['queued', 'queued', 'limited'])
    })

    it('a delayed transaction that is queued again is reported as existing, whatever NotBefore the second request has', async () => {
      const first = await queue('1', 3_600)
      const again = await source.queue(process, [
        { TransactionID: '1', InitialData: '1' },
        { TransactionID: '1', InitialData: '1', NotBefore: 7_200 },
      ])
      expect(again).toEqual([
        { outcome: 'exists', run: first },
        { outcome: 'exists', run: first },
      ])
    })

    it('one call can queue transactions with and without a delay', async () => {
      const results = await source.queue(process, [
        { TransactionID: 'a', InitialData: 1, NotBefore: 3_600, ConcurrencyKey: 'k' },
        { TransactionID: 'b', InitialData: 1 },
      ])
      const [delayed, prompt] = results.map(({ run }) => run)
      expect(delayed).toMatchObject({ ConcurrencyKey: 'k', NotBefore: delayed?.NextAttemptAt })
      expect(prompt).toMatchObject({ NotBefore: null, NextAttemptAt: prompt?.CreatedAt })
    })

    it('a delayed run is not due for the sweeper before its start time, and the audit does not count it as due', async () => {
      await queue('1', 3_600)
      const steps = [{ process: process.name, step: 'order', isFirst: true }]
      await source.advance(contractTimes.sweepMs)
      expect(await source.due(steps, 10)).toEqual([])
      const { unfinished } = await source.audit([process.name])
      expect(unfinished).toMatchObject([{ Count: 1 }])
    })
  })
}
