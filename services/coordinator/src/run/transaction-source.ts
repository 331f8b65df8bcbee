import type { Priority, QueueTransaction } from '@integration-host/shared/contracts/transaction'
import type { Entries } from '../entry/book-entry.ts'
import type { Json } from './json-normalization.ts'
import type { Transition } from './progress.ts'
import type { Act, Actor } from './action.ts'
import type { Erasures } from './erasure.ts'
import type { Events } from './events.ts'
import type { Families } from './families.ts'
import type { PayloadStore } from './payload.ts'
import type { ClaimedRun, Run, RunKey } from './run.ts'
import type { Audit } from './audit.ts'
import type { FinishedItem, Round } from './item.ts'
import type { RunExports, RunReader } from './run-detail.ts'
import type { RecordKind, Records } from '../records/records.ts'
import type { OperatorActions } from './operator-actions.ts'
import type { Retention } from './retention.ts'
import type { RunSearchSource } from './run-search.ts'
import type { SlotRequest, Slots } from './slots.ts'
import type { TargetCalls } from './target-calls.ts'

/**
 * The port to the store of transactions. The store is the authoritative state of every run and the outbox of every step
 * message.
 *
 * S1  When a method has resolved, its change is durable.
 * S2  A transition happens only from the version that it names. Each transition adds 1 to `Version`.
 * S3  A run has at most one lease that has not expired (a live lease). A worker that has lost its lease can no longer
 *     change the run.
 * S4  As long as a run is not over and has no live lease, `due` returns it repeatedly, at growing intervals.
 * S5  All times come from the source's own clock, so the clocks of replicas need not agree.
 *
 * Every method throws `store_unavailable` if the source cannot be reached. In this case, it is unknown whether the
 * change of the method was committed.
 */
export interface TransactionSource
  extends
    Entries,
    Erasures,
    Events,
    Families,
    OperatorActions,
    PayloadStore,
    Retention,
    RunExports,
    RunReader,
    RunSearchSource,
    Slots,
    TargetCalls,
    AsyncDisposable {
  /** Returns the rows of a table that a store of its own reads and replaces. */
  records<Row extends object>(kind: RecordKind<Row>): Records<Row>
  /**
   * Rewrites the files of the source. When the promise has resolved, the files contain no data that was erased, purged
   * or replaced. A database needs no such step.
   */
  compact(): Promise<void>
  /**
   * Queues run 0 of each transaction. The results are in the order of the transactions. With `by`, each new transaction
   * is recorded as an action, and a new run that waits for its start takes a place of the share of the actor
   * (`by.shareOf`). With `start`, the same statement claims the first runs that are due now. All transactions without
   * `Debounce` are stored in one statement, so callers must split long lists.
   */
  queue(
    process: ProcessOutline,
    transactions: readonly NewTransaction[],
    by?: Actor,
    start?: StartOnArrival,
  ): Promise<(QueueResult | Limited)[]>
  /** Acquires the lease of the run if the message matches the current state of the run. */
  claim(message: ClaimRequest): Promise<ClaimResult>
  /**
   * Commits the outcome of a leased step. Ends the lease, or renews it for the next step if the transition
   * `continues`. Returns `null` if the lease was lost.
   */
  record(lease: Lease, transition: Transition): Promise<RunState | null>
  /** Extends leases, and stores the progress of their steps; resolves with the leases that were lost. */
  renew(leases: readonly LeaseRenewal[]): Promise<readonly Lease[]>
  /**
   * Returns at most `limit` overdue runs at these steps, and doubles the interval after which each run is returned
   * again. If another program has inserted a run without a step name, the run also gets the version and the deadline of
   * its process.
   */
  due(steps: readonly StepRef[], limit: number): Promise<Run[]>
  /** Releases at most `limit` expired leases of lost workers. The runs of these leases become due again. */
  recoverExpiredLeases(limit: number): Promise<Run[]>
  /**
   * Returns at most `limit` overdue runs of these processes. The step of each returned run does not exist in its
   * process.
   */
  runsAtUnknownStep(processes: readonly ProcessOutline[], limit: number): Promise<Run[]>
  /**
   * Fails an active run that has no lease and can never continue. Returns `null` if the run has changed since
   * `version`.
   *
   * @param undoAt the step at which the run is undone instead, if it is given (`onFailure: 'undo'`). If another step of the
   *   run is in doubt, the run is `UndoFailed`, because that step must be settled first. A run whose undo has begun keeps
   *   the reason of the undo.
   */
  failRun(
    run: RunKey,
    version: number,
    errorClass: string,
    error: string,
    undoAt?: string,
  ): Promise<Run | null>
  /**
   * Fails at most `limit` active runs whose deadline has passed, and returns them. A run with a lease is not failed
   * yet, even if the lease has expired: first the outcome of its attempt must be recorded, or its lease recovered.
   *
   * @param undone the processes whose runs begin to be undone instead (`onFailure: 'undo'`); none by default
   */
  failPastDeadline(limit: number, undone?: readonly string[]): Promise<Run[]>

  /**
   * Starts the next run of a transaction with the same initial data, or with `initialData`. The run starts at
   * `fromStep`, with copies of the items of the earlier steps. `act.ifVersion` is the required version of the latest
   * run.
   *
   * @throws {IntegrationError} `transaction_not_found`, `version_moved`, `transaction_active`, or `invalid_request` if
   *   an item before `fromStep` was never completed.
   */
  replay(
    process: ProcessOutline,
    transactionId: string,
    { fromStep, latest, initialData }: ReplayRequest,
    act: Act,
  ): Promise<Run>
  /**
   * Makes runs due again that wait for a credential, or for the resume of a company (`paused:<realm>`), at most `limit`
   * of them. The latter keep their last error, because they have not been attempted.
   */
  wake(waitingFor: string, limit: number): Promise<Run[]>

  audit(processes: readonly string[]): Promise<Audit>

  /** Stores webhooks of other events. A webhook that is already stored, or that already has a run, is ignored. */
  addWebhooks(webhooks: readonly NewWebhook[]): Promise<void>
  /**
   * Deletes the webhooks whose runs have ended. Then queues a run for the oldest webhook of each receiver and realm,
   * unless this webhook already has a run. For a webhook without a realm, its `Lane` is used instead of the realm.
   * Queues at most `limit` runs.
   */
  startWebhooks(limit: number): Promise<StartedWebhooks>

  /**
   * Calls `onDue` when another program may have inserted rows that are due. The call is only a hint: calls can be
   * missed, and one call may report many rows.
   */
  watch(onDue: () => void): void
}

