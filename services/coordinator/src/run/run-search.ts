import type { HeaderStatus } from '@integration-host/shared/contracts/transaction'
import type { RunFilter } from '@integration-host/shared/contracts/run-filter'
import type { Run, RunKey } from './run.ts'
import { activeStatuses } from './status.ts'

/** The names of processes, each with the number of its unfinished runs, or `null` if they were not counted. */
export type StoredProcesses = ReadonlyMap<string, number | null>

/** The part of the port `TransactionSource` that finds runs. Purged runs are not found. */
export interface RunSearchSource {
  /**
   * Reads a page of runs, newest first. It examines a bounded number of runs. Therefore a page may have fewer runs than
   * `limit`, or none, although more pages follow; only `next` shows whether more follow. With `order: 'updated'`, a run
   * that changes between two pages may be returned twice.
   */
  search(request: RunSearch): Promise<RunPage>
  /**
   * Returns the processes that have runs. Purged runs and processes that are not loaded are included. Counts the
   * unfinished runs of those processes for which `isCounted` returns true; of none by default.
   */
  storedProcesses(isCounted?: (name: string) => boolean): Promise<StoredProcesses>
}

/**
 * `created` orders runs by `CreatedAt`; `updated` orders finished runs by their end, and other runs by their last
 * change.
 */
export const runOrders = ['created', 'updated'] as const
export type RunOrder = (typeof runOrders)[number]

export interface RunSearch {
  /** The process whose runs are searched; `null` searches all processes. */
  readonly process: string | null
  readonly filter: RunFilter
  readonly order: RunOrder
  readonly visible: Visibility
  /** The page begins after this position, which is the `next` of the previous page. */
  readonly after: RunPosition | null
  readonly limit: number
}

/**
 * The realms and processes whose runs may be returned: `*`, exact names, and prefixes that end in `*`. A run without a
 * realm may be returned whatever the realms are.
 */
export interface Visibility {
  readonly realms: readonly string[]
  readonly processes: readonly string[]
}

/** A position in a list of runs. It names a run, so newly inserted runs do not shift the pages. */
export interface RunPosition extends RunKey {
  /** The time by which the list is ordered, in the format of the source. */
  readonly at: string
}

export interface RunPage {
  readonly runs: readonly Run[]
  readonly next: RunPosition | null
}

/**
 * Returns the statuses that runs matching a filter can have. A filter with `class`, `inDoubt: true` or `waitingFor`
 * excludes `Completed`, because a completed run has no error, is not in doubt and waits for nothing.
 */
export function possibleStatuses({
  status,
  class: errorClass,
  inDoubt,
  waitingFor,
}: RunFilter): ReadonlySet<HeaderStatus> {
  const possible = new Set<HeaderStatus>(status ?? ALL)
  if (errorClass !== undefined || inDoubt === true) possible.delete('Completed')
  if (waitingFor !== undefined)
    for (const other of ALL) if (other !== 'Waiting' && other !== 'Undoing') possible.delete(other)
  return possible
}

/** The statuses of runs that have ended without being completed. */
export const ENDED = ['Failed', 'Cancelled', 'Undone', 'UndoFailed'] as const
const ALL: readonly HeaderStatus[] = [...activeStatuses, ...ENDED, 'Completed']
