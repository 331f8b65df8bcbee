/**
 * Erasure: the data of runs is blanked, and the runs stay with their ids, statuses, times and error classes.
 *
 * E1  Only runs that have ended are erased. An erased run can neither be resumed nor replayed.
 * E2  Each run is blanked together with its entry in the action log.
 * E3  The files of a run are removed before it is blanked, so no erased run has a file left. An erasure that was
 *     interrupted is completed by requesting it again.
 * E4  A run that was cancelled during an attempt has not ended for an erasure until a lease later: the worker of the
 *     attempt may still write a file.
 */
import type { Act } from './action.ts'
import type { RunKey } from './run.ts'

/** Which runs an erasure concerns: those of a realm, of all processes or of one, or those of some transactions. */
export type ErasureScope =
  | { readonly Realm: string; readonly Process: string | null }
  | { readonly Process: string; readonly Ids: readonly string[] }

/** The position behind which the next page begins. Runs are ordered by the time at which they were queued. */
export interface ErasurePosition extends RunKey {
  /** As the source prints it. */
  readonly CreatedAt: string
}

/** A run that has ended and is not erased, at this version. */
export interface ErasableRun extends RunKey {
  readonly Version: number
}

export interface ErasurePage {
  readonly runs: readonly ErasableRun[]
  /** The runs of the page that have not ended. */
  readonly notEnded: number
  /** `null` after the last page. A page may be empty although others follow. */
  readonly next: ErasurePosition | null
}

export interface Erasures {
  /** Reads the next runs of the scope that are not erased, at most `limit` of them. */
  erasable(
    scope: ErasureScope,
    page: { readonly after: ErasurePosition | null; readonly limit: number },
  ): Promise<ErasurePage>
  /**
   * Blanks initial data, tags, responses, item data and errors of these runs. A run that has changed since it was read
   * is left. Returns the number of erased runs.
   */
  erase(runs: readonly ErasableRun[], act: Pick<Act, 'by' | 'reason'>): Promise<number>
  /** When it has resolved, no file of the source contains the data of an erased run any more. */
  endErasure(): Promise<void>
  /** Returns the realms of the runs of these transactions, and how many of the ids have no run. */
  realmsOf(
    process: string,
    ids: readonly string[],
  ): Promise<{ readonly realms: readonly (string | null)[]; readonly unknown: number }>
}
