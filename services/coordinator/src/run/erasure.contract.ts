import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { contractTimes, MARGIN_MS, type MovableSource } from '../../test-support/movable-source.ts'
import { advance, type StepOutcome } from './progress.ts'
import { defaultRetryPolicy } from './retry-policy.ts'
import { type Act, readActions } from './action.ts'
import type { ErasureScope } from './erasure.ts'
import { firstRunsOf, type RunDetail } from './run-detail.ts'

const steps = ['order', 'report'] as [string, ...string[]]
const process = { name: 'OrderProcess', steps }
const other = { name: 'OtherProcess', steps }
const MARKER = 'personal data'
const ada: Act = {
  by: { keyId: 'console', person: 'ada@example.com' },
  reason: 'case 7',
  ifVersion: null,
}
const ofRealm = (realm: string): ErasureScope => ({ Realm: realm, Process: null })

const completed: StepOutcome = {
  kind: 'completed',
  response: { status: 200, body: MARKER },
  data: { note: MARKER },
  endsRun: false,
}
const failed: StepOutcome = {
  kind: 'failed',
  errorClass: 'http_400',
  error: MARKER,
  response: { status: 400, body: MARKER },
}

const call = { method: 'GET', url: `http://x/${MARKER}`, traceId: 'trace', responseId: 'response' }

