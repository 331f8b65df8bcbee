/**
 * Applies the retention: purges runs of the loaded processes, deletes the ids of purged runs after `DEDUPE_DAYS`, and
 * deletes old bulk operations. One replica at a time does this work, in one pass per `INTERVALS_PER_PASS` intervals. If
 * that replica dies, another replica continues.
 *
 * The files of a run are removed after the run is purged, because until then the run can be resumed or replayed. If the
 * replica dies between the purge and the removal, the next pass removes the files. While files of purged runs cannot be
 * removed, no further runs of the same process are purged.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { WEBHOOK_PROCESS } from '@integration-host/shared/contracts/events'
import { hasCode } from '@integration-host/shared/errors'
import { deleteEntries } from '../entry/delete-entries.ts'
import type { ProcessDefinition } from '../step/definition.ts'
import {
  type EndPosition,
  FILES_LEFT,
  FIRST_END,
  type Retention,
  type RetentionPolicy,
} from '../run/retention.ts'
import type { OperationStore } from '../bulk/bulk-operation-store.ts'
import type { PurgePasses } from './purge-passes.ts'
import { keyText, type RunKey } from '../run/run.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import { type Periodic, startPolling } from '../worker/polling.ts'
import type { RemoveFilesOfRuns } from '../worker/run-files.ts'

export interface RetentionSettings {
  /** The number of days; 0 keeps the runs for ever. If undefined, the default of the installation applies. */
  readonly completedDays: number | undefined
  readonly failedDays: number | undefined
  readonly dedupeDays: number
  /** How long entries of the book of entries are kept; 0: for ever. */
  readonly entryDays: number
}

export interface RetentionAges {
  readonly oldestMs: ReadonlyMap<string, number>
  readonly lastPassMs: number
}

export interface RetentionDeps extends Periodic {
  readonly source: Retention & Pick<TransactionSource, 'compact' | 'records'>
  readonly passes: PurgePasses
  readonly bulkOperations: Pick<OperationStore, 'forgetOperations'>
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly retention: RetentionSettings
  readonly removeFiles: RemoveFilesOfRuns
  /** Removes what runs that have ended have left in other tables. Called once a day. */
  readonly removeLeftovers: (signal: AbortSignal) => Promise<void>
  readonly owner: string
  readonly onPurged: (process: string, count: number) => void
  readonly onForgotten: (count: number) => void
  readonly onAges: (ages: RetentionAges) => void
}

type Work = 'purge' | 'forget' | 'forget operations' | 'purge entries'

const DAY_MS = 86_400_000
/** The retention in a new installation, in days. */
const DEFAULT = { completedDays: 90, failedDays: 365 }
/** How long bulk operations are kept after their end. */
const OPERATIONS_MS = 90 * DAY_MS
const KEEP = { completedDays: 0, failedDays: 0 }
/** A pass begins after this number of intervals, which is every hour with the default interval. */
const INTERVALS_PER_PASS = 60
/** The interval at which the lease of a pass is renewed; a sixth of `LEASE_MS`. */
const CONTINUE_MS = 5_000

