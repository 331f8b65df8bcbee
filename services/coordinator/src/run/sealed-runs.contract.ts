import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { contractTimes, type MovableSource } from '../../test-support/movable-source.ts'
import { failed, process, refs, workOn } from '../../test-support/order-runs.ts'
import { sealed } from '../../test-support/payload-keys.ts'
import type { StepOutcome } from './progress.ts'
import type { ClaimedRun, Run } from './run.ts'

const data = { note: 'business data' }
const waiting: StepOutcome = { kind: 'waiting', credential: 'ACC-1', error: 'faulted' }

/**
 * Tests the members of the port that return runs and have no test of their own with payload keys: what they store is
 * encrypted, and what they return is not. Both the memory and the PostgreSQL source must pass these tests.
 */
export function sealedRunsContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a source of runs with encrypted payloads`, () => {
    let plain: MovableSource
    let source: MovableSource
    beforeEach(async () => {
      plain = await open()
      source = sealed(plain)
    })
    afterEach(() => plain[Symbol.asyncDispose]())
    const { queue, claim, record } = workOn(() => source)
    const queued = (): Promise<Run> => queue('1', data)
    const claimed = async () => claim(await queued())
    const reached = async (outcome: StepOutcome) => record(await claimed(), outcome)

    it.each<[string, () => Promise<readonly ClaimedRun[]>]>([
      [
        'due',
        async () => {
          await queued()
          await source.advance(contractTimes.sweepMs)
          return source.due(refs, 10)
        },
      ],
      [
        'runsAtUnknownStep',
        async () => {
          await queued()
          await source.advance(contractTimes.sweepMs)
          return source.runsAtUnknownStep([{ ...process, steps: ['other'] }], 10)
        },
      ],
      [
        'recoverExpiredLeases',
        async () => {
          await claimed()
          await source.advance(contractTimes.leaseMs)
          return source.recoverExpiredLeases(10)
        },
      ],
      [
        'failPastDeadline',
        async () => {
          const within = { ...process, deadlineMs: 1 }
          await source.queue(within, [{ TransactionID: '1', InitialData: data }])
          await source.advance(1)
          return source.failPastDeadline(10)
        },
      ],
      [
        'failRun',
        async () => {
          const run = await source.failRun(await queued(), 0, 'step_unknown', 'why')
          return run === null ? [] : [run]
        },
      ],
      [
        'wake',
        async () => {
          await reached(waiting)
          return source.wake('ACC-1', 10)
        },
      ],
      [
        'retry',
        async () => {
          await reached(waiting)
          return [await source.operate('retry', process, '1', null, anAct)]
        },
      ],
      [
        'cancel',
        async () => {
          await queued()
          return [await source.operate('cancel', process, '1', null, anAct)]
        },
      ],
      [
        'resume',
        async () => {
          await reached(failed)
          return [await source.operate('resume', process, '1', null, anAct)]
        },
      ],
      [
        'settle',
        async () => {
          await reached({ ...failed, isInDoubt: true })
          return [await source.settle(process, '1', null, { outcome: 'not_done' }, anAct)]
        },
      ],
    ])('%s() returns the decrypted data of a run, which is stored encrypted', async (_, call) => {
      const runs = await call()
      expect(runs).toMatchObject([{ InitialData: data }])
      const stored = await plain.get(process.name, '1', null)
      expect(JSON.stringify(stored)).not.toContain(data.note)
    })
  })
}
