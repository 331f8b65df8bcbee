import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import type { MovableSource } from '../../test-support/movable-source.ts'
import { aSearch } from '../../test-support/search.ts'
import { advance, type StepOutcome } from './progress.ts'
import { defaultRetryPolicy } from './retry-policy.ts'
import { type ClaimedRun, type Run, runKey } from './run.ts'
import type { Claim, NewTransaction, ProcessOutline, RunState } from './transaction-source.ts'

const process: ProcessOutline = { name: 'OrderProcess', steps: ['order', 'report'] }
const done: StepOutcome = { kind: 'completed', response: null, data: null, endsRun: false }

/** Tests the priority of runs; both the memory and the PostgreSQL source must pass these tests. */
export function priorityContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a source of runs with a priority`, () => {
    let source: MovableSource
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())

    const queue = async (id: string, more: Partial<NewTransaction> = {}): Promise<Run> => {
      const [result] = await source.queue(process, [
        { TransactionID: id, InitialData: id, ...more },
      ])
      if (result?.run === undefined) throw new Error('not queued')
      return result.run
    }
    const claim = async (run: RunState): Promise<Claim> => {
      const { Version: version, StepName: step } = run
      const isFirst = step === process.steps[0]
      const result = await source.claim({ ...runKey(run), version, step, isFirst, owner: 'worker' })
      if (result.kind !== 'claimed') throw new Error(`not claimed: ${result.kind}`)
      return result.claim
    }
    const record = async ({ lease, run }: { lease: Claim['lease']; run: ClaimedRun }) => {
      const options = { steps: process.steps, policy: defaultRetryPolicy, random: 0 }
      const state = await source.record(lease, advance(run, done, options))
      if (state === null) throw new Error('not recorded')
      return state
    }
    const found = async (...priority: Run['Priority'][]): Promise<string[]> => {
      const { runs } = await source.search(aSearch(process.name, { filter: { priority } }))
      return runs.map(({ TransactionID }) => TransactionID).toSorted()
    }

    it('a run is normal unless it is queued with a priority, which every later state of the run has', async () => {
      expect(await queue('normal')).toMatchObject({ Priority: 'normal' })
      const run = await queue('high', { Priority: 'high' })
      expect(run.Priority).toBe('high')
      const claimed = await claim(run)
      expect(claimed.run.Priority).toBe('high')
      const second = await record(claimed)
      expect(second).toMatchObject({ StepName: 'report', Priority: 'high' })
      expect(await record(await claim(second))).toMatchObject({ Priority: 'high' })
      expect(await record(await claim(await queue('other')))).toMatchObject({ Priority: 'normal' })
      expect((await source.get(process.name, 'high', null))?.run.Priority).toBe('high')
    })

    it('a run that is claimed in the statement that queues it has its priority', async () => {
      const [result] = await source.queue(
        process,
        [{ TransactionID: 'a', InitialData: 1, Priority: 'high' }],
        undefined,
        { owner: 'me', limit: 1 },
      )
      expect(result?.claim?.run.Priority).toBe('high')
      expect(await record(result?.claim as Claim)).toMatchObject({ Priority: 'high' })
    })

    it('a replay has the priority of the run before it', async () => {
      await queue('a', { Priority: 'high' })
      await source.operate('cancel', process, 'a', null, anAct)
      const replay = await source.replay(process, 'a', { fromStep: null, latest: null }, anAct)
      expect(replay).toMatchObject({ ReplayID: 1, Priority: 'high' })
    })

    it('a repeated request may name another priority, and the run keeps the first', async () => {
      await queue('a')
      const [again] = await source.queue(process, [
        { TransactionID: 'a', InitialData: 'a', Priority: 'high' },
      ])
      expect(again).toMatchObject({ outcome: 'exists', run: { Priority: 'normal' } })
    })

    it('a run has the priority of the last request that it has absorbed and that names one', async () => {
      const Debounce = { Key: 'k', Seconds: 60 }
      const debounced = async (id: string, more: Partial<NewTransaction> = {}) => {
        const [result] = await source.queue(process, [
          { TransactionID: id, InitialData: id, Debounce, ...more },
        ])
        return [result?.run?.TransactionID, result?.run?.Priority]
      }
      expect(await debounced('a')).toEqual(['a', 'normal'])
      expect(await debounced('b', { Priority: 'high' })).toEqual(['a', 'high'])
      expect(await debounced('c')).toEqual(['a', 'high'])
      expect(await debounced('d', { Priority: 'normal' })).toEqual(['a', 'normal'])
      expect(await debounced('e', { Priority: 'high', Realm: 'r1' })).toEqual(['e', 'high'])
    })

    it('runs are found by their priority', async () => {
      await queue('a', { Priority: 'high' })
      await queue('b')
      await queue('c', { Priority: 'normal' })
      expect(await found('high')).toEqual(['a'])
      expect(await found('normal')).toEqual(['b', 'c'])
      expect(await found('high', 'normal')).toEqual(['a', 'b', 'c'])
    })
  })
}
