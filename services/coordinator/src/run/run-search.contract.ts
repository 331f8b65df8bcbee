import type { RunFilter } from '@integration-host/shared/contracts/run-filter'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import type { MovableSource } from '../../test-support/movable-source.ts'
import { aSearch, EVERYTHING } from '../../test-support/search.ts'
import { advance, type StepOutcome } from './progress.ts'
import { defaultRetryPolicy } from './retry-policy.ts'
import type { Run } from './run.ts'
import type { RunPosition, RunSearch } from './run-search.ts'
import type { ProcessOutline } from './transaction-source.ts'

const orders: ProcessOutline = { name: 'OrderProcess', steps: ['order', 'csv'], version: '1' }
const invoices: ProcessOutline = { name: 'Invoices', steps: ['order', 'csv'], version: '2' }
const done: StepOutcome = { kind: 'completed', response: null, data: null, endsRun: false }
const failed: StepOutcome = { kind: 'failed', errorClass: 'http_400', error: 'no', response: null }
/** The provider has rejected the call, and its code is the beginning of the error. */
const duplicate = {
  ...failed,
  error: '6240 Duplicate Name Exists Error: The name is 7 (no)',
} as const
/** A process may write anything into an error. Only the error of a provider has the provider's code. */
const ownText = { ...failed, errorClass: 'step_threw', error: '6240 Duplicate Name: own' } as const
const doubtful = { ...failed, errorClass: 'http_503', isInDoubt: true } as const
const busy = { ...failed, kind: 'retry', errorClass: 'http_503', retryAfterMs: 60_000 } as const
const waiting: StepOutcome = { kind: 'waiting', credential: 'ACC-r2', error: 'faulted' }
const all = ['b2', 'b1', 'a7', 'a6', 'a5', 'a4', 'a3', 'a2', 'a1']

