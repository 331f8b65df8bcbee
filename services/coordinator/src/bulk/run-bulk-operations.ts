/**
 * Works on bulk operations: claims an operation, changes its runs batch by batch, and records the progress of each
 * batch. The rules are in `bulk-operation.ts`.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { errorCodes, hasCode, IntegrationError } from '@integration-host/shared/errors'
import type { AccessKeys } from '@integration-host/shared/access/access-keys'
import type { BulkAction } from '@integration-host/shared/contracts/operations'
import { isCovered } from '@integration-host/shared/access/caller'
import type { Act } from '../run/action.ts'
import {
  KEY_ENDED,
  keyEnded,
  type Operation,
  type OperationEnd,
  type OperationLease,
  type OperationProgress,
  type OperationTarget,
  processOf,
  type RunOutcome,
  withOutcomes,
} from './bulk-operation.ts'
import type { OperationStore } from './bulk-operation-store.ts'
import { anotherRunStarted, DoneBefore, notFound, purged } from '../run/errors.ts'
import { ONLY_RUN } from '../run/run-detail.ts'
import type { Run } from '../run/run.ts'
import { isDelayed } from '../run/start-time.ts'
import { isOver, isResumable, isRetryable } from '../run/status.ts'
import { RENEW_MS, type TransactionSource } from '../run/transaction-source.ts'
import type { TakeBack } from '../take-back/take-back.ts'
import type { RunActions } from '../worker/run-actions.ts'
import { createPace } from '../worker/pace.ts'
import { type Periodic, startPolling } from '../worker/polling.ts'
import { ABORTED, type StoreRetry } from '../worker/store-retry.ts'

/** The actions on runs. The action `take-back` acts on what the runs have created. */
type RunAction = Exclude<BulkAction, 'take-back'>

export interface OperationRunnerDeps extends Periodic {
  readonly source: Pick<TransactionSource, 'search' | 'get'>
  readonly store: OperationStore
  readonly runActions: Pick<RunActions, RunAction>
  readonly takeBack: Pick<TakeBack, 'begin'>
  /** The loaded processes. A replica works on operations of these processes, and on all operations that cancel runs. */
  readonly processes: readonly string[]
  readonly keys: Pick<AccessKeys, 'hasEnded'>
  readonly owner: string
  readonly retryStore: StoreRetry
  readonly renewMs?: number
  readonly onCount: (counts: Readonly<Record<'Running' | 'Paused', number>>) => void
  /** Called with the outcome of each run, unless the operation is a dry run. */
  readonly onRun: (action: BulkAction, outcome: RunOutcome['kind']) => void
}

export interface OperationRunner extends AsyncDisposable {
  /** Claims operations at once. Called when an operation was started or continued. */
  hint(): void
}

/** The maximum number of operations on which a replica works at a time. The others wait, or other replicas claim them. */
const MAX_OPERATIONS = 4
/** After this many batches a replica releases an operation, so that it can claim the one that has waited longest. */
const TURN_BATCHES = 5
/** The maximum number of concurrent changes by one operation: they use the connections to the store that steps use. */
const MAX_CONCURRENT = 5
const MAX_BATCH = 100
/** The duration of a batch in seconds, unless `MAX_BATCH` makes the batch smaller. */
const BATCH_SECONDS = 0.2
const DRY_BATCH = 500
/** The number of consecutive failures with the same problem code (status 5xx) after which an operation pauses. */
const MAX_STREAK = 20

