import type { Attempt, Item } from './item.ts'
import type { Family } from './families.ts'
import type { EndPosition } from './retention.ts'
import { installation } from '../records/installation.ts'
import type { Run } from './run.ts'
import type { TransactionSource } from './transaction-source.ts'

/** The part of the port `TransactionSource` that reads one transaction. A `replayId` of `null` means its latest run. */
export interface RunReader {
  /** Returns a run; `null` if the run does not exist. */
  get(
    process: string,
    transactionId: string,
    replayId: number | null,
    parts?: RunParts,
  ): Promise<RunDetail | null>
  /** Returns the runs of transactions, the latest first. */
  runsOf(process: string, ids: readonly string[], page: RunsPage): Promise<RunSummary[]>
}

/** Returns the first run of each of these transactions that exists. All runs of a transaction have the same realm. */
export const firstRunsOf = (
  source: Pick<RunReader, 'runsOf'>,
  process: string,
  ids: readonly string[],
): Promise<RunSummary[]> => source.runsOf(process, ids, { before: 1, limit: ids.length })

/** The parts of a run that are read. */
export interface RunParts {
  /** The maximum number of attempts to return. The newest attempts are returned. */
  readonly attempts?: number
  /**
   * If false, the items are returned without `ResponseBody` and `Data`, each of which can have a size of a megabyte. With
   * the name of a step, only the item of the step is returned.
   */
  readonly bodies?: boolean | { readonly step: string }
  /** Whether the families are returned; false by default. */
  readonly families?: boolean
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
  /** The families of the run: one for each place that has started children. Empty unless `RunParts` asks for them. */
  readonly families: readonly Family[]
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
  | 'TransactionID'
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

/**
 * Exports the finished runs of a process in the order in which they ended. A run that is resumed after its export is
 * exported again when it ends again.
 */
export interface RunExports {
  /** Reads at most `limit` runs after a position. Purged runs are omitted. */
  exportPage(range: ExportRange, after: EndPosition, limit: number): Promise<ExportPage>
}

/** The runs of a process that ended at `since` or later and before `until`; ISO 8601. */
export interface ExportRange {
  readonly process: string
  readonly since: string | null
  readonly until: string
}

export type ExportedRun = Pick<RunDetail, 'run' | 'items' | 'attempts'>

export interface ExportPage {
  readonly runs: readonly ExportedRun[]
  /** The position of the last run of this page; `null` if there is no further page. */
  readonly next: EndPosition | null
}

/** The minimum age of the runs that an export contains, in milliseconds. */
export const EXPORT_LAG_MS = 60_000

/**
 * Returns the end of an export: the time `wanted`, or a minute ago if `wanted` is later or `null`. Newer runs are not
 * exported yet: the end time of a run is set before the database transaction is committed. A run can therefore become
 * visible after another run that has a later end time.
 */
export async function exportEnd(
  source: Pick<TransactionSource, 'records'>,
  wanted: string | null,
): Promise<string> {
  const latest = (await source.records(installation('')).now()) - EXPORT_LAG_MS
  return new Date(wanted === null ? latest : Math.min(Date.parse(wanted), latest)).toISOString()
}
