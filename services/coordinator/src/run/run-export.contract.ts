import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import type { MovableSource } from '../../test-support/movable-source.ts'
import { type EndPosition, FIRST_END } from './retention.ts'
import { installation } from '../records/installation.ts'
import { EXPORT_LAG_MS, exportEnd, type ExportRange } from './run-detail.ts'
import type { ProcessOutline } from './transaction-source.ts'

const process: ProcessOutline = { name: 'OrderProcess', steps: ['order'] }

/** Tests the export of runs; both the memory and the PostgreSQL source must pass these tests. */
export function runExportContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a source of exports`, () => {
    let source: MovableSource
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())

    /** Queues a run and ends it, so that the run has an item and an attempt. */
    async function ended(id: string): Promise<string> {
      await source.queue(process, [{ TransactionID: id, InitialData: { id } }])
      const key = { Process: process.name, TransactionID: id, ReplayID: 0 }
      const at = { step: 'order', isFirst: true, version: 0, owner: 'a worker' }
      const result = await source.claim({ ...key, ...at })
      if (result.kind !== 'claimed') throw new Error(result.kind)
      const recorded = await source.record(result.claim.lease, {
        status: 'Completed',
        stepName: 'order',
        attempt: 0,
        delayMs: 0,
        waitingFor: null,
        lastError: null,
        errorClass: null,
        isInDoubt: false,
        item: {
          status: 'Completed',
          data: { id },
          error: null,
          response: { status: 200, body: id },
        },
      })
      await source.advance(2)
      return recorded?.CompletedAt ?? ''
    }
    const now = async () => new Date(await source.records(installation('')).now()).toISOString()
    async function all(range: Partial<ExportRange> = {}, limit = 1) {
      const runs = []
      const whole = { process: process.name, since: null, until: await now(), ...range }
      for (let after: EndPosition | null = FIRST_END; after !== null;) {
        const page = await source.exportPage(whole, after, limit)
        runs.push(...page.runs)
        after = page.next
      }
      return runs
    }
    const ids = (runs: Awaited<ReturnType<typeof all>>) => runs.map(({ run }) => run.TransactionID)

    it('finished runs are exported with their items and attempts, in the order in which they ended', async () => {
      await source.queue(process, [{ TransactionID: 'active', InitialData: 1 }])
      for (const id of ['c', 'a', 'b']) await ended(id)
      const runs = await all()
      expect(ids(runs)).toEqual(['c', 'a', 'b'])
      expect(runs[0]).toMatchObject({
        run: { Status: 'Completed', InitialData: { id: 'c' } },
        items: [{ StepName: 'order', Status: 'Completed', ResponseBody: 'c', Data: { id: 'c' } }],
        attempts: [{ StepName: 'order', Attempt: 1, Outcome: 'completed' }],
      })
      expect(ids(await all({ process: 'OtherProcess' }))).toEqual([])
    })

    it('an export contains only the runs that ended at `since` or later and before `until`', async () => {
      const ends = []
      for (const id of ['1', '2', '3']) ends.push(await ended(id))
      expect(ids(await all({ since: ends[1] ?? '' }))).toEqual(['2', '3'])
      expect(ids(await all({ until: ends[1] ?? '' }))).toEqual(['1'])
    })

    it('an export continues after any position and neither repeats nor misses runs that ended in the same instant', async () => {
      const many = Array.from({ length: 5 }, (_, n) => ({ TransactionID: `${n}`, InitialData: n }))
      await source.queue(process, many)
      await Promise.all(
        many.map(({ TransactionID }) =>
          source.operate('cancel', process, TransactionID, null, anAct),
        ),
      )
      await source.advance(2)
      for (const limit of [1, 2, 100])
        expect(ids(await all({}, limit)).toSorted()).toEqual(['0', '1', '2', '3', '4'])
    })

    it('purged runs are not exported', async () => {
      await ended('1')
      const policy = { process: process.name, completedMs: 0, failedMs: 0 }
      const { runs } = await source.purgeable(policy, FIRST_END, 10)
      expect(await source.purge(policy, runs)).toBe(1)
      expect(await all()).toEqual([])
    })

    it('the end of an export is the requested time, but always at least a minute ago', async () => {
      expect(await exportEnd(source, '2026-01-01T00:00:00+01:00')).toBe('2025-12-31T23:00:00.000Z')
      for (const wanted of ['2999-01-01T00:00:00Z', null]) {
        const end = Date.parse(await exportEnd(source, wanted))
        expect(Math.abs(end + EXPORT_LAG_MS - Date.now())).toBeLessThan(60_000)
      }
    })
  })
}
