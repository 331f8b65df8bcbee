/**
 * Exports the finished runs of a process in the order in which they ended. A run that is resumed after its export is
 * exported again when it ends again.
 */
import type { Attempt, Item } from './item.ts'
import type { EndPosition } from './retention.ts'
import type { Run } from './run.ts'

export interface RunExports {
  /**
   * Returns the end of an export: the time `wanted`, or a minute ago if `wanted` is later or `null`. Newer runs are not
   * exported yet: the end time of a run is set before the database transaction is committed. A run can therefore become
   * visible after another run that has a later end time.
   */
  exportEnd(wanted: string | null): Promise<string>
  /** Reads at most `limit` runs after a position. Purged runs are omitted. */
  exportPage(range: ExportRange, after: EndPosition, limit: number): Promise<ExportPage>
}

/** The runs of a process that ended at `since` or later and before `until`; ISO 8601. */
export interface ExportRange {
  readonly process: string
  readonly since: string | null
  readonly until: string
}

export interface ExportedRun {
  readonly run: Run
  readonly items: readonly Item[]
  readonly attempts: readonly Attempt[]
}

export interface ExportPage {
  readonly runs: readonly ExportedRun[]
  /** The position of the last run of this page; `null` if there is no further page. */
  readonly next: EndPosition | null
}

export const EXPORT_LAG_MS = 60_000
