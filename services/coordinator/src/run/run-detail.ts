import type { Attempt, Item } from './item.ts'
import type { Run } from './run.ts'

/** The part of the port `TransactionSource` that reads one transaction. A `replayId` of `null` means its latest run. */
export interface RunReader {
  /** Returns a run; `null` if the run does not exist. */
  get(
    process: string,
    transactionId: string,
    replayId: number | null,
    parts?: RunParts,
  ): Promise<RunDetail | null>
  /** Returns the runs of a transaction, the latest first. */
  runsOf(process: string, transactionId: string, page: RunsPage): Promise<RunSummary[]>
}

/** The parts of a run that are read. */
export interface RunParts {
  /** The maximum number of attempts to return. The newest attempts are returned. */
  readonly attempts?: number
  /**
   * If false, the items are returned without `ResponseBody` and `Data`, each of which can have a size of a megabyte. With
   * the name of a step, only the item of the step is returned.
   */
  readonly bodies?: boolean | { readonly step: string }
}

/** Reads a run without its attempts, and without the bodies of its items. */
export const ONLY_RUN: RunParts = { attempts: 0, bodies: false }

export const DEFAULT_ATTEMPTS = 50

/** A run with its items and its newest attempts. */
export interface RunDetail {
  readonly run: Run
  readonly lease: RunLease
  readonly items: readonly Item[]
  /** The returned attempts, oldest first. */
  readonly attempts: readonly Attempt[]
  /** The number of all attempts, including those that are not returned. */
  readonly attemptCount: number
}

/** The lease of a run. All members are `null` while no worker has claimed the run. */
export interface RunLease {
  readonly LeaseOwner: string | null
  readonly LeaseUntil: string | null
  /** The time at which the attempt in flight started. */
  readonly StartedAt: string | null
}

export const NO_LEASE: RunLease = { LeaseOwner: null, LeaseUntil: null, StartedAt: null }

export interface RunsPage {
  /** Returns only runs with a smaller `ReplayID`. */
  readonly before?: number | undefined
  readonly limit: number
}

/** A run without its data. */
export type RunSummary = Pick<
  Run,
  | 'ReplayID'
  | 'Status'
  | 'StepName'
  | 'ErrorClass'
  | 'InDoubt'
  | 'InputChanged'
  | 'DefinitionVersion'
  | 'Realm'
  | 'Version'
  | 'CreatedAt'
  | 'UpdatedAt'
  | 'CompletedAt'
  | 'PurgedAt'
>
