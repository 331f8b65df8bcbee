/**
 * The slots of processes that limit the number of runs in progress (`concurrency`).
 *
 * L1  A run of such a process is claimed only if it has a slot. It has its slot from the claim on for as long as its
 *     status is `Running`, also between two steps. It has none while it waits, before it is retried, and after its end.
 * L2  The runs with a slot never outnumber the limit of their process and key, on all replicas together, unless the
 *     limit was lowered or introduced while they ran.
 * L3  A run that finds no free slot becomes `Waiting` for {@link WAITS_FOR_SLOT}. That is not an attempt. Free slots go
 *     to the waiting runs in the order in which they became due; a run that comes later does not overtake them.
 */
import { WAITS_FOR_SLOT } from '../process/concurrency.ts'
import type { Run, RunKey } from './run.ts'
import type { RunState } from './transaction-source.ts'

/** The part of the port `TransactionSource` that gives slots to waiting runs. `claim` gives them to claimed runs. */
export interface Slots {
  /**
   * Gives the free slots to the runs that have waited longest for them, at most {@link MAX_GRANTS}, and returns these
   * runs. Their steps are due.
   *
   * @param limits the processes whose slots are given
   * @param released runs that may have given back their slots: only slots of the same limits are given. `null`: all
   * slots of these processes are given.
   */
  grantSlots(limits: readonly ProcessLimit[], released: readonly RunKey[] | null): Promise<Grants>
}

export interface ProcessLimit {
  readonly process: string
  /** `null` if the process has no limit; runs may still wait because it had one. */
  readonly limit: number | null
}

export interface Grants {
  readonly runs: readonly RunState[]
  /** Whether a repeated call may give further slots. */
  readonly hasMore: boolean
}

/** What a claim must know of the limit of its process. */
export interface SlotRequest {
  readonly limit: number
  /**
   * {@link WHOLE_PROCESS}, or the key of the run if it was computed for this claim. `null`: the key that is stored with
   * the run.
   */
  readonly key: string | null
}

/** Stands for the key if the limit is for all runs of a process. No run can have this key. */
export const WHOLE_PROCESS = ''

export const MAX_GRANTS = 500

/**
 * Milliseconds after which the sweeper publishes a run that waits for a slot. This is only a safeguard: slots are given
 * by `grantSlots`, which needs no message.
 */
export const SLOT_RECHECK_MS = 3_600_000

/** Whether the run waits for a slot. */
export const isWaitingForSlot = ({
  Status,
  WaitingFor,
}: Pick<Run, 'Status' | 'WaitingFor'>): boolean =>
  Status === 'Waiting' && WaitingFor === WAITS_FOR_SLOT