export function startOperationRunner(deps: OperationRunnerDeps): OperationRunner {
  const { source, store, retryStore, log, clock, renewMs = RENEW_MS } = deps
  const shutdown = new AbortController()
  /** The promises of the work on the claimed operations. The key of the map is the owner of the lease. */
  const inProgress = new Map<string, Promise<void>>()

  async function poll(): Promise<boolean> {
    while (inProgress.size < MAX_OPERATIONS && !shutdown.signal.aborted) {
      // Each claim has a different owner. So this replica can claim an operation again even if its earlier work on the
      // operation hangs.
      const owner = `${deps.owner} ${crypto.randomUUID().slice(0, 8)}`
      const operation = await store.claimOperation(deps.processes, owner)
      if (operation === null) break
      const work = workOn(operation, { id: operation.ID, owner })
        // The error is only logged: after the lease has expired, a replica claims the operation again and continues it.
        .catch((error: unknown) =>
          log.error({ err: error, operationId: operation.ID }, 'bulk operation was interrupted'),
        )
        .finally(() => {
          inProgress.delete(owner)
          polling.pollSoon()
        })
      inProgress.set(owner, work)
    }
    deps.onCount(await store.countOperations())
    return true
  }

  async function workOn(operation: Operation, lease: OperationLease): Promise<void> {
    const { signal } = shutdown
    const renewal = setInterval(() => {
      store
        .renewOperation(lease)
        .catch(() => log.debug('renewing the lease of a bulk operation failed'))
    }, renewMs)
    /** Records the progress. Returns false if this replica must not continue the operation. */
    const record = async (progress: OperationProgress, end?: OperationEnd): Promise<boolean> =>
      (await retryStore(() => store.recordProgress(lease, progress, end), signal)) === 'Running'
    const end = async (...given: Parameters<typeof record>): Promise<void> => {
      await record(...given)
    }
    let progress = operation.Progress
    const pace = createPace(operation.Request.PerSecond, () => performance.now())
    let streak = NO_STREAK
    let batches = 0
    /** The progress before the first batch of the current streak. */
    let beforeStreak = progress
    try {
      for (;;) {
        if (hasKeyEnded(operation)) return await stop(operation)
        if (progress.Batch.length === 0 && !progress.IsLastBatch) {
          const next = await retryStore(() => nextBatch(operation, progress.Position), signal)
          if (next === ABORTED) return
          progress = { ...progress, ...next }
        }
        const isThrough = progress.Batch.length === 0 && progress.IsLastBatch
        if (!(await record(progress, isThrough ? { kind: 'completed' } : undefined))) return
        if (!operation.DryRun) {
          const delayMs = pace.delayMs(progress.Batch.length)
          await sleep(delayMs, null, { signal }).catch(() => {})
        }
        if (signal.aborted) {
          await store.recordProgress(lease, progress, { kind: 'release' })
          return
        }
        // The operation is released only after the delay before its next batch, so that the next replica may start at
        // once. During a streak the operation is not released, because the length of the streak is not recorded.
        if (batches >= TURN_BATCHES && streak.length === 0)
          return await end(progress, { kind: 'release' })
        batches += 1
        if (streak.length === 0) beforeStreak = progress
        const outcomes = await mapConcurrently(progress.Batch, (target) => {
          pace.started()
          return actOn(operation, target)
        })
        if (!operation.DryRun) for (const { kind } of outcomes) deps.onRun(operation.Action, kind)
        streak = outcomes.reduce(nextStreak, streak)
        progress = withOutcomes(progress, outcomes)
        if (streak.length >= MAX_STREAK) {
          const reason = streak.code ?? 'internal_error'
          const of = { operationId: operation.ID, reason }
          log.warn(of, 'bulk operation was paused after too many failures')
          // If the operation is continued, the runs of the streak are tried again. Runs that were already changed are
          // not changed again (B2).
          return await end(beforeStreak, { kind: 'paused', reason })
        }
      }
    } catch (error) {
      log.error({ err: error, operationId: operation.ID }, 'bulk operation was paused by an error')
      await end(progress, { kind: 'paused', reason: 'internal_error' })
    } finally {
      clearInterval(renewal)
    }
  }

  /** Stops an operation whose key has ended, unless another process has stopped it meanwhile. */
  async function stop({ ID, KeyID }: Operation): Promise<void> {
    const act = { by: { keyId: 'coordinator', person: null }, reason: keyEnded(KeyID) }
    await store.stopOperation(ID, act, KEY_ENDED).catch((error: unknown) => {
      if (!hasCode(error, 'operation_not_running')) throw error
    })
    const of = { operationId: ID, key: KeyID }
    log.info(of, 'bulk operation was stopped because its key has ended')
  }

  const hasKeyEnded = ({ KeyID, CreatedAt, Request }: Operation): boolean =>
    Request.IsKept !== true && deps.keys.hasEnded(KeyID, Date.parse(CreatedAt))

  async function nextBatch(
    operation: Operation,
    position: OperationProgress['Position'],
  ): Promise<Pick<OperationProgress, 'Batch' | 'Position' | 'IsLastBatch'>> {
    const { Request, CreatedAt, DryRun } = operation
    const { Filter = {}, Ids, PerSecond, Realms } = Request
    const paced = Math.min(MAX_BATCH, Math.ceil(PerSecond * BATCH_SECONDS))
    if (Ids !== undefined) {
      const start = typeof position === 'number' ? position : 0
      const end = start + (DryRun ? MAX_BATCH : paced)
      const of = { ReplayID: null, Status: null }
      const Batch = Ids.slice(start, end).map((TransactionID) => ({ TransactionID, ...of }))
      return { Batch, Position: end, IsLastBatch: end >= Ids.length }
    }
    // The operation skips runs that were created after the operation, even if they match the filter.
    const startedAt = new Date(Date.parse(CreatedAt) + 1).toISOString()
    const isEarlier = Filter.until !== undefined && Date.parse(Filter.until) < Date.parse(startedAt)
    const process = processOf(operation)
    const { runs, next } = await source.search({
      process,
      filter: { ...Filter, until: isEarlier ? Filter.until : startedAt },
      order: 'created',
      visible: { realms: Realms, processes: [process] },
      after: position === null || typeof position === 'number' ? null : position,
      limit: DryRun ? DRY_BATCH : paced,
    })
    const Batch = runs.map(({ TransactionID, ReplayID, Status }) => ({
      TransactionID,
      ReplayID,
      Status,
    }))
    return { Batch, Position: next, IsLastBatch: next === null }
  }

  async function actOn(operation: Operation, target: OperationTarget): Promise<RunOutcome> {
    const { TransactionID, ReplayID } = target
    const run = { TransactionID, ReplayID }
    try {
      const { Action } = operation
      const latest = await inspect(operation, target)
      if (Action === 'take-back') {
        await deps.takeBack.begin(operation, processOf(operation), target)
        return { ...run, kind: 'done' }
      }
      if (operation.DryRun && latest !== null)
        return allows[Action](latest, clock.now())
          ? { ...run, ReplayID: latest.ReplayID, kind: 'matched', status: latest.Status }
          : { ...run, kind: 'skipped' }
      await execute(operation, Action, target)
      return { ...run, kind: 'done' }
    } catch (error) {
      if (error instanceof DoneBefore) return { ...run, kind: 'done' }
      const code = error instanceof IntegrationError ? error.code : 'internal_error'
      const { status } = errorCodes[code]
      if (status === 409 || status === 412) return { ...run, kind: 'skipped' }
      if (code === 'internal_error')
        log.error(
          { err: error, operationId: operation.ID },
          'action of a bulk operation on a run failed',
        )
      return { ...run, kind: 'failed', code, isServerError: status >= 500 }
    }
  }

  /**
   * Returns the latest run of a transaction if the operation may change this run; `null` if no check is needed. Throws
   * the error with which the action would be rejected if the operation may not change the run.
   *
   * A dry run checks every run. An operation that is not a dry run skips the check
   * if its key may use all realms, or if a search has found the run: a search returns only runs that the key may use.
   */
  async function inspect(
    operation: Operation,
    { TransactionID, ReplayID, Status }: OperationTarget,
  ): Promise<Run | null> {
    const { DryRun, Request } = operation
    const of = processOf(operation)
    if (!DryRun && (Status !== null || Request.Realms.includes('*'))) return null
    const found = await source.get(of, TransactionID, null, ONLY_RUN)
    if (found === null) throw notFound(of, TransactionID, null)
    const { run } = found
    if (run.Realm !== null && !isCovered(run.Realm, Request.Realms))
      throw new IntegrationError('forbidden', 'the key of the operation may not use this realm')
    if (run.PurgedAt !== null) throw purged()
    if (ReplayID !== null && ReplayID !== run.ReplayID) throw anotherRunStarted(run.ReplayID)
    return run
  }

  function execute(
    operation: Operation,
    Action: RunAction,
    { TransactionID, ReplayID }: OperationTarget,
  ): Promise<unknown> {
    const { Process, KeyID, Person, Reason, Request } = operation
    const act: Act = {
      by: { keyId: KeyID, person: Person },
      reason: Reason,
      ifVersion: null,
      operation: { id: operation.ID, replayId: ReplayID },
    }
    if (Action === 'replay') {
      const request = { fromStep: Request.FromStep ?? null, latest: null }
      return deps.runActions.replay(Process, TransactionID, request, act)
    }
    return deps.runActions[Action](Process, TransactionID, null, act)
  }

  const polling = startPolling({ ...deps, task: 'bulk operations', poll })
  return {
    hint: () => polling.pollSoon(),
    async [Symbol.asyncDispose]() {
      shutdown.abort()
      await polling[Symbol.asyncDispose]()
      await Promise.all(inProgress.values())
    },
  }
}

