/**
 * Works on bulk operations: claims one, acts on its runs batch by batch, and records the progress after each batch.
 * `transaction/bulk-operation.ts` has the rules.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { errorCodes, IntegrationError } from '@integration-host/shared/errors'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { BulkAction } from '@integration-host/shared/contracts/operation'
import { isCovered } from '@integration-host/shared/access/caller'
import type { Act } from '../transaction/action.ts'
import {
  type Operation,
  type OperationEnd,
  type OperationLease,
  type OperationProgress,
  type OperationTarget,
  type RunOutcome,
  withOutcomes,
} from '../transaction/bulk-operation.ts'
import { anotherRunStarted, DoneBefore, notFound, purged } from '../transaction/errors.ts'
import type { Run } from '../transaction/run.ts'
import { isOver, isResumable, isRetryable } from '../transaction/status.ts'
import { RENEW_MS, type TransactionSource } from '../transaction/transaction-source.ts'
import type { Operations } from './operations.ts'
import { createPace } from './pace.ts'
import { startPolling } from './polling.ts'
import { ABORTED, createStoreRetry } from './store-retry.ts'

export interface OperationRunnerDeps {
  readonly source: Pick<
    TransactionSource,
    'claimOperation' | 'renewOperation' | 'recordProgress' | 'countOperations' | 'search' | 'get'
  >
  readonly operations: Pick<Operations, BulkAction>
  /** The names of the processes that are loaded. A replica works only on operations on these. */
  readonly processes: readonly string[]
  readonly owner: string
  readonly log: Logger
  readonly random: () => number
  /** `LOCAL_PULL_SECONDS`, in milliseconds. */
  readonly intervalMs: number
  readonly renewMs?: number
  readonly onCount: (counts: Readonly<Record<'Running' | 'Paused', number>>) => void
  /** Called with the outcome of each run of an operation that is not a dry run. */
  readonly onRun: (action: BulkAction, outcome: RunOutcome['kind']) => void
}

export interface OperationRunner extends AsyncDisposable {
  /** Claims operations at once, because one was started or continued. */
  hint(): void
}

/** Operations that one replica works on at a time. The others wait for their turn, or another replica claims them. */
const MAX_OPERATIONS = 4
/** After this many batches it is the turn of the operation that has waited longest. */
const TURN_BATCHES = 5
/** Runs of an operation that are changed at a time. The steps need the connections to the store as well. */
const MAX_CONCURRENT = 5
const MAX_BATCH = 100
/** The share of a second that a batch lasts, if it is not bounded by `MAX_BATCH`. */
const BATCH_SECONDS = 0.2
const DRY_BATCH = 500
/** After this many runs in a row that failed with the same 5xx, an operation pauses. */
const MAX_STREAK = 20

