import { isDeepStrictEqual } from 'node:util'
import type {
  Priority,
  HeaderView,
  QueueTransaction,
} from '@integration-host/shared/contracts/transaction'

/**
 * The members are spelled as in the tables and the API (`TransactionID`, `ReplayID`). So a member has the same spelling
 * from the row to the response.
 */
export interface RunKey {
  readonly Process: string
  readonly TransactionID: string
  readonly ReplayID: number
}

/**
 * One run of a transaction, stored in the table `Order_Header`.
 *
 * `Version` grows by one with each committed transition. It is a fence (fencing token): a message, a lease and an
 * outcome contain the version to which they belong. `StepName` is the step that is due or in flight, or the last step
 * of a run that has ended. An empty `StepName` means the first step, because another program may insert a row without a
 * step name.
 */
export interface Run extends Readonly<HeaderView> {
  /** A stable error class for `LastError`, such as `http_404` or `step_threw`. */
  readonly ErrorClass: string | null
  /** What a `Waiting` run waits for, as `RunResponse` (contracts/run.ts) describes it; `null` if it does not wait. */
  readonly WaitingFor: string | null
  /**
   * Whether an earlier attempt of the due step may have taken effect. If so, `confirm` is called before the next
   * attempt.
   */
  readonly InDoubt: boolean
  /** Runs with `high` are delivered and get slots before the others. Every replay keeps the priority. */
  readonly Priority: Priority
  /** The version that the definition of the process had when the run began; `null` if it had none. */
  readonly DefinitionVersion: string | null
  /** The time at which the run fails unless it has ended; `null` if there is no deadline. */
  readonly DeadlineAt: string | null
  /** The time before which the run does not start; `null` if it was not delayed, or was started by an operator. */
  readonly NotBefore: string | null
  /** The debounce key; `null` if the transaction was queued without `Debounce`. */
  readonly DebounceKey: string | null
  /** The number of later requests that have replaced the initial data before the run started. */
  readonly Absorbed: number
  /** The tags with which the transaction was queued; `null` if there are none. */
  readonly Tags: Readonly<Record<string, string>> | null
  /** The concurrency key, to which the limit of the process applies; `null` if the process has no key. */
  readonly ConcurrencyKey: string | null
  /** Whether the initial data of this replay differs from the initial data of the previous run. */
  readonly InputChanged: boolean
  /** The run that has started this run as one of its children; absent in every other run. */
  readonly Parent?: ParentRun
  /** The time at which an erasure blanked the data of the run. */
  readonly ErasedAt: string | null
  /** The time at which retention removed the data, items and attempts of the run. */
  readonly PurgedAt: string | null
}

/** The parent of a run: the run and its place. */
export interface ParentRun extends RunKey {
  readonly Place: string
}

/** The members that are only needed for display and search, and that a claim does not read. */
type Annotations =
  | 'NotBefore'
  | 'DebounceKey'
  | 'Absorbed'
  | 'ConcurrencyKey'
  | 'Tags'
  | 'InputChanged'
  | 'ErasedAt'
  | 'Parent'
  | 'PurgedAt'
/** The members of a run that a worker needs. */
export type ClaimedRun = Omit<Run, Annotations>

export const runKey = ({ Process, TransactionID, ReplayID }: RunKey): RunKey => ({
  Process,
  TransactionID,
  ReplayID,
})

/** Returns whether two keys identify the same run. */
export const isSameRun = (a: RunKey, b: RunKey): boolean =>
  a.TransactionID === b.TransactionID && a.ReplayID === b.ReplayID && a.Process === b.Process

/**
 * Returns a text that identifies a run, for use as a map key. Different runs have different texts, because JSON escapes
 * the parts of the key.
 */
export const keyText = ({ Process, TransactionID, ReplayID }: RunKey): string =>
  JSON.stringify([Process, TransactionID, ReplayID])

/** Returns the tags in the form in which they are stored: `null` if there are no tags. */
export const storedTags = ({ Tags = {} }: Pick<QueueTransaction, 'Tags'>): Run['Tags'] =>
  Object.keys(Tags).length === 0 ? null : Tags

/**
 * Returns whether a replay with `initialData` has the same initial data as `run`. Returns false for an erased run, even
 * if `initialData` is `null`, because the data of an erased run is unknown.
 */
export const hasInitialData = (
  run: Pick<Run, 'ErasedAt' | 'InitialData'>,
  initialData: QueueTransaction['InitialData'],
): boolean => run.ErasedAt === null && isDeepStrictEqual(run.InitialData, initialData)

/**
 * Returns whether a request repeats the request that queued `run`, that is, whether realm, tags and initial data are
 * equal. Other members, such as the priority and the start, are not compared. The tags and data of an erased or purged
 * run are unknown, so they are not compared. The data of a run that has absorbed requests was replaced, so it is not
 * compared either.
 */
export const isRepeated = (run: Run, transaction: QueueTransaction): boolean =>
  run.Realm === (transaction.Realm ?? null) &&
  (run.ErasedAt !== null ||
    run.PurgedAt !== null ||
    run.Absorbed > 0 ||
    (isDeepStrictEqual(run.Tags, storedTags(transaction)) &&
      isDeepStrictEqual(run.InitialData, transaction.InitialData)))