/** A transaction to be queued, with the concurrency key of its run if its process has `concurrencyKey`. */
export interface NewTransaction extends QueueTransaction {
  readonly ConcurrencyKey?: string
  /**
   * Returns the initial data in the form in which the given run stores it. Encrypted data has a different form in each
   * run, because it is bound to the run. If the function is absent, the form is the same for all runs.
   */
  readonly initialDataFor?: (run: RunKey) => QueueTransaction['InitialData']
}

/** The members of a process definition that a source needs. `steps` are in the order in which they run. */
export interface ProcessOutline extends RunTerms {
  readonly name: string
  readonly steps: readonly [string, ...string[]]
  /** Those of `steps` at which a run waits for an event; absent if there are none. */
  readonly events?: readonly string[]
}

/** The terms of a run: the members that a run gets from the definition of its process when the run begins. */
export interface RunTerms {
  /** The version of the definition; absent or `null` if the definition has no version. */
  readonly version?: string | null
  /**
   * The time limit of a run in milliseconds; absent or `null` if there is no deadline. After a resume, the time limit
   * begins again.
   */
  readonly deadlineMs?: number | null
}

export interface ReplayRequest {
  /** The step at which the new run starts; `null` for the first step. */
  readonly fromStep: string | null
  /**
   * The required latest run: if another run is the latest, the replay is rejected with `version_moved`. `null` allows
   * every run.
   */
  readonly latest: number | null
  /** The initial data of the new run. If absent, the initial data of the previous run is used. */
  readonly initialData?: QueueTransaction['InitialData'] | undefined
  /** The concurrency key of `initialData`. If absent, the key is computed for the first claim of the new run. */
  readonly concurrencyKey?: string | null
}

/** The members of a run that may be part of a webhook. */
export type AnnouncedRun = Pick<
  Run,
  | 'Process'
  | 'TransactionID'
  | 'ReplayID'
  | 'Status'
  | 'StepName'
  | 'Version'
  | 'InDoubt'
  | 'ErrorClass'
  | 'LastError'
>

/**
 * An option with which a source is opened: returns the webhooks that report a transition. The source calls it for each
 * transition, and commits transition and webhooks together, so neither can be lost without the other.
 */
export type WebhooksOf = (run: AnnouncedRun) => readonly NewWebhook[]

/**
 * A webhook. It becomes a run of the process `Webhook` when all earlier webhooks of its receiver and realm have ended.
 */
export interface NewWebhook {
  readonly Receiver: string
  /** The id of the run that delivers the webhook. */
  readonly TransactionID: string
  /** The initial data of the run that delivers the webhook. The source adds `At`. */
  readonly InitialData: Readonly<Record<string, unknown>>
  /** The realm of the webhook. If absent, the realm of the run is used. */
  readonly Realm?: string | null
  /** Webhooks with the same realm are delivered in order. If the webhook has no realm, this value is used instead. */
  readonly Lane: string
  /** The time of the event, ISO 8601. If absent, the time of the transition is used. */
  readonly At?: string
}

export interface StartedWebhooks {
  readonly runs: readonly Run[]
  /** If true, the caller should repeat the call at once, because more webhooks can possibly be started. */
  readonly hasMore: boolean
}

/** A step, with the terms of its process. A run that another program has inserted at this step gets these terms. */
export interface StepRef extends RunTerms {
  readonly process: string
  readonly step: string
  /** Whether this is the first step of its process. A row with an empty `StepName` is at the first step. */
  readonly isFirst: boolean
}

