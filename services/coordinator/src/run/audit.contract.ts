import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import type { MovableSource } from '../../test-support/movable-source.ts'
import { advance, type StepOutcome } from './progress.ts'
import { defaultRetryPolicy } from './retry-policy.ts'
import { type Run, runKey } from './run.ts'
import type { ProcessOutline } from './transaction-source.ts'

const process: ProcessOutline = { name: 'OrderProcess', steps: ['order', 'report'] }
const other: ProcessOutline = { name: 'OtherProcess', steps: ['only'] }
const done: StepOutcome = { kind: 'completed', response: null, data: null, endsRun: false }
const failed = {
  kind: 'failed',
  errorClass: 'http_400',
  error: 'no',
  response: null,
} satisfies StepOutcome
const waiting = { kind: 'waiting', credential: 'ACC-1', error: 'faulted' } satisfies StepOutcome

/**
 * Tests the counts of an audit; both the memory and the PostgreSQL source must pass these tests.
 */
export function auditContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a source that counts its runs`, () => {
    let source: MovableSource
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())

    const queue = async (id: string, of = process): Promise<Run> => {
      const [result] = await source.queue(of, [{ TransactionID: id, InitialData: id }])
      if (result?.run === undefined || result.outcome === 'conflict') throw new Error('not queued')
      return result.run
    }
    const run = async (from: Run, ...outcomes: readonly StepOutcome[]): Promise<Run> => {
      let current = from
      for (const outcome of outcomes) {
        const { Version: version, StepName: step } = current
        const isFirst = step === process.steps[0]
        const owner = 'worker'
        const result = await source.claim({ ...runKey(current), step, isFirst, version, owner })
        if (result.kind !== 'claimed') throw new Error(`not claimed: ${result.kind}`)
        const options = { steps: process.steps, policy: defaultRetryPolicy, random: 0 }
        const transition = advance(result.claim.run, outcome, options)
        const state = await source.record(result.claim.lease, transition)
        if (state === null) throw new Error('not recorded')
        current = { ...current, ...state }
      }
      return current
    }
    const audit = () => source.audit([process.name, other.name])

    it('unfinished runs are counted by status, step, error class and credential, the largest group first', async () => {
      const first = await queue('1')
      await source.advance(5)
      await queue('2')
      await run(await queue('3'), done)
      await run(await queue('4'), waiting)
      await run(await queue('5'), { ...waiting, isInDoubt: true })
      await run(await queue('6'), { ...waiting, credential: 'ACC-2' })
      await queue('7', other)
      const { unfinished, at, inexact } = await audit()
      const group = { Process: process.name, StepName: 'order', ErrorClass: null, WaitingFor: null }
      const waits = { ...group, Status: 'Waiting', ErrorClass: 'credential_faulted' }
      expect(unfinished.slice(0, 2).map(({ Count }) => Count)).toEqual([2, 2])
      expect(unfinished).toHaveLength(5)
      expect(unfinished).toEqual(
        expect.arrayContaining(
          [
            { ...group, Status: 'Queued', Count: 2, OldestCreatedAt: first.CreatedAt },
            { ...group, Status: 'Running', StepName: 'report', Count: 1 },
            { ...waits, WaitingFor: 'ACC-1', Count: 2, InDoubt: 1 },
            { ...waits, WaitingFor: 'ACC-2', Count: 1, InDoubt: 0 },
            { ...group, Process: other.name, StepName: 'only', Status: 'Queued', Count: 1 },
          ].map((expected) => expect.objectContaining(expected)),
        ),
      )
      expect(at).toBe(new Date(at).toISOString())
      expect(inexact).toEqual({ unfinished: false, endedBadly: false, completed: false })
    })

    it('failed and cancelled runs are counted by error class and step, in total and in doubt', async () => {
      const oldest = await run(await queue('1'), failed)
      await source.advance(5)
      await run(await queue('2'), { ...failed, isInDoubt: true })
      await run(await queue('3'), done, failed)
      await queue('4')
      await source.operate('cancel', process, '4', null, anAct)
      await run(await queue('5'), done, done)
      const { endedBadly, unfinished, runsByStatus } = await audit()
      const group = { Process: process.name, WaitingFor: null, Status: 'Failed' }
      const http400 = { ...group, ErrorClass: 'http_400' }
      const { CreatedAt: OldestCreatedAt, CompletedAt: FirstEndedAt } = oldest
      expect(endedBadly[0]).toEqual({
        ...http400,
        StepName: 'order',
        Count: 2,
        InDoubt: 1,
        OldestCreatedAt,
        FirstEndedAt,
        ProviderError: null,
      })
      const one = { Count: 1, InDoubt: 0 }
      expect(endedBadly.slice(1)).toEqual(
        expect.arrayContaining([
          expect.objectContaining({ ...http400, ...one, StepName: 'report' }),
          expect.objectContaining({ ...one, Status: 'Cancelled', ErrorClass: null }),
        ]),
      )
      expect(endedBadly).toHaveLength(3)
      expect(unfinished).toEqual([])
      expect(runsByStatus).toEqual({ Failed: 3, Cancelled: 1, Completed: 1 })
    })

    it('failed runs are counted by the code and message of the provider', async () => {
      const rejected = (error: string) => ({ ...failed, error })
      await run(await queue('1'), rejected('6240 Duplicate Name: A (POST x responded with 400)'))
      await run(await queue('2'), rejected('6240 Duplicate Name: B (POST x responded with 400)'))
      await run(await queue('3'), rejected('6140 Duplicate Number: POST x responded with 400'))
      await run(await queue('4'), { ...rejected('6240 Own: words'), errorClass: 'step_failed' })
      const { endedBadly } = await audit()
      expect(endedBadly).toHaveLength(3)
      expect(endedBadly[0]).toMatchObject({ ProviderError: '6240 Duplicate Name', Count: 2 })
      expect(endedBadly).toContainEqual(
        expect.objectContaining({ ProviderError: '6140 Duplicate Number', Count: 1 }),
      )
      expect(endedBadly).toContainEqual(
        expect.objectContaining({ ErrorClass: 'step_failed', ProviderError: null }),
      )
    })

    it('a failed run that is resumed counts as unfinished', async () => {
      await run(await queue('1'), failed)
      await source.operate('resume', process, '1', null, anAct)
      const { endedBadly, runsByStatus } = await audit()
      expect([endedBadly, runsByStatus]).toEqual([[], { Queued: 1 }])
    })

    it('an audit returns the processes that are not loaded and the number of their unfinished runs', async () => {
      await queue('1')
      await queue('2')
      await queue('3', other)
      const { unknownProcesses, violations } = await source.audit([other.name])
      expect(unknownProcesses).toEqual({ [process.name]: 2 })
      expect(violations.unknownProcess).toBe(2)
    })
  })
}
