import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { contractTimes, MARGIN_MS, type MovableSource } from '../../test-support/movable-source.ts'
import { advance, type StepOutcome } from './progress.ts'
import { defaultRetryPolicy } from './retry-policy.ts'
import { type ClaimedRun, type Run, runKey } from './run.ts'
import type { Claim, ClaimResult, ProcessOutline } from './transaction-source.ts'

const process: ProcessOutline = { name: 'OrderProcess', steps: ['order', 'report'] }
const of = (version: string | null, deadlineMs: number | null = null): ProcessOutline => ({
  ...process,
  version,
  deadlineMs,
})
const HOUR_MS = 3_600_000
/** A time limit of a run, shorter than a lease. */
const SOON_MS = 20_000

const done: StepOutcome = { kind: 'completed', response: null, data: { a: 1 }, endsRun: false }
const failed = {
  kind: 'failed',
  errorClass: 'http_400',
  error: 'no',
  response: null,
} satisfies StepOutcome
const busy: StepOutcome = {
  kind: 'retry',
  errorClass: 'http_503',
  error: 'busy',
  response: null,
  retryAfterMs: HOUR_MS,
  isInDoubt: true,
}
const waitsForTime: StepOutcome = { kind: 'later', delayMs: HOUR_MS }
const waitsForCredential: StepOutcome = { kind: 'waiting', credential: 'ACC-1', error: 'faulted' }

/**
 * Tests the members of a run that come from its process definition; both the memory and the PostgreSQL source must pass
 * these tests.
 */
