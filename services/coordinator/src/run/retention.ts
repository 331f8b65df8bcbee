/**
 * The retention of finished runs. A purge removes the data, items, attempts and tags of a run. It keeps the id, so that
 * a late duplicate is not run again. Much later the id is deleted too.
 *
 * P1  A run is purged as a whole, in one database transaction. Before that, every run of its transaction must have
 *     ended, and for each of these runs the retention time for the outcome of the run must have passed. A replay copies
 *     the data that it needs when it starts, so it never needs an earlier run; the earlier runs are nevertheless kept
 *     until the last replay is old enough.
 * P2  A purged run is a stub: it keeps its key, realm, status, step, version and times, `InitialData` is null, and
 *     `PurgedAt` is set. Lists do not contain stubs, and a stub can be neither resumed nor replayed.
 * P3  The ids of all runs of a transaction are deleted together, so none of its runs remains without the run 0 that
 *     rejects a duplicate.
 * P4  Purged runs and deleted ids are counted in the database transaction that purges or deletes them. The action log
 *     gets the counts: one entry for each pass and process, not one for each run (`purge-passes.ts`).
 * P5  The database transaction that purges runs also records that their files remain. The files are removed after this
 *     transaction, so a run that was resumed or replayed before the purge keeps its files. If the replica dies before
 *     it has removed the files, the next pass removes them. An id is not deleted while its files remain.
 */
import { installation } from '../records/installation.ts'
import type { RunKey } from './run.ts'

/** For how many days the runs of one process are kept after their end; `null` means for ever. */
export interface RetentionPolicy {
  readonly process: string
  readonly completedMs: number | null
  /** The retention of failed and cancelled runs. */
  readonly failedMs: number | null
}

/** A position in the finished runs of a process, which are ordered by the time of their end. */
export interface EndPosition {
  readonly completedAt: string
  readonly transactionId: string
  readonly replayId: number
}

/** The position before the first run. */
export const FIRST_END: EndPosition = {
  completedAt: '0001-01-02T00:00:00.000Z',
  transactionId: '',
  replayId: 0,
}

export interface PurgeablePage {
  /** Runs that may be purged. */
  readonly runs: readonly RunKey[]
  /** The position after the last checked run; `null` if all runs were checked. */
  readonly next: EndPosition | null
  /** How many milliseconds ago the oldest checked run ended; `null` if no run was checked. */
  readonly oldestMs: number | null
}

/**
 * The rows that name purged or erased runs whose files may remain. Each row names runs of one process, and is removed when
 * their files are.
 */
export const FILES_LEFT = installation<readonly RunKey[]>('Files left ')

/** The part of the transaction source that removes old runs. */
export interface Retention {
  /**
   * Checks the next `limit` finished runs after a position, the oldest first, and returns the runs that may be purged.
   * Purged runs and runs that are younger than both retention times are not checked.
   */
  purgeable(policy: RetentionPolicy, after: EndPosition, limit: number): Promise<PurgeablePage>
  /**
   * Purges the given runs, except those that may no longer be purged, and records that their files remain
   * ({@link FILES_LEFT}). Returns the number of purged runs.
   */
  purge(policy: RetentionPolicy, runs: readonly RunKey[]): Promise<number>
  /**
   * Deletes at most `limit` ids of transactions whose runs were purged at least `dedupeMs` ago and whose files are
   * removed. Returns the number of deleted ids.
   */
  forget(dedupeMs: number, limit: number): Promise<number>
}

/** The key id of the entries that a pass writes to the action log. No service key can have this id. */
export const RETENTION_KEY_ID = 'coordinator:retention'

/**
 * What a pass counts, with the prefix of the names of its counts. There is one row of `Order_Installation` for each
 * process that the pass has changed.
 */
export const COUNTED = { purge: 'Purged ', forget: 'Forgotten ' } as const
