import type { HeaderStatus, QueueTransaction } from '@integration-host/shared/contracts/transaction'
import type { Transition } from '../process/progress.ts'
import type { Run, RunKey } from './run.ts'
import type { Attempt, FinishedItem, Item } from './item.ts'

/**
 * The port to where transactions are kept: the truth about every run, and the outbox of every message.
 *
 * S1  Whatever a method resolved with is durable.
 * S2  A transition happens only from the version it names; each one adds 1 to `Version`.
 * S3  At most one live lease per run. Who lost it changes nothing any more.
 * S4  A run that is not over and has no live lease comes up in `due` again and again, ever more spaced.
 * S5  All times are the source's own: replicas need no common clock.
 *
 * Every method throws `store_unavailable` when the source cannot be reached; the change may then have
 * happened all the same.
 */
export interface TransactionSource extends AsyncDisposable {
  /** Queues run 0 of each; the results are in the order of the transactions. */
  queue(process: ProcessOutline, transactions: readonly QueueTransaction[]): Promise<QueueResult[]>
  /** Takes the lease of the run if the message is about its present state. */
  claim(message: ClaimRequest): Promise<ClaimResult>
  /**
   * Commits the outcome of a leased step and ends the lease, or gives it a new version and time where the
   * transition `continues`; null when the lease was lost (S3).
   */
  record(lease: Lease, transition: Transition): Promise<Moved | null>
  /** Extends leases; resolves with those that are lost. */
  renew(leases: readonly Lease[]): Promise<readonly Lease[]>
  /** Up to `limit` runs of these steps that should have been picked up by now; spaces the next time (S4). */
  due(steps: readonly StepRef[], limit: number): Promise<Run[]>
  /** Takes expired leases away from coordinators that are gone; the runs are due again. */
  adopt(limit: number): Promise<Run[]>
  /** Up to `limit` overdue runs of these processes at a step that none of them has (any more). */
  runsAtUnknownStep(processes: readonly ProcessOutline[], limit: number): Promise<Run[]>
  /** Ends an active, unleased run that cannot be run at all. False when it changed meanwhile. */
  refuse(run: RunKey, version: number, errorClass: string, error: string): Promise<Run | null>

  get(process: string, transactionId: string, replayId: number | null): Promise<RunDetail | null>
  list(process: string, filter: ListFilter): Promise<Page>

  /**
   * Starts the next run with the same initial data, from `fromStep` with copies of the items before it.
   *
   * @throws {IntegrationError} `transaction_not_found`, `transaction_active`, or `invalid_request` when an
   * item before `fromStep` was never completed.
   */
  replay(process: ProcessOutline, transactionId: string, fromStep: string | null): Promise<Run>
  /** @throws {IntegrationError} `transaction_not_found`, `transaction_not_resumable`. */
  resume(process: string, transactionId: string, replayId: number | null): Promise<Run>
  /** @throws {IntegrationError} `transaction_not_found`, `transaction_not_active`. */
  cancel(process: string, transactionId: string, replayId: number | null): Promise<Run>
  /** Makes up to `limit` runs that wait for this credential due again. */
  wake(credential: string, limit: number): Promise<Run[]>

  /** The processes that are paused. */
  paused(): Promise<ReadonlySet<string>>
  setPaused(process: string, isPaused: boolean): Promise<void>

  audit(processes: readonly string[]): Promise<Audit>

  /**
   * Calls `onDue` when other hands may have inserted rows that are due. A hint and no more: it can be missed,
   * and many rows may come as one.
   */
  watch(onDue: () => void): void
}

/** What a source has to know of a process: its name, and its steps in order. */
export interface ProcessOutline {
  readonly name: string
  readonly steps: readonly [string, ...string[]]
}

export interface StepRef {
  readonly process: string
  readonly step: string
  /** Rows without a `StepName` mean the first step. */
  readonly isFirst: boolean
}

export type QueueResult =
  | { readonly outcome: 'queued' | 'exists'; readonly header: Run }
  | { readonly outcome: 'conflict' }

export interface ClaimRequest extends RunKey {
  readonly step: string
  readonly isFirst: boolean
  readonly version: number
  readonly owner: string
}

/** The right to record the next outcome: the run at the version the claim gave it. */
export interface Lease extends RunKey {
  readonly step: string
  readonly version: number
  readonly owner: string
  /** Of the attempt in hand, which the record writes down. */
  readonly attempt: number
  readonly startedAt: string
}

/** What a transition may change of a header. */
export type Moved = Omit<Run, 'InitialData' | 'Realm' | 'CreatedAt'>

export interface Claim {
  readonly lease: Lease
  /** As claimed: `Version` is the fence, `Attempt` counts this attempt. */
  readonly header: Run
  /** Of the steps that are completed or copied. */
  readonly items: readonly FinishedItem[]
}

export type ClaimResult =
  | { readonly kind: 'claimed'; readonly claim: Claim }
  /** Due, but not before `delayMs` from now; `version` is the run's present one. */
  | { readonly kind: 'early'; readonly delayMs: number; readonly version: number }
  /** Another worker has it, or the message is about a state that has passed. */
  | { readonly kind: 'stale' }
  | { readonly kind: 'unknown' }

export interface RunDetail {
  readonly header: Run
  readonly items: readonly Item[]
  readonly attempts: readonly Attempt[]
}

export interface ListFilter {
  readonly status?: HeaderStatus | undefined
  /** Changed at or after this time, ISO 8601. */
  readonly since?: string | undefined
  /** The `next` of the page before. */
  readonly after?: PagePosition | undefined
  readonly limit: number
}

/** Newest first. The position names a row, so pages stay whole while rows come in. */
export interface PagePosition {
  readonly createdAt: string
  readonly transactionId: string
  readonly replayId: number
}

export interface Page {
  readonly headers: readonly Run[]
  readonly next: PagePosition | null
}

/** Runs at one step that a worker could take now; `step` is empty in rows that name none. */
export interface DueRuns {
  readonly process: string
  readonly step: string
  readonly due: number
  /** How long the first of them has been due. */
  readonly oldestMs: number
}

/** Rows checked against one another. `violations` are counts that must be 0. */
export interface Audit {
  readonly headers: Readonly<Partial<Record<HeaderStatus, number>>>
  readonly dueBySteps: readonly DueRuns[]
  readonly violations: {
    /** Completed runs without a completed item. */
    readonly completedWithoutItem: number
    /** Runs whose present step already has a completed item. */
    readonly itemAhead: number
    /** Items that belong to no run. */
    readonly orphanItems: number
    /** Runs that should have been picked up long ago. */
    readonly stuck: number
    /** Active runs of processes that are not loaded. */
    readonly unknownProcess: number
  }
}

/** How long a worker may hold a run without a sign of life, and how often it gives one. */
export const LEASE_MS = 30_000
export const RENEW_MS = 10_000
/** A parked run looks again by itself after this long: an event can be missed. */
export const WAITING_RECHECK_MS = 300_000
/** The first re-publish of a run comes this long after its message went out, or a third sooner; doubling up to the cap. */
export const SWEEP_MS = 15_000
export const SWEEP_CAP_MS = 900_000
/** Overdue by this much means nothing picks the run up. */
export const STUCK_MS = 1_800_000
