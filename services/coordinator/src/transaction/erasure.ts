/**
 * Erasure: the data of runs is blanked, and the runs stay with their ids, statuses, times and error classes.
 *
 * E1  Only runs that have ended are erased. An erased run can neither be resumed nor replayed.
 * E2  Each run is blanked together with its entry in the action log.
 * E3  An erasure that was interrupted is completed by requesting it again: runs that are erased already are returned
 *     again, because their files may be left.
 */
import type { Act } from './action.ts'
import type { RunKey } from './run.ts'

/** Which runs an erasure concerns: those of a realm, of all processes or of one, or those of some transactions. */
export type ErasureScope =
  | { readonly Realm: string; readonly Process: string | null }
  | { readonly Process: string; readonly Ids: readonly string[] }

/** The position behind which the next batch begins. */
export interface ErasurePosition extends RunKey {
  /** As the source prints it. */
  readonly CreatedAt: string
}

export interface ErasureBatch {
  /** The ended runs of the batch. `isNew` is false if the run was erased before. */
  readonly runs: readonly (RunKey & { readonly isNew: boolean })[]
  /** `null` after the last batch. */
  readonly next: ErasurePosition | null
}

export interface Erasures {
  /**
   * Blanks initial data, tags, responses, item data and errors of the next `limit` runs that have ended. When the last
   * batch has resolved, no file of the source contains the data any more.
   */
  erase(
    scope: ErasureScope,
    page: { readonly after: ErasurePosition | null; readonly limit: number },
    act: Pick<Act, 'by' | 'reason'>,
  ): Promise<ErasureBatch>
  /** Counts the runs that have not ended, and, for a scope with ids, those of its ids that have no run. */
  unerasable(scope: ErasureScope): Promise<{ readonly active: number; readonly unknown: number }>
}
