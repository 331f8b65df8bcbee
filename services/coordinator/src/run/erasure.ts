/**
 * An erasure blanks the data of runs. The runs keep their ids, statuses, times and error classes.
 *
 * E1  Only runs that have ended are erased. An erased run can neither be resumed nor replayed.
 * E2  Blanking a run and writing its entry in the action log are one commit.
 * E3  The files of a run are removed before the run is blanked, so an erased run has no files. A client completes an
 *     interrupted erasure by requesting it again. If the process of a run is not loaded here, a coordinator that has
 *     loaded the process removes the files in its next retention pass.
 * E4  A run that was cancelled during an attempt counts as not ended until the duration of a lease has passed, because
 *     the worker of the attempt may still write a file.
 * E5  The erasure of a company drops its undelivered webhooks, because they have its label and tags, and would delay the
 *     erasure for as long as a receiver is unavailable. Only those that report the removal of its credential remain;
 *     they do not count as runs that have not ended.
 */
import type { AuditContext } from './action.ts'
import type { RunKey } from './run.ts'

/**
 * The scope of an erasure: the runs of a realm in all processes or in one process, or the runs of some transactions.
 */
export type ErasureScope =
  | { readonly Realm: string; readonly Process: string | null }
  | { readonly Process: string; readonly Ids: readonly string[] }

/** The position after which the next page begins. Runs are ordered by the time at which they were queued. */
export interface ErasurePosition extends RunKey {
  /** The time at which the run was queued, in the text format of the transaction source. */
  readonly CreatedAt: string
}

/** A run that has ended and is not erased, with the version that it had when it was read. */
export interface ErasableRun extends RunKey {
  readonly Version: number
}

export interface RunToErase extends ErasableRun {
  /** True if the files of the run remain until a coordinator that has loaded the process removes them. */
  readonly filesLeft?: boolean
}

export interface ErasurePage {
  readonly runs: readonly ErasableRun[]
  /** The number of runs in the page that have not ended. */
  readonly notEnded: number
  /** The position of the next page; `null` after the last page. A page may be empty although further pages follow. */
  readonly next: ErasurePosition | null
}

export interface Erasures {
  /** Reads at most `limit` runs of the scope that are not erased yet. */
  erasable(
    scope: ErasureScope,
    page: { readonly after: ErasurePosition | null; readonly limit: number },
  ): Promise<ErasurePage>
  /**
   * Blanks initial data, tags, responses, item data and errors of these runs. A run that has changed since `erasable`
   * read it is skipped. Returns the number of erased runs.
   */
  erase(runs: readonly RunToErase[], act: AuditContext): Promise<number>
}