export function startRetention(deps: RetentionDeps): AsyncDisposable {
  const { source, passes, log, owner, clock, intervalMs } = deps
  const { now } = clock
  const filesLeft = source.records(FILES_LEFT)
  const startedAt = now()
  const shutdown = new AbortController()
  let policies: readonly RetentionPolicy[] | null = null
  let leftoversAt = 0
  /** Each kind of work has its own pace, because the time that a row takes depends on it. */
  const paces = new Map<Work, PurgePace>()

  /** Reads the default of the installation, and logs which retention applies. Called once. */
  async function readPolicies(): Promise<readonly RetentionPolicy[]> {
    const keeps = await passes.keepsByDefault()
    const found = policiesOf(deps, keeps ? KEEP : DEFAULT)
    const days = (ms: number | null): number | string => (ms === null ? 'for ever' : ms / DAY_MS)
    log.info(
      {
        keptDays: Object.fromEntries(
          found.map(({ process, completedMs, failedMs }) => [
            process,
            { completed: days(completedMs), failed: days(failedMs) },
          ]),
        ),
        dedupeDays: deps.retention.dedupeDays || 'for ever',
        entryDays: deps.retention.entryDays || 'for ever',
        default: keeps ? 'existing installation: kept for ever' : 'new installation',
      },
      'retention of finished runs',
    )
    return found
  }

  /**
   * Calls `work` in batches until no row is left. `work` resolves with the number of changed rows, or with `null` if no
   * row was left. Resolves with false if the work was stopped earlier, by a shutdown or because another replica has the
   * lease.
   */
  async function inBatches(
    kind: Work,
    work: (size: number) => Promise<number | null>,
  ): Promise<boolean> {
    let continuedAt = now()
    while (!shutdown.signal.aborted) {
      const startAt = performance.now()
      const previous = paces.get(kind) ?? firstPace
      const count = await work(previous.size)
      if (count === null) return true
      const pace = nextPace(previous, count, performance.now() - startAt)
      paces.set(kind, pace)
      if (now() - continuedAt >= CONTINUE_MS) {
        if (!(await passes.renew(owner))) return false
        continuedAt = now()
      }
      await sleep(pace.pauseMs, null, { signal: shutdown.signal }).catch(() => {})
    }
    return false
  }

  async function removeFilesLeft(process: string): Promise<void> {
    const rows = (await filesLeft.rows()).filter(({ Value }) => Value[0]?.Process === process)
    if (rows.length === 0) return
    const { failures } = await deps.removeFiles(rows.flatMap(({ Value }) => Value))
    const failed = new Set(failures.map(({ run }) => keyText(run)))
    const removed = rows.filter(({ Value }) => !Value.some((run) => failed.has(keyText(run))))
    await Promise.all(removed.map((row) => filesLeft.replace(row, undefined)))
    if (failures[0] !== undefined) throw failures[0].error
  }

  async function purgeProcess(policy: RetentionPolicy): Promise<boolean> {
    await removeFilesLeft(policy.process)
    let position: EndPosition | null = FIRST_END
    let found: RunKey[] = []
    return inBatches('purge', async (size) => {
      if (found.length === 0) {
        if (position === null) return null
        const page = await source.purgeable(policy, position, MAX_SIZE)
        found = [...page.runs]
        position = page.next
        if (found.length === 0 && position === null) return null
      }
      const count = await source.purge(policy, found.splice(0, size))
      deps.onPurged(policy.process, count)
      await removeFilesLeft(policy.process)
      return count
    })
  }

  async function forget(): Promise<boolean> {
    const { dedupeDays } = deps.retention
    if (dedupeDays === 0) return true
    return inBatches('forget', async (size) => {
      const count = await source.forget(dedupeDays * DAY_MS, size)
      deps.onForgotten(count)
      return count || null
    })
  }

  async function purgeEntries(): Promise<boolean> {
    const { entryDays } = deps.retention
    if (entryDays === 0) return true
    return inBatches(
      'purge entries',
      async (size) =>
        (await deleteEntries(source, { olderThanMs: entryDays * DAY_MS, limit: size })) || null,
    )
  }

  async function forgetOperations(): Promise<boolean> {
    let forgotten = 0
    const isDone = await inBatches('forget operations', async (size) => {
      const count = await deps.bulkOperations.forgetOperations(OPERATIONS_MS, size)
      forgotten += count
      return count || null
    })
    if (forgotten > 0) await source.compact()
    return isDone
  }

  /** Makes one pass. Resolves with false if a part of the pass failed, or if another replica must continue it. */
  async function pass(): Promise<boolean> {
    let isComplete = true
    if (now() - leftoversAt >= DAY_MS) {
      await deps.removeLeftovers(shutdown.signal)
      leftoversAt = now()
    }
    for (const policy of policies ?? [])
      try {
        isComplete = (await purgeProcess(policy)) && isComplete
      } catch (error) {
        if (hasCode(error, 'store_unavailable')) throw error
        isComplete = false
        log.error({ err: error, process: policy.process }, 'purging old runs of a process failed')
      }
    return (await forget()) && (await purgeEntries()) && (await forgetOperations()) && isComplete
  }

  async function poll(): Promise<boolean> {
    policies ??= await readPolicies()
    const names = policies.map(({ process }) => process)
    const oldestMs = new Map<string, number>()
    for (const process of names) {
      const all = { process, completedMs: 0, failedMs: 0 }
      const { oldestMs: ageMs } = await source.purgeable(all, FIRST_END, 1)
      if (ageMs !== null) oldestMs.set(process, ageMs)
    }
    const { kind, lastPassMs } = await passes.begin(owner, names, intervalMs * INTERVALS_PER_PASS)
    deps.onAges({ oldestMs, lastPassMs: lastPassMs ?? now() - startedAt })
    if (kind === 'begun' && (await pass())) await passes.end(owner, names)
    return true
  }

  const polling = startPolling({ ...deps, task: 'retention', poll })
  return {
    async [Symbol.asyncDispose]() {
      shutdown.abort()
      await polling[Symbol.asyncDispose]()
    },
  }
}