/** A transaction that was not queued, because the key of the actor has as many delayed runs as one key may have. */
export interface Limited {
  readonly outcome: 'limited'
  readonly run?: undefined
  readonly claim?: undefined
}

/**
 * `run` is the run that was queued, or the run that already existed. With `absorbed`, `run` is a waiting run of another
 * transaction with the same debounce key; this run now has the data of the queued transaction.
 */
export interface QueueResult {
  readonly outcome: 'queued' | 'exists' | 'conflict' | 'absorbed'
  readonly run: Run
  /** Set if the statement that queued the run has also claimed it. `run` then has the state before the claim. */
  readonly claim?: Claim
}

/** Returns the runs that a call of `queue` has added. */
export const queuedRuns = (results: readonly (QueueResult | Limited)[]): Run[] =>
  results.flatMap(({ outcome, run }) => (outcome === 'queued' ? [run] : []))

/**
 * Makes the statement that inserts runs also claim them. This is possible only if the process has no concurrency limit,
 * and if the runs begin with its first step.
 */
export interface StartOnArrival {
  /** The owner of the leases: the replica that runs the first steps. */
  readonly owner: string
  /** The maximum number of runs to claim. The runs of the first transactions of the call are claimed. */
  readonly limit: number
}

export interface ClaimRequest extends RunKey {
  readonly step: string
  readonly isFirst: boolean
  readonly version: number
  readonly owner: string
  /**
   * Set if the process limits the number of runs in progress. The claim then succeeds only if the run has or gets a
   * slot.
   */
  readonly slot?: SlotRequest
}

/** The lease of a run: the right to record its next outcome, at the version that the claim returned. */
export interface Lease extends RunKey {
  readonly step: string
  readonly version: number
  readonly owner: string
  /** The number of the attempt in flight, which `record` stores. */
  readonly attempt: number
  /** The priority of the run; absent if it is `normal`. */
  readonly priority?: Priority
  /** The number of the round of the step; absent in round 0. */
  readonly round?: number
  readonly startedAt: string
}

/** A lease that is to be extended. */
export interface LeaseRenewal extends Lease {
  /** The progress that the step has reported; absent if it has reported none. */
  readonly report?: Json
}

/** The members of a run that a transition can change. */
export type RunState = Omit<
  ClaimedRun,
  'InitialData' | 'Realm' | 'CreatedAt' | 'DefinitionVersion' | 'DeadlineAt'
>

export interface Claim {
  readonly lease: Lease
  /** The run after the claim. `Version` is the fence, and `Attempt` includes this attempt. */
  readonly run: ClaimedRun
  /** The items of the finished steps: those that were completed in this run or copied from the previous run. */
  readonly items: readonly FinishedItem[]
  /** The round in which the step is; absent if the step has not called `repeat`. */
  readonly round?: Round
  /** Whether initial data or an item cannot be decrypted. In this case the step must not run. */
  readonly isUnreadable?: true
}

export type ClaimResult =
  | { readonly kind: 'claimed'; readonly claim: Claim }
  /** The run is due only after `delayMs` milliseconds. `version` is its current version. */
  | { readonly kind: 'early'; readonly delayMs: number; readonly version: number }
  /** Another worker has claimed the run, or the message belongs to an earlier version of the run. */
  | { readonly kind: 'stale' }
  /** No slot is free. The run is now `Waiting`. Its step message is published when the run gets a slot. */
  | { readonly kind: 'no_slot'; readonly run: RunState }
  /**
   * The concurrency key of the run is not stored. The caller must compute the key from `initialData` and `realm`, and
   * repeat the claim with this key.
   */
  | UnkeyedRun
  | { readonly kind: 'unknown' }

export interface UnkeyedRun {
  readonly kind: 'unkeyed'
  readonly initialData: Json
  /** The realm of the run; absent if it has none. */
  readonly realm?: string
  readonly version: number
  /** Whether the initial data cannot be decrypted. */
  readonly isUnreadable?: true
}

/** How long a lease lasts without renewal, and how often a worker renews its leases. */
export const LEASE_MS = 30_000
export const RENEW_MS = 10_000
/**
 * The time after which a run that waits for a credential is tried again. The run is tried again because the event that
 * reports the usable credential may have been missed.
 */
export const WAITING_RECHECK_MS = 300_000
/** The time after which a run of a paused company is tried again, in case that no replica has continued it. */
export const PAUSE_RECHECK_MS = 86_400_000
/**
 * The time from the first step message of a run to its republication by the sweeper, in milliseconds. The actual time
 * is up to a third shorter. The interval doubles with each republication, up to `SWEEP_CAP_MS`.
 */
export const SWEEP_MS = 15_000
export const SWEEP_CAP_MS = 900_000
/** The milliseconds after which an overdue run is reported as stuck, because apparently no worker processes it. */
export const STUCK_MS = 1_800_000
