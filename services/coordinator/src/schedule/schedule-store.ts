/**
 * The part of the port `TransactionSource` that stores schedules.
 *
 * T1  The runs of a time, and the next time of the schedule, are committed in one database transaction. The id of a run
 *     contains the time, so a time never starts two runs.
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
   * Stores the schedules of a process. A schedule that is new, that was removed before, or whose cron expression or
   * time zone has changed, begins with the next time from now. A stored schedule that is not in the list counts as
   * removed: it stays visible, and is not fired.
   */
  declareSchedules(process: string, schedules: readonly Schedule[]): Promise<void>
  /** Fires at most `limit` of the schedules that are due, and returns when the next one is due. */
  fireSchedules(processes: readonly ScheduledProcess[], limit: number): Promise<FiredSchedules>
  /** Returns the times for which runs of companies are still to be queued. */
  openTicks(processes: readonly ScheduledProcess[]): Promise<readonly OpenTick[]>
  /**
   * Queues the runs of a page of companies, and moves the tick to the next page; `null` ends the tick. Returns `null`
   * without a change if another coordinator has moved the tick.
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
   * Pauses or resumes a schedule. A schedule that is resumed continues with the next time from now. Returns `null` if
   * there is no such schedule.
   */
  setSchedulePaused(
    process: string,
    name: string,
    isPaused: boolean,
    act: Act,
  ): Promise<StoredSchedule | null>
  /**
   * Opens a tick at the present time, for which the runs of all companies are queued. Returns `null` if another tick of
   * the schedule is open, or if there is no such schedule.
   */
  openTick(process: string, name: string, act: Act): Promise<OpenTick | null>
}

/** A process of this coordinator that has schedules. */
export interface ScheduledProcess {
  readonly outline: ProcessOutline
  /** For each schedule by name, the function that returns the run of a time, in epoch ms. */
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

/** A time for which not all companies have their run yet. */
export interface OpenTick {
  readonly process: string
  readonly name: string
  readonly timing: ScheduleTiming
  /** Epoch ms. */
  readonly at: number
  /** The position in the list of companies after which the tick continues; `null` at its beginning. */
  readonly cursor: string | null
}

export interface StoredSchedule {
  readonly process: string
  readonly name: string
  readonly timing: ScheduleTiming
  /** ISO 8601, as all times here. */
  readonly nextAt: string
  /** The latest time that has begun runs; `null` if there is none. */
  readonly lastAt: string | null
  /** The time of the tick whose companies are being queued; `null` if there is none. */
  readonly tickAt: string | null
  readonly pausedAt: string | null
  readonly pausedBy: string | null
  readonly reason: string | null
  /** When a coordinator first declared the process without this schedule; `null` if the schedule is not removed. */
  readonly removedAt: string | null
  /** By how many milliseconds the next time, or the open tick, is late by the clock of the store; 0 if it is not. */
  readonly lagMs: number
}