/** Whether an action can change a run. The run must be the latest run of its transaction. */
const allows: Readonly<Record<RunAction, (run: Run, now: number) => boolean>> = {
  resume: ({ Status, ErasedAt }) => isResumable(Status) && ErasedAt === null,
  cancel: ({ Status }) => !isOver(Status),
  retry: (run, now) => isRetryable(run.Status) || isDelayed(run, now),
  replay: ({ Status, ErasedAt }) => isOver(Status) && ErasedAt === null,
}

/** A streak: consecutive failures with the same problem code, whose status is 5xx. */
interface Streak {
  readonly code: string | null
  readonly length: number
}

const NO_STREAK: Streak = { code: null, length: 0 }

/** Returns the streak after the next outcome. One of `MAX_STREAK` failures stays, because it pauses the operation. */
function nextStreak(streak: Streak, outcome: RunOutcome): Streak {
  if (streak.length >= MAX_STREAK) return streak
  if (outcome.kind !== 'failed' || !outcome.isServerError) return NO_STREAK
  return { code: outcome.code, length: outcome.code === streak.code ? streak.length + 1 : 1 }
}

/** Applies `act` to all items, at most `MAX_CONCURRENT` at a time. The results are in the order of the items. */
async function mapConcurrently<Item, Result>(
  items: readonly Item[],
  act: (item: Item) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = []
  const queue = items.entries()
  const worker = async (): Promise<void> => {
    for (const [index, item] of queue) results[index] = await act(item)
  }
  await Promise.all(Array.from({ length: MAX_CONCURRENT }, worker))
  return results
}
