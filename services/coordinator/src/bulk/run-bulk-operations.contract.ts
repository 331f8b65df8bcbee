import { IntegrationError } from '@integration-host/shared/errors'
import { createLogger } from '@integration-host/shared/observability/logger'
import { systemClock } from '@integration-host/shared/process/clock'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { type Backends, openBackends } from '../../test-support/fixture.ts'
import { advance } from '../run/progress.ts'
import { defaultRetryPolicy } from '../run/retry-policy.ts'
import type { OperationRequest } from './bulk-operation.ts'
import { createOperationStore, type OperationStore } from './bulk-operation-store.ts'
import type { ProcessOutline, TransactionSource } from '../run/transaction-source.ts'
import { type OperationRunnerDeps, startOperationRunner } from './run-bulk-operations.ts'
import { createStoreRetry } from '../worker/store-retry.ts'
import { readActions } from '../run/action.ts'

const by = { keyId: 'console', person: 'ada@example.com' }
const LEASE_MS = 1_000

/** Tests how replicas work on bulk operations. All backends must pass these tests. */
export function operationRunnerContract(kind: Backends['kind']): void {
  describe(`bulk operations on the ${kind} source`, () => {
    let backends: Backends
    let source: TransactionSource
    let store: OperationStore
    let process: ProcessOutline
    let stack: AsyncDisposableStack
    beforeAll(async () => {
      backends = await openBackends(kind)
      source = await backends.openSource({ leaseMs: LEASE_MS })
      store = createOperationStore(source, LEASE_MS)
    })
    afterAll(async () => {
      await source[Symbol.asyncDispose]()
      await backends[Symbol.asyncDispose]()
    })
    beforeEach(() => {
      // Each test uses its own process, so that it finds only its own runs.
      process = { name: `P${crypto.randomUUID().slice(0, 8)}`, steps: ['first', 'last'] }
      stack = new AsyncDisposableStack()
    })
    afterEach(() => stack.disposeAsync())

    type Act = (id: string) => void | Promise<void>
    /** Starts a replica that calls `before` and `after` around each action on a run. */
    function replica({
      before,
      after,
      ...more
    }: { before?: Act; after?: Act } & Partial<OperationRunnerDeps> = {}) {
      const wrap =
        <Args extends [string, string, ...unknown[]], Result>(
          act: (...args: Args) => Promise<Result>,
        ) =>
        async (...args: Args): Promise<Result> => {
          await before?.(args[1])
          const result = await act(...args)
          await after?.(args[1])
          return result
        }
      const runs: string[] = []
      const runner = startOperationRunner({
        source,
        store,
        runActions: {
          resume: wrap((_, id, replayId, act) =>
            source.operate('resume', process, id, replayId, act),
          ),
          cancel: wrap((_, id, replayId, act) =>
            source.operate('cancel', process, id, replayId, act),
          ),
          retry: wrap((_, id, replayId, act) =>
            source.operate('retry', process, id, replayId, act),
          ),
          replay: wrap((_, id, request, act) => source.replay(process, id, request, act)),
        },
        takeBack: { begin: async () => {} },
        processes: [process.name],
        keys: { hasEnded: () => false },
        owner: crypto.randomUUID(),
        retryStore: createStoreRetry(() => 0.5),
        log: createLogger('test', 'silent'),
        clock: systemClock,
        random: () => 0.5,
        intervalMs: 50,
        onCount() {},
        onRun: (_, outcome) => runs.push(outcome),
        ...more,
      })
      stack.use(runner)
      return { runs, stop: () => runner[Symbol.asyncDispose]() }
    }

    const ids = (count: number) => Array.from({ length: count }, (_, n) => `t${100 + n}`)
    const queue = (names: readonly string[], Realm?: string) =>
      source.queue(
        process,
        names.map((TransactionID) => ({
          TransactionID,
          InitialData: 1,
          ...(Realm !== undefined && { Realm }),
        })),
      )
    const cancel = async (names: readonly string[]) => {
      for (const id of names) await source.operate('cancel', process, id, null, anAct)
    }
    const runOf = async (id: string) => {
      const found = await source.get(process.name, id, null)
      if (found === null) throw new Error('there is no such run')
      return found.run
    }
    const start = async (
      Action: OperationRequest['Action'],
      request: Partial<OperationRequest['Request']>,
      more: Partial<OperationRequest> = {},
    ): Promise<string> => {
      const Request = { PerSecond: 1_000, Realms: ['*'], ...request }
      const id = crypto.randomUUID()
      const operation = { Action, Process: process.name, DryRun: false, Request, ...more }
      await store.startOperation(id, operation, { by, reason: 'because' })
      return id
    }
    const reached = (id: string, status: string) =>
      eventually(async () => {
        const operation = await store.operation(id)
        expect(operation?.Status).toBe(status)
        return operation?.Progress
      })
    /** Returns the transactions that the operation has changed, according to the action log. */
    const changedBy = async (id: string): Promise<readonly string[]> => {
      const actions = await readActions(source, { process: process.name, limit: 500 })
      return actions
        .filter(({ OperationID, TransactionID }) => OperationID === id && TransactionID !== null)
        .map(({ TransactionID }) => `${TransactionID}`)
        .toSorted()
    }

    it('a bulk operation stops with its reason when its key has ended, and goes on if it was kept', async () => {
      const names = ids(2)
      await queue(names)
      const id = await start('cancel', { Ids: names })
      const kept = await start('cancel', { Ids: names })
      expect(
        (await store.openOperations(by.keyId)).filter((one) => [id, kept].includes(one)),
      ).toHaveLength(2)
      await store.keepOperation(kept)
      replica({ keys: { hasEnded: (keyId) => keyId === by.keyId } })
      await reached(id, 'Stopped')
      expect((await store.operation(id))?.StatusReason).toBe('key_ended')
      await reached(kept, 'Completed')
      expect(await changedBy(kept)).toEqual(names)
      expect(await changedBy(id)).toEqual([])
      expect(await store.openOperations(by.keyId)).not.toContain(id)
    })

    it('a bulk operation on ids changes the latest run of each id, and reports counts and failures', async () => {
      const names = ids(5)
      await queue(names)
      await cancel(names.slice(0, 3))
      const { runs } = replica()
      const id = await start('resume', { Ids: ['gone', ...names] })
      expect(await reached(id, 'Completed')).toMatchObject({
        Done: 3,
        Skipped: 2,
        FailedByCode: { transaction_not_found: 1 },
        Failures: [{ TransactionID: 'gone', ReplayID: null, Code: 'transaction_not_found' }],
        Matches: [],
      })
      expect(await changedBy(id)).toEqual(names.slice(0, 3))
      for (const name of names) expect(await runOf(name)).toMatchObject({ Status: 'Queued' })
      expect(runs.toSorted()).toEqual(['done', 'done', 'done', 'failed', 'skipped', 'skipped'])
      const [entry] = await readActions(source, { process: process.name, limit: 1 })
      expect(entry).toMatchObject({
        Action: 'resume',
        KeyID: 'console',
        Person: 'ada@example.com',
        Reason: 'because',
      })
    })

    it('a bulk operation on a filter works page by page and changes only the latest run of a transaction', async () => {
      const names = ids(25)
      await queue(names)
      await queue(['other'])
      await cancel([...names, 'other'])
      await source.replay(process, names[0] ?? '', { fromStep: null, latest: null }, anAct)
      replica()
      const Filter = { status: ['Cancelled' as const], idPrefix: 't1' }
      const id = await start('resume', { Filter, PerSecond: 30 })
      expect(await reached(id, 'Completed')).toMatchObject({ Done: 24, Skipped: 1 })
      expect(await changedBy(id)).toEqual(names.slice(1))
      expect(await runOf('other')).toMatchObject({ Status: 'Cancelled' })
      expect((await source.get(process.name, names[0] ?? '', 0))?.run.Status).toBe('Cancelled')
    })

    it('a bulk operation changes each run only once, even if the run matches again, and ignores runs queued after its start', async () => {
      const names = ids(12)
      await queue(names)
      await cancel(names)
      let created = 0
      replica({
        // Each resumed run is cancelled again at once, so that the run matches the filter again. A new run that matches
        // the filter is queued as well.
        async after(name) {
          created += 1
          const another = `new${created}`
          await queue([another])
          await cancel([name, another])
        },
      })
      const id = await start('resume', { Filter: { status: ['Cancelled'] }, PerSecond: 20 })
      expect(await reached(id, 'Completed')).toMatchObject({ Done: 12, Skipped: 0 })
      expect(await changedBy(id)).toEqual(names)
    })

    it('a bulk operation replays each transaction once from the requested step', async () => {
      await queue(['a', 'b'])
      for (const name of ['a', 'b']) {
        const run = await runOf(name)
        const claimed = await source.claim({
          ...run,
          version: run.Version,
          step: 'first',
          isFirst: true,
          owner: 'worker',
        })
        if (claimed.kind !== 'claimed') throw new Error('not claimed')
        const done = { kind: 'completed', response: null, data: null, endsRun: false } as const
        const options = { steps: process.steps, policy: defaultRetryPolicy, random: 0 }
        await source.record(claimed.claim.lease, advance(claimed.claim.run, done, options))
      }
      await cancel(['a', 'b'])
      replica()
      const id = await start('replay', { Filter: {}, FromStep: 'last' })
      expect(await reached(id, 'Completed')).toMatchObject({ Done: 2 })
      for (const name of ['a', 'b'])
        expect(await runOf(name)).toMatchObject({ ReplayID: 1, StepName: 'last' })
    })

    it('a dry run of a bulk operation counts the runs, lists the first of them and changes nothing', async () => {
      const names = ids(130)
      await queue(names)
      await cancel(names.slice(0, 120))
      const { runs } = replica()
      const byFilter = await start('resume', { Filter: {} }, { DryRun: true })
      const byIds = await start('resume', { Ids: ['gone', ...names] }, { DryRun: true })
      for (const id of [byFilter, byIds]) {
        const progress = await reached(id, 'Completed')
        expect(progress).toMatchObject({ Done: 120, Skipped: 10 })
        expect(progress?.Matches).toHaveLength(100)
        expect(progress?.Matches[0]).toMatchObject({ ReplayID: 0, Status: 'Cancelled' })
        expect(await changedBy(id)).toEqual([])
      }
      expect(await reached(byIds, 'Completed')).toMatchObject({
        FailedByCode: { transaction_not_found: 1 },
      })
      expect(await runOf(names[0] ?? '')).toMatchObject({ Status: 'Cancelled', Version: 1 })
      expect(runs).toEqual([])
    })

    it('a bulk operation changes only runs that belong to a realm of its key or to no realm', async () => {
      await queue(['own'], '42')
      await queue(['foreign'], '43')
      await queue(['none'])
      replica()
      const Realms = ['4', '42*']
      const byIds = await start('cancel', { Ids: ['foreign', 'own'], Realms })
      expect(await reached(byIds, 'Completed')).toMatchObject({
        Done: 1,
        FailedByCode: { forbidden: 1 },
      })
      const byFilter = await start('cancel', { Filter: {}, Realms })
      expect(await reached(byFilter, 'Completed')).toMatchObject({ Done: 1, FailedByCode: {} })
      expect(await changedBy(byFilter)).toEqual(['none'])
      expect(await runOf('foreign')).toMatchObject({ Status: 'Queued', Version: 0 })
    })

    it('a bulk operation continues after single failures, and after many failures that are not in a row', async () => {
      const names = ids(60)
      await queue(names)
      replica({
        before(name) {
          if (Number(name.slice(1)) % 2 === 0) throw new Error('a defect')
        },
      })
      const id = await start('cancel', { Ids: names })
      expect(await reached(id, 'Completed')).toMatchObject({
        Done: 30,
        FailedByCode: { internal_error: 30 },
      })
    })

    it('a bulk operation pauses after 20 failures in a row with the same 5xx, and retries these runs when it is continued', async () => {
      const names = ids(60)
      await queue(names)
      let isBroken = true
      replica({
        before(name) {
          if (isBroken && Number(name.slice(1)) >= 130)
            throw new IntegrationError('broker_unavailable', 'no')
        },
      })
      const id = await start('cancel', { Ids: names, PerSecond: 50 })
      await reached(id, 'Paused')
      expect(await store.operation(id)).toMatchObject({
        StatusReason: 'broker_unavailable',
        Progress: { Done: 30, FailedByCode: {} },
      })
      isBroken = false
      await store.continueOperation(id, { by, reason: null })
      expect(await reached(id, 'Completed')).toMatchObject({ Done: 60, FailedByCode: {} })
      expect(await changedBy(id)).toEqual(names)
    })

    it('a bulk operation pauses with the error code of 20 failures in a row, even if later runs of the same batch are changed', async () => {
      const names = ids(100)
      await queue(names)
      replica({
        before(name) {
          if (Number(name.slice(1)) < 130) throw new IntegrationError('broker_unavailable', 'no')
        },
      })
      const id = await start('cancel', { Ids: names, PerSecond: 1_000 })
      await reached(id, 'Paused')
      expect(await store.operation(id)).toMatchObject({ StatusReason: 'broker_unavailable' })
    })

    it('a bulk operation pauses if reading its runs fails because of a defect', async () => {
      await queue(['a'])
      const get: TransactionSource['get'] = () => Promise.reject(new Error('a defect'))
      replica({ source: { ...source, search: get as never, get } })
      const id = await start('cancel', { Filter: {} })
      await reached(id, 'Paused')
      expect(await store.operation(id)).toMatchObject({ StatusReason: 'internal_error' })
    })

    it('a short bulk operation completes although five slow operations, which were started earlier, are still running', async () => {
      const names = ids(30)
      await queue([...names, 'urgent'])
      replica()
      const slow: string[] = []
      for (let n = 0; n < 5; n += 1) slow.push(await start('cancel', { Ids: names, PerSecond: 5 }))
      const urgent = await start('cancel', { Ids: ['urgent'] })
      await reached(urgent, 'Completed')
      for (const id of slow) {
        expect(await store.operation(id)).toMatchObject({ Status: 'Running' })
        await store.stopOperation(id, { by, reason: null })
      }
    })

    it('a bulk operation pauses after 20 failures in a row, even if these failures extend over many batches', async () => {
      const names = ids(30)
      await queue(names)
      replica({
        before(name) {
          if (Number(name.slice(1)) >= 104) throw new IntegrationError('broker_unavailable', 'no')
        },
      })
      const id = await start('cancel', { Ids: names, PerSecond: 10 })
      expect(await reached(id, 'Paused')).toMatchObject({ Done: 4, FailedByCode: {} })
    })

    it('a dry run counts the runs that the bulk operation would change: only latest runs that are not erased', async () => {
      await queue(['twice', 'once', 'erased'])
      await cancel(['twice', 'once', 'erased'])
      await source.replay(process, 'twice', { fromStep: null, latest: null }, anAct)
      await cancel(['twice'])
      await source.erase([await runOf('erased')], anAct)
      replica()
      const Filter = { status: ['Cancelled' as const] }
      for (const DryRun of [true, false]) {
        const id = await start('resume', { Filter }, { DryRun })
        expect(await reached(id, 'Completed')).toMatchObject({ Done: 2, Skipped: 2 })
      }
    })

    it('a dry run of a bulk retry counts a run that waits for its start time, but not a run that is already due', async () => {
      await queue(['due'])
      const NotBefore = new Date(Date.now() + 3_600_000).toISOString()
      await source.queue(process, [{ TransactionID: 'delayed', InitialData: 1, NotBefore }])
      replica()
      for (const DryRun of [true, false]) {
        const id = await start('retry', { Ids: ['due', 'delayed'] }, { DryRun })
        expect(await reached(id, 'Completed')).toMatchObject({ Done: 1, Skipped: 1 })
      }
    })

    it('a stopped bulk operation keeps its counts and changes no further run', async () => {
      const names = ids(40)
      await queue(names)
      let id = ''
      const { stop } = replica({
        async before(name) {
          if (name === names[5]) await store.stopOperation(id, { by, reason: 'wrong' })
        },
      })
      id = await start('cancel', { Ids: names, PerSecond: 20 })
      await reached(id, 'Stopped')
      await stop() // waits for the batch in flight
      const changed = await changedBy(id)
      expect(changed.length).toBeLessThan(12)
      expect((await store.operation(id))?.Progress.Done).toBe(changed.length)
    })

    it('a bulk operation changes at most PerSecond runs in its first second', async () => {
      const names = ids(60)
      await queue(names)
      const times: number[] = []
      const startedAt = performance.now()
      replica({ before: () => void times.push(performance.now()) })
      const id = await start('cancel', { Ids: names, PerSecond: 30 })
      await reached(id, 'Completed')
      // A slow machine only delays actions, so it cannot cause more actions in the first second.
      expect(times.filter((at) => at < startedAt + 1_000).length).toBeLessThanOrEqual(30)
      expect(times).toHaveLength(60)
    })

    it('a replica that shuts down releases its bulk operation at once', async () => {
      const names = ids(40)
      await queue(names)
      const started = Promise.withResolvers<void>()
      const first = replica({
        before: () => started.resolve(),
      })
      const id = await start('cancel', { Ids: names, PerSecond: 20 })
      await started.promise
      await first.stop()
      expect((await changedBy(id)).length).toBeLessThan(40)
      replica()
      expect(await reached(id, 'Completed')).toMatchObject({ Done: 40, Skipped: 0 })
      expect(await changedBy(id)).toEqual(names)
    })

    it.each(['another replica', 'the same replica'])(
      'if a replica hangs after a change, %s continues the bulk operation from the recorded progress and changes no run twice',
      async (which) => {
        const names = ids(30)
        await queue(names)
        await cancel(names)
        const hangs = Promise.withResolvers<void>()
        const hung: string[] = []
        const frozen = replica({
          renewMs: 3_600_000,
          async after(name) {
            if (Number(name.slice(1)) < 110 || hung.length === 5) return
            hung.push(name)
            await cancel([name]) // the run has ended again before the other replica continues
            await hangs.promise
          },
        })
        const id = await start('resume', { Ids: names, PerSecond: 50 })
        await eventually(() => expect(hung).toHaveLength(5))
        if (which === 'another replica') replica()
        expect(await reached(id, 'Completed')).toMatchObject({
          Done: 30,
          Skipped: 0,
          FailedByCode: {},
        })
        expect(await changedBy(id)).toEqual(names)
        for (const name of hung) expect(await runOf(name)).toMatchObject({ Status: 'Cancelled' })
        // The frozen replica has lost its lease, so its further actions change nothing.
        hangs.resolve()
        await frozen.stop()
        expect(await changedBy(id)).toEqual(names)
        expect(await store.operation(id)).toMatchObject({
          Status: 'Completed',
          Progress: { Done: 30 },
        })
      },
    )
  })
}
