import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { advance, type StepOutcome } from '../process/progress.ts'
import { defaultRetryPolicy } from '../process/retry-policy.ts'
import type { Act } from './action.ts'
import type { ErasureScope } from './erasure.ts'
import type { RunDetail } from './run-detail.ts'
import type { TransactionSource } from './transaction-source.ts'

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

/** Erasure is a part of the contract of the port `TransactionSource`. */
export function erasureContract(name: string, open: () => Promise<TransactionSource>): void {
  describe(`${name} as a source whose runs can be erased`, () => {
    let source: TransactionSource
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
    /** Queues a run that completes its first step and fails in its second one. */
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
    const erase = async (scope: ErasureScope, limit = 100) => {
      const runs = []
      let after = null
      do {
        const batch = await source.erase(scope, { after, limit }, ada)
        expect(batch.runs.length).toBeLessThanOrEqual(limit)
        runs.push(...batch.runs)
        after = batch.next
      } while (after !== null)
      return runs
    }

    it('erasing a realm blanks data, tags, responses and errors of its ended runs, and keeps ids, statuses and classes', async () => {
      await failedRun('1', 'r1')
      const before = await detail('1')
      expect(JSON.stringify(before)).toContain(MARKER)
      const runs = await erase(ofRealm('r1'))
      expect(runs).toEqual([
        { Process: process.name, TransactionID: '1', ReplayID: 0, isNew: true },
      ])
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

    it('an erasure leaves the runs of other realms and processes, and runs that have not ended', async () => {
      await failedRun('1', 'r1')
      await failedRun('2', 'r2')
      await queue('3', 'r1')
      await queue('4', 'r1', other)
      await source.cancel(other.name, '4', null, anAct)
      await erase({ Realm: 'r1', Process: process.name })
      expect((await detail('1')).run.ErasedAt).not.toBeNull()
      for (const id of ['2', '3'])
        expect((await detail(id)).run).toMatchObject({ ErasedAt: null, Tags: { note: MARKER } })
      expect((await source.get(other.name, '4', null))?.run.ErasedAt).toBeNull()
      expect(await source.unerasable(ofRealm('r1'))).toEqual({ active: 1, unknown: 0 })
      await erase(ofRealm('r1'))
      expect((await source.get(other.name, '4', null))?.run.ErasedAt).not.toBeNull()
      expect((await detail('3')).run).toMatchObject({ ErasedAt: null, Status: 'Queued' })
    })

    it('an erasure of transactions concerns all of their ended runs, and unknown ids are counted', async () => {
      await failedRun('1', 'r1')
      await source.replay(process, '1', { fromStep: 'report', latest: null }, anAct)
      await failedRun('2', 'r1')
      await failedRun('3', 'r1')
      const scope = { Process: process.name, Ids: ['1', '2', 'missing', 'missing'] }
      expect(await erase(scope)).toHaveLength(2)
      expect(await source.unerasable(scope)).toEqual({ active: 1, unknown: 1 })
      expect((await detail('1', 0)).run.ErasedAt).not.toBeNull()
      expect((await detail('1', 1)).run).toMatchObject({ ErasedAt: null, Status: 'Queued' })
      expect((await detail('3')).run.ErasedAt).toBeNull()
      await source.cancel(process.name, '1', 1, anAct)
      expect((await erase(scope)).filter(({ isNew }) => isNew)).toMatchObject([{ ReplayID: 1 }])
    })

    it('an erased run can neither be resumed nor replayed, and queueing its id again starts nothing', async () => {
      await failedRun('1', 'r1')
      await erase(ofRealm('r1'))
      const erased = expect.objectContaining({ code: 'transaction_erased' })
      await expect(source.resume(process.name, '1', null, anAct)).rejects.toEqual(erased)
      await expect(
        source.replay(process, '1', { fromStep: null, latest: null }, anAct),
      ).rejects.toEqual(erased)
      const [again] = await queue('1', 'r1')
      expect(again?.outcome).toBe('exists')
      expect((await detail('1')).run.InitialData).toBeNull()
    })

    it('each erased run has one entry in the action log, however often and in however small batches it is erased', async () => {
      const ids = ['1', '2', '3', '4', '5']
      for (const id of ids) {
        await queue(id, 'r1')
        await source.cancel(process.name, id, null, anAct)
      }
      await source.erase(ofRealm('r1'), { after: null, limit: 2 }, ada) // interrupted after its first batch
      const [once, again] = await Promise.all([erase(ofRealm('r1'), 2), erase(ofRealm('r1'), 3)])
      for (const runs of [once, again]) {
        expect(new Set(runs.map(({ TransactionID }) => TransactionID))).toEqual(new Set(ids))
        expect(runs).toHaveLength(5)
      }
      expect([...once, ...again].filter(({ isNew }) => isNew)).toHaveLength(3)
      const entries = (await source.actions({ limit: 100 })).filter(
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

    it('erased runs keep the audit free of violations', async () => {
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