/** Tests the search for runs; both the memory and the PostgreSQL source must pass these tests. */
export function runSearchContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a search for runs`, () => {
    let source: MovableSource
    const runs = new Map<string, Run>()
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())

    const queue = async (
      process: ProcessOutline,
      TransactionID: string,
      members: { readonly Realm?: string; readonly Tags?: Record<string, string> } = {},
    ): Promise<Run> => {
      const [result] = await source.queue(process, [{ TransactionID, InitialData: 1, ...members }])
      if (result?.outcome !== 'queued') throw new Error('not queued')
      runs.set(TransactionID, result.run)
      await source.advance(2) // every run and every transition then has a different time
      return result.run
    }
    const attempt = async (run: Run, outcome: StepOutcome): Promise<Run> => {
      const { Version: version, StepName: step } = run
      const isFirst = step === 'order'
      const result = await source.claim({ ...run, version, step, isFirst, owner: 'worker' })
      if (result.kind !== 'claimed') throw new Error(`not claimed: ${result.kind}`)
      const options = { steps: orders.steps, policy: defaultRetryPolicy, random: 0 }
      const { lease, run: claimed } = result.claim
      const state = await source.record(lease, advance(claimed, outcome, options))
      await source.advance(2)
      return { ...run, ...state }
    }
    /** Queues runs of two processes, and gives each run a different status. */
    const queueAll = async (): Promise<void> => {
      const gold = { plan: 'gold' }
      const a1 = await queue(orders, 'a1', { Realm: 'r1', Tags: { ...gold, batch: '7' } })
      await attempt(await attempt(a1, done), done)
      await attempt(await queue(orders, 'a2', { Realm: 'r1', Tags: gold }), duplicate)
      await attempt(await queue(orders, 'a3', { Realm: 'r2' }), doubtful)
      await queue(orders, 'a4')
      await source.operate('cancel', orders, 'a4', null, anAct)
      await attempt(await queue(orders, 'a5', { Realm: 'r1' }), busy)
      await attempt(await queue(orders, 'a6', { Realm: 'r2' }), waiting)
      await queue(orders, 'a7', { Tags: { batch: '7' } })
      await queue(invoices, 'b1', { Realm: 'r1' })
      await attempt(await queue(invoices, 'b2', { Realm: 'r3' }), duplicate)
    }
    /** Reads all pages of a search; returns the ids in their order. */
    const find = async (process: string | null, changes: Partial<RunSearch>): Promise<string[]> => {
      const ids: string[] = []
      let after: RunPosition | null = null
      do {
        const page = await source.search(aSearch(process, { limit: 2, ...changes, after }))
        expect(page.runs.length).toBeLessThanOrEqual(2)
        ids.push(...page.runs.map(({ TransactionID }) => TransactionID))
        after = page.next
      } while (after !== null)
      return ids
    }

    it('each filter of a search finds the matching runs, page by page, in both orders', async () => {
      await queueAll()
      const cases: readonly [RunFilter, readonly string[]][] = [
        [{}, all],
        [{ status: ['Completed'] }, ['a1']],
        [{ status: ['Failed'] }, ['b2', 'a3', 'a2']],
        [{ status: ['Queued'] }, ['b1', 'a7']],
        [{ status: ['Cancelled', 'Waiting'] }, ['a6', 'a4']],
        [{ status: ['Completed', 'Failed', 'Retrying'] }, ['b2', 'a5', 'a3', 'a2', 'a1']],
        [{ step: ['csv'] }, ['a1']],
        [{ step: ['order'], status: ['Failed'] }, ['b2', 'a3', 'a2']],
        [{ class: ['http_503'] }, ['a5', 'a3']],
        [{ class: ['http_400', 'http_503'], status: ['Failed'] }, ['b2', 'a3', 'a2']],
        [{ class: ['none'] }, []],
        [{ class: ['6240'] }, ['b2', 'a2']],
        [{ class: ['6240'], status: ['Failed'], step: ['order'] }, ['b2', 'a2']],
        [{ class: ['6240', 'http_503'] }, ['b2', 'a5', 'a3', 'a2']],
        [{ class: ['240', '624', '62401', '7'] }, []],
        [{ version: ['2'] }, ['b2', 'b1']],
        [{ version: ['1'], status: ['Failed'] }, ['a3', 'a2']],
        [{ version: ['1', '2'], realm: ['r1'] }, ['b1', 'a5', 'a2', 'a1']],
        [{ version: ['3'] }, []],
        [{ realm: ['r1'] }, ['b1', 'a5', 'a2', 'a1']],
        [{ realm: ['r1', 'r3'], status: ['Failed'] }, ['b2', 'a2']],
        [{ waitingFor: ['ACC-r2'] }, ['a6']],
        [{ waitingFor: ['ACC-r2'], status: ['Failed'] }, []],
        [{ inDoubt: true }, ['a3']],
        [{ inDoubt: true, status: ['Completed'] }, []],
        [{ inDoubt: false, status: ['Failed'] }, ['b2', 'a2']],
        [{ idPrefix: 'b' }, ['b2', 'b1']],
        [{ idPrefix: 'a5' }, ['a5']],
        [{ idPrefix: '%' }, []],
        [{ tag: ['plan:gold'] }, ['a2', 'a1']],
        [{ tag: ['plan:gold', 'batch:7'] }, ['a1']],
        [{ tag: ['batch:7'], status: ['Queued'] }, ['a7']],
        [{ tag: ['batch:8'] }, []],
        [{ realm: ['r1'], tag: ['plan:gold'], idPrefix: 'a', class: ['http_400'] }, ['a2']],
      ]
      for (const [filter, ids] of cases)
        for (const order of ['created', 'updated'] as const) {
          expect([filter, order, await find(null, { filter, order })]).toEqual([filter, order, ids])
          const own = ids.filter((id) => id.startsWith('a'))
          const found = await find(orders.name, { filter, order })
          expect([filter, order, found]).toEqual([filter, order, own])
        }
    })

    it("a search by the code of a provider does not find a process's own error that begins with the same digits", async () => {
      await attempt(await queue(orders, 'a1'), duplicate)
      await attempt(await queue(orders, 'a2'), ownText)
      await attempt(await queue(orders, 'a3'), { ...duplicate, error: '6240: no message' })
      for (const order of ['created', 'updated'] as const)
        expect(await find(null, { filter: { class: ['6240'] }, order })).toEqual(['a3', 'a1'])
    })

    it('the time filters of a search select runs by their creation time or by the time of their last change', async () => {
      await queueAll()
      const at = (id: string): string => runs.get(id)?.CreatedAt ?? ''
      for (const order of ['created', 'updated'] as const) {
        const filter = { from: at('a3'), until: at('a6') }
        expect(await find(null, { order, filter })).toEqual(['a5', 'a4', 'a3'])
        expect(await find(null, { order, filter: { since: at('b1') } })).toEqual(['b2', 'b1'])
      }
      await source.operate('cancel', orders, 'a5', null, anAct)
      const filter = { since: at('b2') }
      expect(await find(null, { filter })).toEqual(['b2', 'a5'])
      expect(await find(null, { filter, order: 'updated' })).toEqual(['a5', 'b2'])
    })

    it('a search in the order `updated` sorts finished runs by their end, and unfinished runs by their last change', async () => {
      await queueAll()
      await attempt(runs.get('a7') as Run, busy)
      const resumed = await source.operate('resume', orders, 'a2', null, anAct)
      expect((await find(null, { order: 'updated' })).slice(0, 3)).toEqual(['a2', 'a7', 'b2'])
      await attempt(resumed, failed)
      const filter: RunFilter = { status: ['Failed'] }
      expect(await find(null, { order: 'updated', filter })).toEqual(['a2', 'b2', 'a3'])
      expect(await find(null, { filter })).toEqual(['b2', 'a3', 'a2'])
    })

    it('a search returns a run only if its process is permitted and its realm, if it has one, is permitted', async () => {
      await queueAll()
      for (const order of ['created', 'updated'] as const) {
        const bound = (realms: readonly string[], processes: readonly string[], filter = {}) =>
          find(null, { order, filter, visible: { ...EVERYTHING, realms, processes } })
        expect(await bound(['r3'], ['*'])).toEqual(['b2', 'a7', 'a4'])
        expect(await bound(['r3', 'r2'], ['*'], { status: ['Failed'] })).toEqual(['b2', 'a3'])
        expect(await bound(['r*'], ['Inv*', 'X'])).toEqual(['b2', 'b1'])
        expect(await bound(['*'], ['Invoices'], { realm: ['r1'] })).toEqual(['b1'])
        expect(await bound(['r3'], ['*'], { tag: ['plan:gold'] })).toEqual([])
        expect(await bound(['*'], [], {})).toEqual([])
      }
    })

    it('the pages of a search have no gaps or repeats, even if runs are queued between two pages', async () => {
      for (let n = 0; n < 7; n += 1) await queue(n % 2 === 0 ? orders : invoices, String(n))
      const ids: string[] = []
      let after: RunPosition | null = null
      do {
        const page = await source.search(aSearch(null, { limit: 3, after }))
        ids.push(...page.runs.map(({ TransactionID }) => TransactionID))
        after = page.next
        await queue(orders, `new ${ids.length}`)
      } while (after !== null)
      expect(ids).toEqual(['6', '5', '4', '3', '2', '1', '0'])
    })

    it('each run is on exactly one page of a search, even if one request has queued all the transactions', async () => {
      const lines = Array.from({ length: 9 }, (_, n) => ({ TransactionID: `${n}`, InitialData: 1 }))
      await source.queue(orders, lines)
      await source.queue(invoices, lines)
      for (const order of ['created', 'updated'] as const)
        expect((await find(null, { order })).toSorted()).toEqual(
          lines.flatMap(({ TransactionID }) => [TransactionID, TransactionID]),
        )
    })

    it('storedProcesses() names the processes that have runs, and counts the unfinished runs of those that the caller wants', async () => {
      expect(await source.storedProcesses(() => true)).toEqual(new Map())
      await queueAll()
      const counts = { Invoices: 1, OrderProcess: 3 }
      expect(await source.storedProcesses(() => true)).toEqual(new Map(Object.entries(counts)))
      expect(await source.storedProcesses((one) => one === 'Invoices')).toEqual(
        new Map(Object.entries({ Invoices: 1, OrderProcess: null })),
      )
      expect(await source.storedProcesses()).toEqual(
        new Map(Object.entries({ Invoices: null, OrderProcess: null })),
      )
      const { unknownProcesses } = await source.audit(['Other'])
      expect(unknownProcesses, 'their unfinished runs').toEqual(counts)
    })
  })
}
