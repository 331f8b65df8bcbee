/**
 * How long finished runs are kept. A purge removes the data, items, attempts and tags of a run, but not its id, so
 * that a late duplicate is not run again. Much later the id is forgotten too.
 *
 * P1  A run is purged as a whole, in one database transaction, and only if every run of its transaction has ended and
 *     is older than the retention of its own outcome. A replay copies what it needs when it starts, so it never needs
 *     an earlier run; the earlier runs are nevertheless kept until the last replay is old enough.
 * P2  A purged run is a stub: key, realm, status, step, version and times stay, `InitialData` is null, and `PurgedAt`
 *     is set. Lists do not contain it, and it can be neither resumed nor replayed.
 * P3  The ids of a transaction are forgotten together, so none of its runs remains without the run 0 that rejects a
 *     duplicate.
 * P4  What was purged and forgotten is counted in the database transaction that did it. The action log has the counts:
 *     one entry for each pass and process, not one for each run.
 * P5  The database transaction that purges runs also records that their files are left. The files are removed after it,
 *     so a run that was resumed or replayed meanwhile keeps its files, and those of a purged run are removed by the next
 *     pass if the replica dies. An id is not forgotten while its files are left.
 */
import type { RunKey } from './run.ts'

/** How long the runs of one process are kept after their end; `null` for ever. */
export interface RetentionPolicy {
  readonly process: string
  readonly completedMs: number | null
  /** For failed and cancelled runs. */
  readonly failedMs: number | null
}

/** A position in the finished runs of a process, which are ordered by the time of their end. */
export interface EndPosition {
  readonly completedAt: string
  readonly transactionId: string
  readonly replayId: number
}

/** Sorts before every run. */
export const FIRST_END: EndPosition = {
  completedAt: '0001-01-02T00:00:00.000Z',
  transactionId: '',
  replayId: 0,
}

export interface PurgeablePage {
  /** The runs that may be purged. */
  readonly runs: readonly RunKey[]
  /** The position behind the last run that was checked; `null` if all runs were checked. */
  readonly next: EndPosition | null
}

/** `begun`: the owner may purge now. `waiting`: another owner purges, or the last pass was completed too recently. */
export interface PurgeTurn {
  readonly kind: 'begun' | 'waiting'
  /** Milliseconds since the last pass was completed; `null` if there was none. */
  readonly lastPassMs: number | null
}

/** Purged runs of one process whose files may be left. */
export interface FilesLeft {
  readonly id: string
  readonly runs: readonly RunKey[]
}

/** The part of the transaction source that removes old runs. */
export interface Retention {
  /** Whether this installation keeps finished runs by default, because it had runs before it could purge them. */
  keepsByDefault(): Promise<boolean>
  /**
   * Begins a pass, unless another owner purges or the last pass was completed less than `everyMs` ago. The right to
   * purge lasts as long as a lease of a run. It only avoids useless work: two owners would do no harm.
   */
  beginPurge(owner: string, everyMs: number): Promise<PurgeTurn>
  /** Extends the right to purge; false if another owner has it now. */
  continuePurge(owner: string): Promise<boolean>
  /** Completes a pass: records what was purged and forgotten in the action log. */
  endPurge(owner: string): Promise<void>
  /** Checks at most `limit` finished runs after a position. */
  purgeable(policy: RetentionPolicy, after: EndPosition, limit: number): Promise<PurgeablePage>
  /** Purges those of the runs that may still be purged, and records that their files are left. Returns their number. */
  purge(policy: RetentionPolicy, runs: readonly RunKey[]): Promise<number>
  /** Returns some purged runs of the process whose files are left; `null` if there are none. */
  filesLeft(process: string): Promise<FilesLeft | null>
  /** Records that the files of these runs are removed. */
  filesRemoved(left: FilesLeft): Promise<void>
  /** Forgets at most `limit` ids that were purged at least `dedupeMs` ago and whose files are removed. Returns their number. */
  forget(dedupeMs: number, limit: number): Promise<number>
  /**
   * Deletes at most `limit` bulk operations that ended at least `keptMs` ago, because their filters may name tags of
   * runs. Returns their number.
   */
  forgetOperations(keptMs: number, limit: number): Promise<number>
  /** Returns how many milliseconds ago the oldest finished run of each process ended that is not purged. */
  oldestKept(processes: readonly string[]): Promise<ReadonlyMap<string, number>>
}

/** The key id of the entries that a pass writes to the action log. No service key can have this id. */
export const RETENTION_KEY_ID = 'coordinator:retention'
