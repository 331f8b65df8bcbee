import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { type Act, readActions, recordWithoutChange } from './action.ts'
import { createPauseStore } from './pause.ts'
import type { ProcessOutline, TransactionSource } from './transaction-source.ts'

const process: ProcessOutline = { name: 'OrderProcess', steps: ['order', 'report', 'csv'] }
const other: ProcessOutline = { name: 'OtherProcess', steps: ['only'] }
const fromStart = { fromStep: null, latest: null }
const ada: Act = {
  by: { keyId: 'console', person: 'ada@example.com' },
  reason: 'the customer asked for it',
  ifVersion: null,
}

/** Tests the action log, which is part of the contract of the port `TransactionSource`. */
export function actionLogContract(name: string, open: () => Promise<TransactionSource>): void {
  describe(`${name} as an action log`, () => {
    let source: TransactionSource
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())

    const queue = (id: string, Realm?: string) =>
      source.queue(process, [
        { TransactionID: id, InitialData: 'business data', ...(Realm !== undefined && { Realm }) },
      ])
    const log = (filter = {}) => readActions(source, { limit: 100, ...filter })

    it('an action is recorded with key, person, process, transaction, run, realm and reason, newest first', async () => {
      await queue('66', '42')
      const startedAt = Date.now()
      await source.operate('cancel', process, '66', 0, ada)
      await source.operate('resume', process, '66', null, { ...ada, reason: null })
      await source.operate('cancel', process, '66', null, anAct)
      await source.replay(process, '66', fromStart, anAct)
      const actions = await log()
      const of66 = {
        Process: 'OrderProcess',
        TransactionID: '66',
        Realm: '42',
        Outcome: 'done',
        OperationID: null,
      }
      const byAda = { KeyID: 'console', Person: 'ada@example.com' }
      const byOps = { KeyID: 'ops', Person: null, Reason: null }
      const expected = [
        { ...of66, ...byOps, Action: 'replay', ReplayID: 1 },
        { ...of66, ...byOps, Action: 'cancel', ReplayID: 0 },
        { ...of66, ...byAda, Action: 'resume', ReplayID: 0, Reason: null },
        { ...of66, ...byAda, Action: 'cancel', ReplayID: 0, Reason: 'the customer asked for it' },
      ]
      expect(actions.map(({ ID: _id, At: _at, ...action }) => action)).toEqual(expected)
      for (const { At } of actions) {
        expect(At).toBe(new Date(At).toISOString())
        expect(Math.abs(Date.parse(At) - startedAt)).toBeLessThan(60_000)
      }
    })

    it('the pause and the resumption of a process are recorded without a transaction', async () => {
      await createPauseStore(source).setPaused(process.name, true, ada)
      await createPauseStore(source).setPaused(process.name, true, anAct)
      await createPauseStore(source).setPaused(process.name, false, anAct)
      const what = { Process: 'OrderProcess', TransactionID: null, ReplayID: null, Realm: null }
      expect(await log()).toMatchObject([
        { ...what, Action: 'resume', KeyID: 'ops' },
        { ...what, Action: 'pause', KeyID: 'ops' },
        { ...what, Action: 'pause', KeyID: 'console', Reason: 'the customer asked for it' },
      ])
    })

    it('if a request has an actor, each new transaction is recorded with its own reason, and existing transactions are not recorded', async () => {
      await queue('1')
      const lines = [
        { TransactionID: '1', InitialData: 'business data', Reason: 'exists' },
        { TransactionID: '2', InitialData: 'x', Reason: 'the first' },
        { TransactionID: '2', InitialData: 'x', Reason: 'the second' },
        { TransactionID: '3', InitialData: 'x', Realm: '7' },
        { TransactionID: '1', InitialData: 'other', Reason: 'conflicts' },
      ]
      const results = await source.queue(process, lines, ada.by)
      const outcomes = ['exists', 'queued', 'exists', 'queued', 'conflict']
      expect(results.map(({ outcome }) => outcome)).toEqual(outcomes)
      const actions = (await log()).toSorted((a, b) =>
        `${a.TransactionID}` < `${b.TransactionID}` ? -1 : 1,
      )
      const queued = { Action: 'queue', KeyID: 'console', Person: 'ada@example.com', ReplayID: 0 }
      expect(actions).toMatchObject([
        { ...queued, TransactionID: '2', Reason: 'the first', Realm: null, Outcome: 'done' },
        { ...queued, TransactionID: '3', Reason: null, Realm: '7', Outcome: 'done' },
      ])
      expect(actions).toHaveLength(2)
    })

    it('a rejected action changes nothing and is recorded with its code and the realm of the transaction', async () => {
      await queue('66', '42')
      await recordWithoutChange(source, {
        kind: 'resume',
        act: ada,
        Process: process.name,
        TransactionID: '66',
        ReplayID: null,
        Outcome: 'transaction_not_resumable',
      })
      await recordWithoutChange(source, {
        kind: 'cancel',
        act: anAct,
        Process: process.name,
        TransactionID: 'unknown',
        ReplayID: 3,
        Outcome: 'transaction_not_found',
      })
      expect(await log()).toMatchObject([
        {
          Action: 'cancel',
          TransactionID: 'unknown',
          ReplayID: 3,
          Realm: null,
          Outcome: 'transaction_not_found',
        },
        {
          Action: 'resume',
          TransactionID: '66',
          ReplayID: null,
          Realm: '42',
          Outcome: 'transaction_not_resumable',
        },
      ])
      expect((await source.get(process.name, '66', null))?.run).toMatchObject({ Version: 0 })
      expect((await createPauseStore(source).paused()).size).toBe(0)
    })

    it('a read of data is recorded without a change, also if it is about all processes', async () => {
      await queue('66', '42')
      const read = { act: ada, Outcome: 'done' } as const
      const run = { Process: process.name, TransactionID: '66', ReplayID: 0 }
      await recordWithoutChange(source, { ...read, ...run, kind: 'read_data' })
      const all = { Process: '*', TransactionID: null, ReplayID: null }
      await recordWithoutChange(source, { ...read, ...all, kind: 'export' })
      expect(await log()).toMatchObject([
        { ...all, Action: 'export', Realm: null, Outcome: 'done' },
        { ...run, Action: 'read_data', Realm: '42', Outcome: 'done' },
      ])
    })

    it('an action that throws an error is not recorded', async () => {
      await queue('66')
      await expect(source.operate('resume', process, '66', null, ada)).rejects.toMatchObject({
        code: 'transaction_not_resumable',
      })
      await expect(source.operate('cancel', process, 'unknown', null, ada)).rejects.toMatchObject({
        code: 'transaction_not_found',
      })
      await source.operate('cancel', process, '66', null, anAct)
      await expect(
        source.replay(process, '66', { fromStep: 'csv', latest: null }, ada),
      ).rejects.toMatchObject({ code: 'invalid_request' })
      expect(await log()).toMatchObject([{ Action: 'cancel', KeyID: 'ops' }])
    })

    it('the action log can be filtered by process and transaction, and read page by page with the ID of the last entry', async () => {
      for (const id of ['1', '2', '3']) await queue(id)
      await source.queue(other, [{ TransactionID: '1', InitialData: 1 }])
      for (const id of ['1', '2', '3']) await source.operate('cancel', process, id, null, anAct)
      await source.operate('cancel', other, '1', null, anAct)
      await source.operate('resume', process, '1', null, anAct)
      const shown = async (filter: object) =>
        (await log(filter)).map(
          (action) => `${action.Action} ${action.Process[1]}${action.TransactionID}`,
        )
      expect(await shown({ process: other.name })).toEqual(['cancel t1'])
      expect(await shown({ transactionId: '1' })).toEqual(['resume r1', 'cancel t1', 'cancel r1'])
      expect(await shown({ transactionId: '1', process: process.name })).toEqual([
        'resume r1',
        'cancel r1',
      ])
      expect(await shown({ process: 'Nobody' })).toEqual([])
      const [first, second, ...rest] = await log()
      const next = await log({ before: second?.ID, limit: 2 })
      expect(next).toEqual(rest.slice(0, 2))
      expect(first?.ID).toBeGreaterThan(second?.ID ?? Infinity)
    })

    it('an action with a required version is executed only if the run has this version', async () => {
      await queue('66')
      const on = (ifVersion: number): Act => ({ ...anAct, ifVersion })
      for (const attempt of [
        () => source.operate('cancel', process, '66', null, on(1)),
        () => source.operate('resume', process, '66', 0, on(1)),
        () => source.replay(process, '66', fromStart, on(1)),
      ])
        await expect(attempt()).rejects.toMatchObject({
          code: 'version_moved',
          members: { Version: 0 },
        })
      expect(await source.operate('cancel', process, '66', null, on(0))).toMatchObject({
        Version: 1,
      })
      expect(await source.operate('resume', process, '66', null, on(1))).toMatchObject({
        Version: 2,
      })
      await source.operate('cancel', process, '66', null, on(2))
      expect(await source.replay(process, '66', fromStart, on(3))).toMatchObject({ ReplayID: 1 })
    })

    it('a replay that requires a certain latest run is rejected if a newer run was started, even if both runs have the same version', async () => {
      await queue('66')
      await source.operate('cancel', process, '66', null, anAct)
      const replay = () =>
        source.replay(process, '66', { fromStep: null, latest: 0 }, { ...anAct, ifVersion: 1 })
      await replay()
      expect(await source.operate('cancel', process, '66', null, anAct)).toMatchObject({
        Version: 1,
      })
      await expect(replay()).rejects.toMatchObject({ code: 'version_moved' })
      expect((await source.get(process.name, '66', null))?.run.ReplayID).toBe(1)
    })

    it('of many concurrent actions on the same version of a run, only one is executed and recorded', async () => {
      await queue('66')
      const act = { ...anAct, ifVersion: 0 }
      const results = await Promise.allSettled(
        Array.from({ length: 20 }, () => source.operate('cancel', process, '66', null, act)),
      )
      const codes = results.map((result) =>
        result.status === 'fulfilled' ? 'done' : (result.reason as { code: string }).code,
      )
      expect(codes.toSorted()).toEqual([
        'done',
        ...Array.from({ length: 19 }, () => 'version_moved'),
      ])
      expect(await log()).toHaveLength(1)
    })

    it('the action log contains no initial data', async () => {
      await source.queue(
        process,
        [{ TransactionID: '66', InitialData: { a: 'business data' } }],
        ada.by,
      )
      await source.operate('cancel', process, '66', null, ada)
      await source.replay(process, '66', fromStart, ada)
      const text = JSON.stringify(await log())
      expect(text).toContain('66')
      expect(text).not.toContain('business data')
    })
  })
}