export function startOperationRunner(deps: OperationRunnerDeps): OperationRunner {
  const { source, log, random, intervalMs, renewMs = RENEW_MS } = deps
  const shutdown = new AbortController()
  const retryStore = createStoreRetry(random)
  /** The work on each claimed operation, by the owner of its lease. */
  const inProgress = new Map<string, Promise<void>>()
  /** Its abort ends the pause before the next poll. */
  let wake = new AbortController()
  const hint = (): void => wake.abort()

  async function poll(): Promise<boolean> {
    while (inProgress.size < MAX_OPERATIONS && !shutdown.signal.aborted) {
      // Each claim has an owner of its own, so that work which hangs loses its lease to this replica as well.
      const owner = `${deps.owner} ${crypto.randomUUID().slice(0, 8)}`
      const operation = await source.claimOperation(deps.processes, owner)
      if (operation === null) break
      const work = workOn(operation, { id: operation.ID, owner })
        // Its lease expires, and a replica continues then.
        .catch((error: unknown) =>
          log.error({ err: error, operationId: operation.ID }, 'bulk operation was interrupted'),
        )
        .finally(() => {
          inProgress.delete(owner)
          hint()
        })
      inProgress.set(owner, work)
    }
    deps.onCount(await source.countOperations())
    return true
  }

  async function workOn(operation: Operation, lease: OperationLease): Promise<void> {
    const { signal } = shutdown
    const renewal = setInterval(() => {
      source.renewOperation(lease).catch(() => log.debug('a lease could not be renewed'))
    }, renewMs)
    /** Records the progress. Returns false if this replica must not continue. */
    const record = async (progress: OperationProgress, end?: OperationEnd): Promise<boolean> => {
      const status = await retryStore(() => source.recordProgress(lease, progress, end), signal)
      return status === 'Running'
    }
    let progress = operation.Progress
    const pace = createPace(operation.Request.PerSecond, () => performance.now())
    let streak = NO_STREAK
    let batches = 0
    /** The progress before the first batch of the present streak of failures. */
    let beforeStreak = progress
    try {
      for (;;) {
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
          await source.recordProgress(lease, progress, { kind: 'release' })
          return
        }
        // The delay before the batch is over, so the replica that continues may begin at once. A streak is completed,
        // because its length is not recorded.
        if (batches >= TURN_BATCHES && streak.length === 0) {
          await record(progress, { kind: 'release' })
          return
        }
        batches += 1
        if (streak.length === 0) beforeStreak = progress
        const outcomes = await inLanes(progress.Batch, (target) => {
          pace.started()
          return actOn(operation, target)
        })
        if (!operation.DryRun) for (const { kind } of outcomes) deps.onRun(operation.Action, kind)
        streak = outcomes.reduce(longerStreak, streak)
        progress = withOutcomes(progress, outcomes)
        if (streak.longest >= MAX_STREAK) {
          const reason = streak.code ?? 'internal_error'
          log.warn({ operationId: operation.ID, reason }, 'bulk operation is paused')
          // When it is continued, the runs that failed are tried again. What was done is done once: see B2.
          await record(beforeStreak, { kind: 'paused', reason })
          return
        }
      }
    } catch (error) {
      log.error({ err: error, operationId: operation.ID }, 'bulk operation is paused by an error')
      await record(progress, { kind: 'paused', reason: 'internal_error' })
    } finally {
      clearInterval(renewal)
    }
  }

  async function nextBatch(
    { Request, Process, CreatedAt, DryRun }: Operation,
    position: OperationProgress['Position'],
  ): Promise<Pick<OperationProgress, 'Batch' | 'Position' | 'IsLastBatch'>> {
    const { Filter = {}, Ids, PerSecond, Realms } = Request
    const paced = Math.min(MAX_BATCH, Math.ceil(PerSecond * BATCH_SECONDS))
    if (Ids !== undefined) {
      const start = typeof position === 'number' ? position : 0
      const end = start + (DryRun ? MAX_BATCH : paced)
      const Batch = Ids.slice(start, end).map((TransactionID) => ({
        TransactionID,
        ReplayID: null,
        Status: null,
      }))
      return { Batch, Position: end, IsLastBatch: end >= Ids.length }
    }
    // Runs that were created after the operation are not meant, even if they match.
    const startedAt = new Date(Date.parse(CreatedAt) + 1).toISOString()
    const isEarlier = Filter.until !== undefined && Date.parse(Filter.until) < Date.parse(startedAt)
    const { runs, next } = await source.search({
      process: Process,
      filter: { ...Filter, until: isEarlier ? Filter.until : startedAt },
      order: 'created',
      visible: { realms: Realms, processes: [Process] },
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
      const latest = await inspect(operation, target)
      if (operation.DryRun && latest !== null)
        return allows[operation.Action](latest)
          ? { ...run, ReplayID: latest.ReplayID, kind: 'matched', status: latest.Status }
          : { ...run, kind: 'skipped' }
      await execute(operation, target)
      return { ...run, kind: 'done' }
    } catch (error) {
      if (error instanceof DoneBefore) return { ...run, kind: 'done' }
      const code = error instanceof IntegrationError ? error.code : 'internal_error'
      const { status } = errorCodes[code]
      if (status === 409 || status === 412) return { ...run, kind: 'skipped' }
      if (code === 'internal_error')
        log.error({ err: error, operationId: operation.ID }, 'a run of a bulk operation failed')
      return { ...run, kind: 'failed', code, isServerError: status >= 500 }
    }
  }

  /**
   * Returns the latest run of the transaction as a dry run needs it, and rejects what the action itself would reject;
   * `null` if nothing has to be checked. The search returns only runs that the operation may change, so without a dry run
   * only ids are checked.
   */
  async function inspect(
    { Process, DryRun, Request }: Operation,
    { TransactionID, ReplayID, Status }: OperationTarget,
  ): Promise<Run | null> {
    if (!DryRun && (Status !== null || Request.Realms.includes('*'))) return null
    const found = await source.get(Process, TransactionID, null, { attempts: 0, bodies: false })
    if (found === null) throw notFound()
    const { run } = found
    if (run.Realm !== null && !isCovered(run.Realm, Request.Realms))
      throw new IntegrationError('forbidden', 'the key of the operation may not use this realm')
    if (run.PurgedAt !== null) throw purged()
    if (ReplayID !== null && ReplayID !== run.ReplayID) throw anotherRunStarted(run.ReplayID)
    return run
  }

  function execute(
    operation: Operation,
    { TransactionID, ReplayID }: OperationTarget,
  ): Promise<unknown> {
    const { Process, Action, KeyID, Person, Reason, Request } = operation
    const act: Act = {
      by: { keyId: KeyID, person: Person },
      reason: Reason,
      ifVersion: null,
      operation: { id: operation.ID, replayId: ReplayID },
    }
    if (Action === 'replay') {
      const request = { fromStep: Request.FromStep ?? null, latest: null }
      return deps.operations.replay(Process, TransactionID, request, act)
    }
    return deps.operations[Action](Process, TransactionID, null, act)
  }

  const polling = startPolling({
    task: 'bulk operations',
    intervalMs,
    log,
    random,
    poll,
    wakeUp() {
      wake = new AbortController()
      return wake.signal
    },
  })
  return {
    hint,
    async [Symbol.asyncDispose]() {
      shutdown.abort()
      await polling[Symbol.asyncDispose]()
      await Promise.all(inProgress.values())
    },
  }
}

