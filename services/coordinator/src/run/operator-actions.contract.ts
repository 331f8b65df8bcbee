import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { contractTimes, MARGIN_MS, type MovableSource } from '../../test-support/movable-source.ts'
import { advance, type StepOutcome } from './progress.ts'
import { defaultRetryPolicy } from './retry-policy.ts'
import { type Act, readActions } from './action.ts'
import type { Settlement } from './operator-actions.ts'
import type { ClaimedRun } from './run.ts'
import { isOver } from './status.ts'
import type { Claim, ProcessOutline, WebhooksOf } from './transaction-source.ts'
import { webhookBacklog } from '../webhook/webhook-backlog.ts'

const process: ProcessOutline = { name: 'OrderProcess', steps: ['order', 'report'] }
const done: StepOutcome = { kind: 'completed', response: null, data: null, endsRun: false }
const retryLater: StepOutcome = {
  kind: 'retry',
  errorClass: 'http_503',
  error: 'busy',
  response: null,
  retryAfterMs: 3_600_000,
}
const doubtful: StepOutcome = { ...retryLater, errorClass: 'http_500', isInDoubt: true }
const failedInDoubt: StepOutcome = {
  kind: 'failed',
  errorClass: 'no_answer',
  error: 'no response',
  response: null,
  isInDoubt: true,
}
const waiting: StepOutcome = { kind: 'waiting', credential: 'ACC-1', error: 'faulted' }
const settledDone: Settlement = { outcome: 'done', data: { Id: '7' } }
const notDone: Settlement = { outcome: 'not_done' }
const fromStart = { fromStep: null, latest: null }
const inOperation = (id: string, replayId: number | null = null): Act => ({
  ...anAct,
  reason: 'bulk',
  operation: { id, replayId },
})