/**
 * Returns the retention of each loaded process and of the process of webhooks. Runs of webhooks may exist even if their
 * process is not loaded, because `WEBHOOKS_FILE` may have been set earlier.
 */
function policiesOf(
  { processes, retention }: Pick<RetentionDeps, 'processes' | 'retention'>,
  initial: typeof DEFAULT,
): readonly RetentionPolicy[] {
  const ms = (days: number): number | null => (days === 0 ? null : days * DAY_MS)
  return [...new Set([...processes.keys(), WEBHOOK_PROCESS])].map((process) => {
    const own = processes.get(process)?.retention ?? {}
    return {
      process,
      completedMs: ms(own.completedDays ?? retention.completedDays ?? initial.completedDays),
      failedMs: ms(own.failedDays ?? retention.failedDays ?? initial.failedDays),
    }
  })
}

/**
 * The pace of a purge. The size of a batch depends on the duration of the previous batch, so that
 * row locks last only tens of milliseconds. The pause after a batch grows with the square of the slowdown, because a
 * statement that takes longer than usual shows that the database has other work.
 */
export interface PurgePace {
  /** The number of runs of the next batch. */
  readonly size: number
  /** The lowest time per run in ms. It rises by 0.2 % per batch, so a permanent slowdown counts as normal after minutes. */
  readonly bestMs: number
  readonly pauseMs: number
}

/** The minimum number of runs in a batch. In a smaller one the commit dominates, which would look like load. */
const MIN_SIZE = 100
export const MAX_SIZE = 1_000
const TARGET_MS = 40
/** The length of the pause after a batch without a slowdown, as a fraction of the duration of the batch. */
const PAUSE = 0.25
/** The maximum slowdown. A pause lasts at most four batches, so the purge works a fifth of the time. */
const MAX_SLOWDOWN = 4
const BEST_DRIFT = 1.002

export const firstPace: PurgePace = { size: 100, bestMs: Infinity, pauseMs: 0 }

/** Returns the pace after a batch of `count` runs that took `ms`. */
export function nextPace({ size, bestMs }: PurgePace, count: number, ms: number): PurgePace {
  const perRun = Math.max(ms, 0.1) / Math.max(count, 1)
  // The duration of a small batch is ignored, because a small batch takes longer per run even without load.
  const isSmall = count < size / 2
  const best = isSmall ? bestMs : Math.min(perRun, bestMs * BEST_DRIFT)
  const slowdown = isSmall ? 1 : Math.min(MAX_SLOWDOWN, perRun / best)
  const wanted = Math.min(TARGET_MS / perRun, size * 2)
  return {
    size: isSmall ? size : Math.round(Math.min(MAX_SIZE, Math.max(MIN_SIZE, wanted))),
    bestMs: best,
    pauseMs: ms * PAUSE * slowdown ** 2,
  }
}