export function runTermsContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a source of runs with a version and a deadline`, () => {
    let source: MovableSource
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())

    const queue = async (id: string, outline: ProcessOutline): Promise<Run> => {
      const [result] = await source.queue(outline, [{ TransactionID: id, InitialData: id }])
      if (result?.outcome !== 'queued') throw new Error('not queued')
      return result.run
    }
    const request = (run: ClaimedRun): Promise<ClaimResult> => {
      const { Version: version, StepName: step } = run
      const isFirst = step === process.steps[0]
      return source.claim({ ...runKey(run), version, step, isFirst, owner: 'worker' })
    }
    const claim = async (run: ClaimedRun): Promise<Claim> => {
      const result = await request(run)
      if (result.kind !== 'claimed') throw new Error(`not claimed: ${result.kind}`)
      return result.claim
    }
    const record = async ({ lease, run }: Claim, outcome: StepOutcome): Promise<ClaimedRun> => {
      const options = { steps: process.steps, policy: defaultRetryPolicy, random: 0 }
      const state = await source.record(lease, advance(run, outcome, options))
      if (state === null) throw new Error('not recorded')
      return { ...run, ...state }
    }
    const stored = async (id: string) => {
      const found = await source.get(process.name, id, null)
      if (found === null) throw new Error('not found')
      return found
    }
    /** Returns how long after `UpdatedAt` the deadline of a run is. */
    const deadlineMsOf = ({ DeadlineAt, UpdatedAt }: Run): number =>
      Date.parse(DeadlineAt ?? '') - Date.parse(UpdatedAt)

    it('a run keeps the definition version with which it was queued, and a replay begins with the current version', async () => {
      const first = await queue('1', of('1'))
      expect(first.DefinitionVersion).toBe('1')
      expect((await claim(first)).run.DefinitionVersion).toBe('1')
      await source.operate('cancel', process, '1', null, anAct)
      expect((await source.operate('resume', of('2'), '1', null, anAct)).DefinitionVersion).toBe(
        '1',
      )
      await source.operate('cancel', process, '1', null, anAct)
      const replay = { fromStep: null, latest: null }
      expect((await source.replay(of('2'), '1', replay, anAct)).DefinitionVersion).toBe('2')
      expect(await source.runsOf(process.name, ['1'], { limit: 10 })).toMatchObject([
        { ReplayID: 1, DefinitionVersion: '2' },
        { ReplayID: 0, DefinitionVersion: '1' },
      ])
      expect((await queue('2', process)).DefinitionVersion).toBeNull()
    })

    it('an audit counts the unfinished runs of each definition version', async () => {
      await queue('1', of('1'))
      await queue('2', of('1'))
      await queue('3', of('2'))
      await queue('4', process)
      await source.operate('cancel', process, '3', null, anAct)
      const { unfinished } = await source.audit([process.name])
      const counts = unfinished.map(({ DefinitionVersion, Count }) => [DefinitionVersion, Count])
      expect(counts).toEqual([
        ['1', 2],
        [null, 1],
      ])
    })

    it('a run fails as deadline_exceeded at its deadline, whatever it waits for, and keeps its last error', async () => {
      const soon = of(null, SOON_MS)
      await queue('queued', soon)
      await record(await claim(await queue('retried', soon)), busy)
      await record(await claim(await queue('waits for a time', soon)), waitsForTime)
      await record(await claim(await queue('waits for a company', soon)), waitsForCredential)
      await record(await claim(await queue('between two steps', soon)), done)
      const last = await queue('with more time', of(null, HOUR_MS))
      await queue('without deadline', process)
      expect(deadlineMsOf(last)).toBe(HOUR_MS)
      await source.advance(SOON_MS - MARGIN_MS)
      expect(await source.failPastDeadline(10)).toEqual([])

      await source.advance(MARGIN_MS)
      const failures: Run[] = []
      for (const count of [2, 2, 1]) {
        const page = await source.failPastDeadline(2)
        expect(page).toHaveLength(count)
        failures.push(...page)
      }
      expect(await source.failPastDeadline(10)).toEqual([])
      const passedText =
        'the run has not ended by its deadline; a resume gives it the whole time again'
      expect(failures.map(({ TransactionID }) => TransactionID).toSorted()).toEqual([
        'between two steps',
        'queued',
        'retried',
        'waits for a company',
        'waits for a time',
      ])
      for (const failure of failures) {
        const { run } = await stored(failure.TransactionID)
        expect(run).toEqual(failure)
        expect(run).toMatchObject({
          Status: 'Failed',
          ErrorClass: 'deadline_exceeded',
          LastError: expect.stringContaining(passedText),
          NextAttemptAt: null,
          WaitingFor: null,
          CompletedAt: run.UpdatedAt,
          InDoubt: run.TransactionID === 'retried',
        })
      }
      expect((await stored('queued')).run.LastError).toBe(passedText)
      expect((await stored('retried')).run.LastError).toBe(`${passedText}; its last error: busy`)
      expect((await stored('between two steps')).items).toMatchObject([{ Status: 'Completed' }])
    })

    it('a run whose deadline has passed cannot be claimed', async () => {
      const run = await queue('1', of(null, SOON_MS))
      await source.advance(SOON_MS)
      expect(await request(run)).toEqual({ kind: 'stale' })
    })

    it('the result of a step in flight at the deadline is recorded; the run then completes if no step is left, and fails otherwise', async () => {
      const soon = of(null, SOON_MS)
      const first = await claim(await queue('first step', soon))
      const before = await record(await claim(await queue('last step', soon)), done)
      const last = await claim(before)
      await source.advance(SOON_MS)
      expect(await source.failPastDeadline(10)).toEqual([])
      const next = await record(first, done)
      expect((await record(last, done)).Status).toBe('Completed')
      expect(await request(next)).toEqual({ kind: 'stale' })
      expect(await source.failPastDeadline(10)).toMatchObject([
        { TransactionID: 'first step', StepName: 'report', InDoubt: false },
      ])
      expect((await stored('first step')).items).toMatchObject([
        { StepName: 'order', Status: 'Completed', Data: { a: 1 } },
      ])
    })

    it('the attempt of a lost worker is recorded as in doubt before its run fails at the deadline', async () => {
      await claim(await queue('1', of(null, SOON_MS)))
      await source.advance(SOON_MS)
      expect(await source.failPastDeadline(10)).toEqual([])
      await source.advance(contractTimes.leaseMs - SOON_MS)
      expect(await source.failPastDeadline(10)).toEqual([])
      expect(await source.recoverExpiredLeases(10)).toHaveLength(1)
      expect(await source.failPastDeadline(10)).toMatchObject([{ Status: 'Failed', InDoubt: true }])
      expect((await stored('1')).attempts).toMatchObject([{ Outcome: 'in_doubt' }])
    })

    it('an ended run gets a new deadline when it is resumed or settled; actions on an active run keep the deadline', async () => {
      const run = await queue('1', of('1', SOON_MS))
      await record(await claim(run), { ...failed, isInDoubt: true })
      const resumed = await source.operate('resume', of('2', HOUR_MS), '1', null, anAct)
      expect(deadlineMsOf(resumed)).toBe(HOUR_MS)
      await record(await claim(resumed), { ...failed, isInDoubt: true })
      const two = of('2', 2 * HOUR_MS)
      const settled = await source.settle(two, '1', null, { outcome: 'not_done' }, anAct)
      expect(deadlineMsOf(settled)).toBe(2 * HOUR_MS)
      await record(await claim(settled), busy)
      const { DeadlineAt } = settled
      expect(await source.operate('retry', process, '1', null, anAct)).toMatchObject({ DeadlineAt })
      const active = await source.settle(of('3'), '1', null, { outcome: 'not_done' }, anAct)
      expect(active.DeadlineAt).toBe(DeadlineAt)
      await source.operate('cancel', process, '1', null, anAct)
      expect((await source.operate('resume', process, '1', null, anAct)).DeadlineAt).toBeNull()
    })
  })
}