/** Tests the erasure, which is part of the contract of the port `TransactionSource`. */
export function erasureContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`${name} as a source whose runs can be erased`, () => {
    let source: MovableSource
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())

    const queue = (TransactionID: string, Realm: string, of = process) =>
      source.queue(of, [
        { TransactionID, InitialData: { note: MARKER }, Realm, Tags: { note: MARKER } },
      ])
    const runStep = async (id: string, outcome: StepOutcome): Promise<void> => {
      const { run } = await detail(id)
      const { Version: version, StepName: step } = run
      const isFirst = step === 'order'
      const result = await source.claim({ ...run, version, step, isFirst, owner: 'worker' })
      if (result.kind !== 'claimed') throw new Error(`not claimed: ${result.kind}`)
      const { lease, run: claimed } = result.claim
      const options = { steps, policy: defaultRetryPolicy, random: 0 }
      await source.record(lease, { ...advance(claimed, outcome, options), call })
    }
    /** Queues a run that completes its first step and fails in its second step. */
    const failedRun = async (id: string, realm: string): Promise<void> => {
      await queue(id, realm)
      await runStep(id, completed)
      await runStep(id, failed)
    }
    const detail = async (id: string, replay: number | null = null): Promise<RunDetail> => {
      const found = await source.get(process.name, id, replay)
      if (found === null) throw new Error(`${id} is unknown`)
      return found
    }
    /** Erases the runs of a scope, page by page until the last page. */
    const erase = async (scope: ErasureScope, limit = 100) => {
      const counts = { erased: 0, notEnded: 0 }
      let after = null
      do {
        const page = await source.erasable(scope, { after, limit })
        expect(page.runs.length + page.notEnded).toBeLessThanOrEqual(limit)
        counts.erased += await source.erase(page.runs, ada)
        counts.notEnded += page.notEnded
        after = page.next
      } while (after !== null)
      await source.compact()
      return counts
    }

    it('erasing a realm blanks the data, tags, responses and errors of its ended runs, and keeps their ids, statuses and error classes', async () => {
      await failedRun('1', 'r1')
      const before = await detail('1')
      expect(JSON.stringify(before)).toContain(MARKER)
      expect(await erase(ofRealm('r1'))).toEqual({ erased: 1, notEnded: 0 })
      const after = await detail('1')
      expect(JSON.stringify(after)).not.toContain(MARKER)
      const { ErasedAt } = after.run
      expect(ErasedAt).toBe(new Date(ErasedAt ?? '').toISOString())
      expect(after).toEqual({
        ...before,
        run: { ...before.run, InitialData: null, Tags: null, LastError: null, ErasedAt },
        items: before.items.map((item) => ({
          ...item,
          ResponseBody: null,
          Data: null,
          Error: null,
        })),
        attempts: before.attempts.map((attempt) => ({
          ...attempt,
          Error: null,
          Request: null,
        })),
      })
    })

    it('an erasure does not change runs of other realms or processes, nor runs that have not ended', async () => {
      await failedRun('1', 'r1')
      await failedRun('2', 'r2')
      await queue('3', 'r1')
      await queue('4', 'r1', other)
      await source.operate('cancel', other, '4', null, anAct)
      expect(await erase({ Realm: 'r1', Process: process.name })).toEqual({
        erased: 1,
        notEnded: 1,
      })
      expect((await detail('1')).run.ErasedAt).not.toBeNull()
      for (const id of ['2', '3'])
        expect((await detail(id)).run).toMatchObject({ ErasedAt: null, Tags: { note: MARKER } })
      expect((await source.get(other.name, '4', null))?.run.ErasedAt).toBeNull()
      expect(await erase(ofRealm('r1'))).toEqual({ erased: 1, notEnded: 1 })
      expect((await source.get(other.name, '4', null))?.run.ErasedAt).not.toBeNull()
      expect((await detail('3')).run).toMatchObject({ ErasedAt: null, Status: 'Queued' })
    })

    it('erasing transactions by their ids erases all their ended runs, and counts unknown ids', async () => {
      await failedRun('1', 'r1')
      await source.replay(process, '1', { fromStep: 'report', latest: null }, anAct)
      await failedRun('2', 'r1')
      await failedRun('3', 'r1')
      const scope = { Process: process.name, Ids: ['1', '2', 'missing', 'missing'] }
      expect(await erase(scope)).toEqual({ erased: 2, notEnded: 1 })
      const firstRuns = await firstRunsOf(source, scope.Process, scope.Ids)
      const realms = firstRuns.map(({ TransactionID, Realm }) => [TransactionID, Realm] as const)
      expect(new Map(realms)).toEqual(
        new Map([
          ['1', 'r1'],
          ['2', 'r1'],
        ]),
      )
      expect(realms).toHaveLength(2)
      expect((await detail('1', 0)).run.ErasedAt).not.toBeNull()
      expect((await detail('1', 1)).run).toMatchObject({ ErasedAt: null, Status: 'Queued' })
      expect((await detail('3')).run.ErasedAt).toBeNull()
      await source.operate('cancel', process, '1', 1, anAct)
      expect(await erase(scope)).toEqual({ erased: 1, notEnded: 0 })
      expect((await detail('1', 1)).run.ErasedAt).not.toBeNull()
    })

    it('an erased run can neither be resumed nor replayed, and queueing its id again does not start a run', async () => {
      await failedRun('1', 'r1')
      await erase(ofRealm('r1'))
      const erased = expect.objectContaining({ code: 'transaction_erased' })
      await expect(source.operate('resume', process, '1', null, anAct)).rejects.toEqual(erased)
      await expect(
        source.replay(process, '1', { fromStep: null, latest: null }, anAct),
      ).rejects.toEqual(erased)
      const [again] = await queue('1', 'r1')
      expect(again?.outcome).toBe('exists')
      expect((await detail('1')).run.InitialData).toBeNull()
    })

    it('an erased run can be replayed with the new initial data null, and the replay shows that its initial data was changed', async () => {
      await failedRun('1', 'r1')
      await erase(ofRealm('r1'))
      const request = { fromStep: null, latest: null, initialData: null }
      expect(await source.replay(process, '1', request, anAct)).toMatchObject({
        ReplayID: 1,
        InitialData: null,
        InputChanged: true,
      })
    })

    it('each erased run has one entry in the action log, even if erasures are interrupted, repeated or concurrent', async () => {
      const ids = ['1', '2', '3', '4', '5']
      for (const id of ids) {
        await queue(id, 'r1')
        await source.operate('cancel', process, id, null, anAct)
      }
      const { runs } = await source.erasable(ofRealm('r1'), { after: null, limit: 2 })
      expect(await source.erase(runs, ada)).toBe(2) // the erasure is interrupted after its first page
      const [once, again] = await Promise.all([erase(ofRealm('r1'), 2), erase(ofRealm('r1'), 3)])
      expect(once.erased + again.erased).toBe(3)
      const entries = (await readActions(source, { limit: 100 })).filter(
        ({ Action }) => Action === 'erase',
      )
      expect(entries).toHaveLength(5)
      expect(new Set(entries.map(({ TransactionID }) => TransactionID))).toEqual(new Set(ids))
      expect(entries[0]).toMatchObject({
        KeyID: 'console',
        Person: 'ada@example.com',
        Process: process.name,
        ReplayID: 0,
        Realm: 'r1',
        Reason: 'case 7',
        Outcome: 'done',
      })
    })

    it('the pages of erasable runs omit erased and unfinished runs, and contain every other run', async () => {
      for (const id of ['1', '2', '3', '4']) await failedRun(id, 'r1')
      const first = await source.erasable(ofRealm('r1'), { after: null, limit: 2 })
      expect(first.runs.map(({ TransactionID }) => TransactionID)).toEqual(['1', '2'])
      await source.erase(first.runs.slice(1), ada)
      const again = await source.erasable(ofRealm('r1'), { after: null, limit: 2 })
      expect(again.runs.map(({ TransactionID }) => TransactionID)).toEqual(['1', '3'])
      const { runs } = await source.erasable(ofRealm('r1'), { after: first.next, limit: 5 })
      expect(runs.map(({ TransactionID }) => TransactionID)).toEqual(['3', '4'])
    })

    it('an erasure skips a run that has changed since it was read, and erases the run after reading it again', async () => {
      await failedRun('1', 'r1')
      const { runs } = await source.erasable(ofRealm('r1'), { after: null, limit: 5 })
      await source.operate('resume', process, '1', null, anAct)
      expect(await source.erase(runs, ada)).toBe(0)
      await source.operate('cancel', process, '1', null, anAct)
      expect(await source.erase(runs, ada)).toBe(0)
      expect((await detail('1')).run.InitialData).toEqual({ note: MARKER })
      expect(await erase(ofRealm('r1'))).toEqual({ erased: 1, notEnded: 0 })
    })

    it('a run that was cancelled during an attempt counts as unfinished until the duration of a lease has passed', async () => {
      await queue('1', 'r1')
      const { run } = await detail('1')
      const at = { version: run.Version, step: 'order', isFirst: true, owner: 'worker' }
      await source.claim({ ...run, ...at })
      await source.operate('cancel', process, '1', null, anAct)
      await source.advance(contractTimes.leaseMs - MARGIN_MS)
      expect(await erase(ofRealm('r1'))).toEqual({ erased: 0, notEnded: 1 })
      expect((await detail('1')).run.InitialData).toEqual({ note: MARKER })
      await source.advance(MARGIN_MS)
      expect(await erase(ofRealm('r1'))).toEqual({ erased: 1, notEnded: 0 })
    })

    it('an erased run does not contain data of a settlement that an operator made during the erasure', async () => {
      await failedRun('1', 'r1')
      await source.replay(process, '1', { fromStep: 'report', latest: null }, anAct)
      const { run } = await detail('1')
      const at = { version: run.Version, step: 'report', isFirst: false, owner: 'worker' }
      await source.claim({ ...run, ...at })
      await source.operate('cancel', process, '1', null, anAct)
      await source.advance(contractTimes.leaseMs)
      const settlement = { outcome: 'done', data: { note: MARKER } } as const
      const [settled] = await Promise.allSettled([
        source.settle(process, '1', null, settlement, anAct),
        erase(ofRealm('r1')),
      ])
      const { run: after, items } = await detail('1')
      const isErased = after.ErasedAt !== null
      expect(isErased || settled.status === 'fulfilled').toBe(true)
      expect(JSON.stringify(items).includes(MARKER)).toBe(!isErased)
      await erase(ofRealm('r1'))
      expect(JSON.stringify(await detail('1'))).not.toContain(MARKER)
    })

    it('an audit does not report erased runs as violations', async () => {
      await queue('1', 'r1')
      await runStep('1', completed)
      await runStep('1', completed)
      await failedRun('2', 'r1')
      await erase(ofRealm('r1'))
      const { violations, runsByStatus } = await source.audit([process.name])
      expect(Object.values(violations).every((count) => count === 0)).toBe(true)
      expect(runsByStatus).toEqual({ Completed: 1, Failed: 1 })
    })
  })
}
