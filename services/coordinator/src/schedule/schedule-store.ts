/**
 * The part of the port `TransactionSource` that stores schedules.
 *
 * T1  The runs of a scheduled time, and the next time of the schedule, are committed in one database transaction. The
 *     id of a run contains its scheduled time, so no scheduled time starts two runs.
 * T2  There is no leader: each coordinator fires the due schedules that no other coordinator is firing.
 * T3  A coordinator fires only schedules that its own definitions have. It uses the stored cron expression, which is
 *     the one that was declared last.
 */
import type { Act } from '../transaction/action.ts'
import type { Run } from '../transaction/run.ts'
import type { NewTransaction, ProcessOutline } from '../transaction/transaction-source.ts'
import type { Schedule, ScheduleTiming } from './schedule.ts'

export interface ScheduleStore {
  /**
   * Stores the schedules of a process. The next time is computed from now if the schedule is new, if it was removed
   * before, if its cron expression or time zone has changed, or if the stored next time is later although the computed
   * one has not fired (see `isOverlooked`). A stored schedule that is not in the list counts as
   * removed: it stays visible, and is not fired.
   */
  declareSchedules(process: string, schedules: readonly Schedule[]): Promise<void>
  /** Fires due schedules, at most `limit` of them. Returns when the next schedule is due. */
  fireSchedules(processes: readonly ScheduledProcess[], limit: number): Promise<FiredSchedules>
  /** Returns the open ticks: scheduled times for which runs of companies are still to be queued. */
  openTicks(processes: readonly ScheduledProcess[]): Promise<readonly OpenTick[]>
  /**
   * Queues the runs of a page of companies. Then moves the tick to the page that begins at the cursor `next`, or ends
   * the tick if `next` is `null`. Returns `null` without a change if another coordinator has moved the tick meanwhile.
   */
  queueTick(
    process: ProcessOutline,
    tick: OpenTick,
    transactions: readonly NewTransaction[],
    next: string | null,
  ): Promise<readonly Run[] | null>
  /** Returns the stored schedules in the order of process and name. */
  schedules(): Promise<readonly StoredSchedule[]>
  /**
   * Pauses or resumes a schedule. A resumed schedule continues with its next time after the present. Returns `null` if
   * there is no such schedule.
   */
  setSchedulePaused(
    process: string,
    name: string,
    isPaused: boolean,
    act: Act,
  ): Promise<StoredSchedule | null>
  /**
   * Opens a tick for the present time, so that a run is queued for each company. Returns `null` if another tick of the
   * schedule is open, or if the schedule does not exist.
   */
  openTick(process: string, name: string, act: Act): Promise<OpenTick | null>
}

/** A process of this coordinator that has schedules. */
export interface ScheduledProcess {
  readonly outline: ProcessOutline
  /**
   * Maps the name of each schedule to a function. The function returns the transaction to queue for a scheduled time,
   * in epoch ms.
   */
  readonly schedules: ReadonlyMap<string, (timing: ScheduleTiming, at: number) => NewTransaction>
}

export interface FiredSchedules {
  readonly runs: readonly Run[]
  readonly fired: readonly {
    readonly process: string
    readonly name: string
    readonly at: number
  }[]
  /** Milliseconds until the next schedule is due; `null` if there is none. */
  readonly nextInMs: number | null
}

/** A tick: a scheduled time whose runs, one per company, are not all queued yet. */
export interface OpenTick {
  readonly process: string
  readonly name: string
  readonly timing: ScheduleTiming
  /** The scheduled time, epoch ms. */
  readonly at: number
  /** The position in the list of companies at which queueing continues; `null` if it begins with the first company. */
  readonly cursor: string | null
}

export interface StoredSchedule {
  readonly process: string
  readonly name: string
  readonly timing: ScheduleTiming
  /** An ISO 8601 time, as are all times here. */
  readonly nextAt: string
  /** The latest scheduled time for which runs were queued; `null` if there is none. */
  readonly lastAt: string | null
  /** The time of the open tick; `null` if no tick is open. */
  readonly tickAt: string | null
  readonly pausedAt: string | null
  readonly pausedBy: string | null
  readonly reason: string | null
  /**
   * The time at which this schedule was marked as removed, because the definition of the process no longer contained
   * it; `null` while the process has this schedule.
   */
  readonly removedAt: string | null
  /**
   * How late the schedule is, in milliseconds by the clock of the store: the age of the open tick, or else the time
   * since `nextAt`. 0 if `nextAt` has not passed yet, or if the schedule is paused or removed.
   */
  readonly lagMs: number
}