/** Tests the operator actions, which are part of the contract of the port `TransactionSource`. */
export function operatorActionsContract(
  name: string,
  open: (webhooksOf?: WebhooksOf) => Promise<MovableSource>,
): void {
  describe(`${name} as a target of operator actions`, () => {
    let source: MovableSource
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())

    const read = async (id = '66') => {
      const found = await source.get(process.name, id, null)
      if (found === null) throw new Error('there is no such run')
      return found
    }
    const queue = (id = '66') =>
      source.queue(process, [{ TransactionID: id, InitialData: { n: 1 } }])
    const claim = async (run: ClaimedRun, owner = 'worker'): Promise<Claim> => {
      const { Version: version, StepName: step } = run
      const isFirst = step === process.steps[0]
      const result = await source.claim({ ...run, version, step, isFirst, owner })
      if (result.kind !== 'claimed') throw new Error(`not claimed: ${result.kind}`)
      return result.claim
    }
    const record = async (outcome: StepOutcome, id = '66') => {
      const claimed = await claim((await read(id)).run)
      const options = { steps: process.steps, policy: defaultRetryPolicy, random: 0.5 }
      await source.record(claimed.lease, advance(claimed.run, outcome, options))
    }
    const retry = (act = anAct) => source.operate('retry', process, '66', null, act)
    const settle = (settlement: Settlement, act = anAct) =>
      source.settle(process, '66', null, settlement, act)

    it.each([
      ['its next attempt', retryLater, 1],
      ['a credential', waiting, 0],
    ] as const)(
      'a run that waits for %s is due at once after an operator retries it, and keeps its number of attempts',
      async (_, outcome, attempts) => {
        await queue()
        await record(outcome)
        const before = (await read()).run
        const run = await retry()
        expect(run).toMatchObject({
          Status: 'Retrying',
          StepName: 'order',
          Version: before.Version + 1,
          Attempt: attempts,
          WaitingFor: null,
          InDoubt: false,
        })
        expect((await read()).run).toEqual(run)
        expect((await claim(run)).run.Attempt).toBe(attempts + 1)
        expect(await source.wake('ACC-1', 10)).toEqual([])
      },
    )

    it('a run in doubt stays in doubt after an operator retries it', async () => {
      await queue()
      await record(doubtful)
      expect(await retry()).toMatchObject({ Status: 'Retrying', InDoubt: true })
    })

    it('a run that is queued without a delay, is running or has ended cannot be retried', async () => {
      const rejected = { code: 'transaction_not_retryable' }
      await queue()
      await expect(retry()).rejects.toMatchObject(rejected)
      const { lease, run } = await claim((await read()).run)
      await expect(retry()).rejects.toMatchObject(rejected)
      const options = { steps: process.steps, policy: defaultRetryPolicy, random: 0 }
      await source.record(lease, advance(run, failedInDoubt, options))
      await expect(retry()).rejects.toMatchObject(rejected)
      await expect(source.operate('retry', process, 'unknown', null, anAct)).rejects.toMatchObject({
        code: 'transaction_not_found',
      })
    })

    it('settling a step as done completes its item with the data that the operator gave, and the next step becomes due', async () => {
      await queue()
      await record(doubtful)
      const before = (await read()).run
      const run = await settle(settledDone)
      expect(run).toMatchObject({
        Status: 'Running',
        StepName: 'report',
        Version: before.Version + 1,
        Attempt: 0,
        InDoubt: false,
        LastError: null,
        ErrorClass: null,
      })
      const { items } = await read()
      expect(items).toMatchObject([
        {
          StepName: 'order',
          Status: 'Completed',
          Attempt: 1,
          IdempotencyKey: 'OrderProcess/66/0/order',
          Data: { Id: '7' },
          Error: null,
          ResponseStatus: null,
        },
      ])
      const next = await claim(run)
      expect(next.items).toMatchObject([{ StepName: 'order', Data: { Id: '7' } }])
    })

    it('settling the last step as done completes the run, and the webhook of the run is stored', async () => {
      await source[Symbol.asyncDispose]()
      source = await open(({ Status, TransactionID }) =>
        Status === 'Completed'
          ? [{ Receiver: 'one', Lane: '1', TransactionID, InitialData: {} }]
          : [],
      )
      await queue()
      await record(done)
      await record(doubtful)
      const run = await settle({ outcome: 'done', data: null })
      expect(run).toMatchObject({ Status: 'Completed', StepName: 'report', NextAttemptAt: null })
      expect(run.CompletedAt).toBe(run.UpdatedAt)
      expect((await read()).items).toContainEqual(
        expect.objectContaining({ StepName: 'report', Status: 'Completed', Data: null }),
      )
      expect(await webhookBacklog(source)).toMatchObject([{ receiver: 'one', waiting: 1 }])
      expect((await source.audit([process.name])).violations).toMatchObject({
        completedWithoutItem: 0,
        itemAhead: 0,
      })
    })

    it('settling a step as not done ends its doubt and makes it due again, and keeps its number of attempts', async () => {
      await queue()
      await record(doubtful)
      const run = await settle(notDone)
      expect(run).toMatchObject({
        Status: 'Retrying',
        StepName: 'order',
        InDoubt: false,
        Attempt: 1,
      })
      expect((await claim(run)).run).toMatchObject({ InDoubt: false, Attempt: 2 })
    })

    it.each([
      ['failed', async () => record(failedInDoubt)],
      [
        'was cancelled',
        async () => {
          await record(doubtful)
          await source.operate('cancel', process, '66', null, anAct)
        },
      ],
    ] as const)('a run in doubt that %s continues when it is settled', async (_, end) => {
      await queue()
      await end()
      expect((await read()).run).toMatchObject({ InDoubt: true })
      const run = await settle(notDone)
      expect(run).toMatchObject({ Status: 'Queued', Attempt: 0, InDoubt: false, CompletedAt: null })
      await record(failedInDoubt)
      expect(await settle(settledDone)).toMatchObject({
        Status: 'Running',
        StepName: 'report',
        CompletedAt: null,
      })
    })

    it('a step cannot be settled while an attempt is in flight, but can be settled after the lease has expired', async () => {
      await queue()
      await record(doubtful)
      const { lease, run } = await claim(await retry())
      await source.advance(contractTimes.leaseMs - MARGIN_MS)
      await expect(settle(notDone)).rejects.toMatchObject({ code: 'step_in_flight' })
      await source.advance(MARGIN_MS)
      expect(await settle(settledDone)).toMatchObject({ Status: 'Running', StepName: 'report' })
      const { attempts } = await read()
      expect(attempts.map(({ Outcome, Attempt }) => [Attempt, Outcome])).toEqual([
        [1, 'http_500'],
        [2, 'in_doubt'],
      ])
      const options = { steps: process.steps, policy: defaultRetryPolicy, random: 0 }
      expect(await source.record(lease, advance(run, done, options))).toBeNull()
    })

    it('a run cannot be settled if it is not in doubt, or if its process does not have the step', async () => {
      await queue()
      for (const settlement of [settledDone, notDone])
        await expect(settle(settlement)).rejects.toMatchObject({ code: 'transaction_not_in_doubt' })
      await record(doubtful)
      const other: ProcessOutline = { name: process.name, steps: ['other'] }
      await expect(source.settle(other, '66', null, settledDone, anAct)).rejects.toMatchObject({
        code: 'step_not_found',
      })
      expect((await read()).run).toMatchObject({ Version: 2, InDoubt: true })
      await claim(await retry())
      await expect(source.settle(other, '66', null, settledDone, anAct)).rejects.toMatchObject({
        code: 'step_in_flight',
      })
    })

    it('retry() and settle() change a run only in the required version, and are recorded in the action log', async () => {
      await queue()
      await record(doubtful)
      const on = (ifVersion: number): Act => ({ ...anAct, ifVersion, reason: 'checked' })
      await expect(retry(on(1))).rejects.toMatchObject({ code: 'version_moved' })
      await expect(settle(notDone, on(1))).rejects.toMatchObject({ code: 'version_moved' })
      await retry(on(2))
      await settle(notDone, on(3))
      const what = { TransactionID: '66', ReplayID: 0, Reason: 'checked', OperationID: null }
      expect(await readActions(source, { limit: 10 })).toMatchObject([
        { ...what, Action: 'settle', Outcome: 'not_done' },
        { ...what, Action: 'retry', Outcome: 'done' },
      ])
    })

    it.each([
      ['done', settledDone, [{ Status: 'Completed', Data: { Id: '7' } }]],
      ['not done', notDone, [{ Status: 'Retrying' }]],
    ] as const)(
      'if a run in doubt was replayed, settling its step as %s does not continue the run',
      async (_, settlement, items) => {
        await queue()
        await record(doubtful)
        await source.operate('cancel', process, '66', null, anAct)
        const replay = await source.replay(process, '66', fromStart, anAct)
        const before = (await source.get(process.name, '66', 0))?.run
        const settleFirst = () => source.settle(process, '66', 0, settlement, anAct)
        const run = await settleFirst()
        expect(run).toEqual({ ...before, InDoubt: false, UpdatedAt: run.UpdatedAt })
        const found = await source.get(process.name, '66', 0)
        expect(found?.run).toEqual(run)
        expect(found?.items).toMatchObject(items)
        expect(await read()).toMatchObject({ run: replay })
        const [entry] = await readActions(source, { limit: 1 })
        expect(entry).toMatchObject({
          Action: 'settle',
          Outcome: settlement.outcome,
          ReplayID: 0,
        })
        const { runs } = await source.search({
          process: process.name,
          filter: { inDoubt: true },
          order: 'created',
          visible: { realms: ['*'], processes: ['*'] },
          limit: 10,
          after: null,
        })
        expect(runs).toEqual([])
        await expect(settleFirst()).rejects.toMatchObject({ code: 'transaction_not_in_doubt' })
        // An earlier run was settled. An operator can nevertheless settle the latest run, which then continues.
        await record(failedInDoubt)
        expect(await settle(notDone)).toMatchObject({ ReplayID: 1, Status: 'Queued' })
      },
    )

    it('only the latest run of a transaction can be resumed', async () => {
      await queue()
      await source.operate('cancel', process, '66', null, anAct)
      await source.replay(process, '66', fromStart, anAct)
      for (const prepare of [
        async () => {},
        async () => source.operate('cancel', process, '66', null, anAct),
      ]) {
        await prepare()
        await expect(source.operate('resume', process, '66', 0, anAct)).rejects.toMatchObject({
          code: 'transaction_not_resumable',
          message: 'only the latest run can be resumed, which is run 1',
        })
      }
      expect(await source.operate('resume', process, '66', 1, anAct)).toMatchObject({
        Status: 'Queued',
      })
    })

    it('if a replay, a resume and a settlement are requested at the same time, only one of them makes a run active', async () => {
      const ids = Array.from({ length: 20 }, (_, n) => `${n}`)
      await Promise.all(
        ids.map(async (id) => {
          await queue(id)
          await record(failedInDoubt, id)
          await Promise.allSettled([
            source.replay(process, id, fromStart, anAct),
            source.operate('resume', process, id, null, anAct),
            source.settle(process, id, null, notDone, anAct),
            source.replay(process, id, fromStart, anAct),
          ])
        }),
      )
      for (const id of ids) {
        const runs = await Promise.all(
          [0, 1, 2].map((replayId) => source.get(process.name, id, replayId)),
        )
        const active = runs.filter((found) => found !== null && !isOver(found.run.Status))
        expect(active, id).toHaveLength(1)
      }
    })

    it('of many concurrent settlements of a run, only one is executed', async () => {
      await queue()
      await record(doubtful)
      const results = await Promise.allSettled(
        Array.from({ length: 10 }, () => settle(settledDone)),
      )
      expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
      expect((await read()).items).toHaveLength(1)
      expect(await readActions(source, { limit: 100 })).toHaveLength(1)
    })

    it('a replay with new initial data shows that its data was changed, and the next replay keeps the new data', async () => {
      await queue()
      const replay = async (initialData?: object | null) => {
        await source.operate('cancel', process, '66', null, anAct)
        const request = { ...fromStart, ...(initialData !== undefined && { initialData }) }
        return source.replay(process, '66', request as typeof fromStart, anAct)
      }
      expect(await replay({ n: 2 })).toMatchObject({ InitialData: { n: 2 }, InputChanged: true })
      expect((await claim((await read()).run)).run.InitialData).toEqual({ n: 2 })
      expect(await replay()).toMatchObject({ InitialData: { n: 2 }, InputChanged: false })
      expect(await replay({ n: 2 })).toMatchObject({ InitialData: { n: 2 }, InputChanged: false })
      expect(await replay(null)).toMatchObject({ InitialData: null, InputChanged: true })
      expect((await source.get(process.name, '66', 0))?.run).toMatchObject({
        InitialData: { n: 1 },
        InputChanged: false,
      })
    })

    it('a bulk operation changes a transaction only once, even if its run could be changed again', async () => {
      await queue()
      await record(failedInDoubt)
      const resume = (act: Act) => source.operate('resume', process, '66', null, act)
      await resume(inOperation('op-1'))
      await record(failedInDoubt)
      for (const replayId of [null, 0])
        await expect(resume(inOperation('op-1', replayId))).rejects.toThrow('has changed the run')
      const { run } = await read()
      expect(run).toMatchObject({ Status: 'Failed' })
      const [entry] = await readActions(source, { limit: 10 })
      expect(entry).toMatchObject({ Action: 'resume', Reason: 'bulk', OperationID: 'op-1' })
      await resume(inOperation('op-2'))
    })

    it('a bulk operation replays a transaction once, and only if no newer run was started since the search', async () => {
      await queue()
      await source.operate('cancel', process, '66', null, anAct)
      const replay = (act: Act) => source.replay(process, '66', fromStart, act)
      await expect(replay(inOperation('op-1', 1))).rejects.toMatchObject({ code: 'version_moved' })
      expect(await replay(inOperation('op-1', 0))).toMatchObject({ ReplayID: 1 })
      await source.operate('cancel', process, '66', null, anAct)
      await expect(replay(inOperation('op-1', 0))).rejects.toThrow('has changed the run')
      await expect(replay(inOperation('op-1', 1))).rejects.toMatchObject({ code: 'version_moved' })
      await expect(replay(inOperation('op-1'))).rejects.toThrow('has changed the run')
      expect((await read()).run).toMatchObject({ ReplayID: 1, Status: 'Cancelled' })
    })

    it('of many concurrent actions of the same bulk operation on a transaction, only one is executed', async () => {
      await queue()
      await source.operate('cancel', process, '66', null, anAct)
      const results = await Promise.allSettled(
        Array.from({ length: 10 }, () =>
          source.operate('resume', process, '66', null, inOperation('op-1', 0)),
        ),
      )
      expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
      for (const result of results)
        if (result.status === 'rejected') expect(`${result.reason}`).toContain('DoneBefore')
    })
  })
}