/** Whether an action can change this run, which is the latest one of its transaction. */
const allows: Readonly<Record<BulkAction, (run: Pick<Run, 'Status' | 'ErasedAt'>) => boolean>> = {
  resume: ({ Status, ErasedAt }) => isResumable(Status) && ErasedAt === null,
  cancel: ({ Status }) => !isOver(Status),
  retry: ({ Status }) => isRetryable(Status),
  replay: ({ Status, ErasedAt }) => isOver(Status) && ErasedAt === null,
}

/** Failures in a row with the same 5xx. */
interface Streak {
  readonly code: string | null
  readonly length: number
  /** The length of the longest streak that ended in the same batch or continues. */
  readonly longest: number
}

const NO_STREAK: Streak = { code: null, length: 0, longest: 0 }

function longerStreak(streak: Streak, outcome: RunOutcome): Streak {
  const { longest } = streak
  if (outcome.kind !== 'failed' || !outcome.isServerError) return { ...NO_STREAK, longest }
  const length = outcome.code === streak.code ? streak.length + 1 : 1
  return longest >= MAX_STREAK
    ? streak
    : { code: outcome.code, length, longest: Math.max(longest, length) }
}

/** Applies `act` to all items, at most `MAX_CONCURRENT` at a time. The results are in the order of the items. */
async function inLanes<Item, Result>(
  items: readonly Item[],
  act: (item: Item) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = []
  const queue = items.entries()
  const lane = async (): Promise<void> => {
    for (const [index, item] of queue) results[index] = await act(item)
  }
  await Promise.all(Array.from({ length: MAX_CONCURRENT }, lane))
  return results
}
