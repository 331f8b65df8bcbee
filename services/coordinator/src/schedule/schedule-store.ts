/**
 * The store of schedules.
 *
 * T1  The runs of a scheduled time are queued before its schedule moves to the next time. The id of a run contains its
 *     scheduled time, so after a crash between the two, or if two coordinators fire at once, no time starts two runs.
 * T2  There is no leader. Of two coordinators that fire the same time, one moves the schedule.
 * T3  A coordinator fires only schedules that its own definitions have. It uses the stored cron expression, which is
 *     the one that was declared last.
 */
import { isDeepStrictEqual } from 'node:util'
import type { RecordKind } from '../records/records.ts'
import { type Act, type ActionKind, entryOf } from '../run/action.ts'
import { pausedBy } from '../run/pause.ts'
import type { Run } from '../run/run.ts'
import type {
  NewTransaction,
  ProcessOutline,
  TransactionSource,
} from '../run/transaction-source.ts'
import { type Schedule, scheduledId, type ScheduleTiming } from './schedule.ts'
import { dueTicks, firstTick, isOverlooked } from './ticks.ts'

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

/** A row of `Order_Schedule`. */
export interface ScheduleRow {
  readonly Process: string
  readonly Name: string
  readonly Cron: string
  readonly TimeZone: string
  readonly Each: ScheduleTiming['each']
  readonly CatchUp: ScheduleTiming['catchUp']
  readonly JitterSeconds: number
  readonly NextAt: string
  readonly LastAt: string | null
  readonly TickAt: string | null
  readonly TickCursor: string | null
  readonly PausedAt: string | null
  readonly PausedBy: string | null
  readonly Reason: string | null
  readonly RemovedAt: string | null
  readonly UpdatedAt: string
}

export const SCHEDULES: RecordKind<ScheduleRow> = {
  table: 'Order_Schedule',
  key: ['Process', 'Name'],
}

const NEVER = {
  LastAt: null,
  TickAt: null,
  TickCursor: null,
  PausedAt: null,
  PausedBy: null,
  Reason: null,
}

const iso = (at: number): string => new Date(at).toISOString()
const isWaiting = ({ PausedAt, TickAt }: ScheduleRow): boolean =>
  PausedAt === null && TickAt === null
const timingOf = ({
  Cron,
  TimeZone,
  Each,
  CatchUp,
  JitterSeconds,
}: ScheduleRow): ScheduleTiming => ({
  cron: Cron,
  timeZone: TimeZone,
  each: Each,
  catchUp: CatchUp,
  jitterSeconds: JitterSeconds,
})
const tickOf = (row: ScheduleRow, at: string): OpenTick => ({
  process: row.Process,
  name: row.Name,
  timing: timingOf(row),
  at: Date.parse(at),
  cursor: row.TickCursor,
})
const storedOf = (row: ScheduleRow, now: number): StoredSchedule => {
  const { PausedAt, RemovedAt, NextAt, TickAt } = row
  const since = TickAt ?? (PausedAt === null && RemovedAt === null ? NextAt : null)
  return {
    process: row.Process,
    name: row.Name,
    timing: timingOf(row),
    nextAt: NextAt,
    lastAt: row.LastAt,
    tickAt: TickAt,
    pausedAt: PausedAt,
    pausedBy: row.PausedBy,
    reason: row.Reason,
    removedAt: RemovedAt,
    lagMs: since === null ? 0 : Math.max(0, now - Date.parse(since)),
  }
}
/** Returns the row that a definition declares, with the rest of the row that is stored. */
function declaredRow(
  process: string,
  { name, cron, timeZone, each, catchUp, jitterSeconds }: Schedule,
  known: ScheduleRow | undefined,
  now: number,
): ScheduleRow {
  const next = firstTick({ cron, timeZone, each, catchUp, jitterSeconds }, now)
  const isSame =
    known?.RemovedAt === null &&
    known.Cron === cron &&
    known.TimeZone === timeZone &&
    !isOverlooked(next, { nextAt: known.NextAt, lastAt: known.LastAt })
  return {
    ...NEVER,
    UpdatedAt: iso(now),
    ...known,
    Process: process,
    Name: name,
    Cron: cron,
    TimeZone: timeZone,
    Each: each,
    CatchUp: catchUp,
    JitterSeconds: jitterSeconds,
    NextAt: isSame ? known.NextAt : iso(next),
    RemovedAt: null,
  }
}

export function createScheduleStore(
  source: Pick<TransactionSource, 'queue' | 'records'>,
): ScheduleStore {
  const records = source.records(SCHEDULES)
  const find = async (process: string, name: string): Promise<ScheduleRow | undefined> =>
    (await records.rows(process, name))[0]
  const replace = (
    before: ScheduleRow | undefined,
    after: ScheduleRow,
    now: number,
    action?: ReturnType<typeof entryOf>,
  ): Promise<boolean> =>
    action === undefined && isDeepStrictEqual(before, after)
      ? Promise.resolve(true)
      : records.replace(before, { ...after, UpdatedAt: iso(now) }, action)
  /**
   * Queues runs. Returns the new ones, and those without a transition: a coordinator that was lost, or that fires the
   * same time, has queued them, and may not have published their messages.
   */
  const queued = async (process: ProcessOutline, list: readonly NewTransaction[]): Promise<Run[]> =>
    list.length === 0
      ? []
      : (await source.queue(process, list)).flatMap(({ outcome, run }) =>
          outcome === 'queued' || (outcome === 'exists' && run.Version === 0) ? [run] : [],
        )
  const declared = async (processes: readonly ScheduledProcess[]) =>
    (await records.rows()).flatMap((row) => {
      const known = processes.find(({ outline }) => outline.name === row.Process)
      const transactionAt = known?.schedules.get(row.Name)
      return known === undefined || transactionAt === undefined || row.RemovedAt !== null
        ? []
        : [{ row, outline: known.outline, transactionAt }]
    })

  /** Changes the row while `next` returns another one, even if someone else changes the row meanwhile. */
  async function move(
    first: ScheduleRow,
    next: (row: ScheduleRow) => Partial<ScheduleRow> | null,
    now: number,
  ): Promise<boolean> {
    for (
      let row: ScheduleRow | undefined = first;
      row !== undefined;
      row = await find(first.Process, first.Name)
    ) {
      const change = next(row)
      if (change === null) return false
      if (await replace(row, { ...row, ...change }, now)) return true
    }
    return false
  }
  /**
   * Fires a schedule that is due. If an operator pauses it after its runs were queued, the pause counts as the later of
   * the two. Nothing is returned if another coordinator has moved the schedule meanwhile.
   */
  async function fire(
    row: ScheduleRow,
    outline: ProcessOutline,
    transactionAt: (timing: ScheduleTiming, at: number) => NewTransaction,
    now: number,
  ): Promise<{ readonly started: readonly Run[]; readonly times: readonly number[] }> {
    const timing = timingOf(row)
    const { due, nextAt } = dueTicks(timing, Date.parse(row.NextAt), now)
    const last = due.at(-1)
    const isOnce = timing.each === 'once'
    const started = await queued(outline, isOnce ? due.map((at) => transactionAt(timing, at)) : [])
    const moved = {
      NextAt: iso(nextAt),
      ...(last !== undefined && { LastAt: iso(last) }),
      ...(!isOnce && last !== undefined && { TickAt: iso(last) }),
    }
    const isUnmoved = ({ NextAt, TickAt }: ScheduleRow): boolean =>
      NextAt === row.NextAt && TickAt === null
    const isMoved = await move(row, (current) => (isUnmoved(current) ? moved : null), now)
    return isMoved ? { started, times: due } : { started: [], times: [] }
  }

  return {
    async declareSchedules(process, given) {
      const names = new Set(given.map(({ name }) => name))
      for (let isDone = false; !isDone;) {
        const now = await records.now()
        const stored = await records.rows(process)
        isDone = true
        for (const schedule of given) {
          const known = stored.find(({ Name }) => Name === schedule.name)
          isDone &&= await replace(known, declaredRow(process, schedule, known, now), now)
        }
        const removed = { RemovedAt: iso(now), TickAt: null, TickCursor: null }
        for (const row of stored)
          if (row.RemovedAt === null && !names.has(row.Name))
            isDone &&= await replace(row, { ...row, ...removed }, now)
      }
    },

    async fireSchedules(processes, limit) {
      const now = await records.now()
      const runs: Run[] = []
      const fired: { process: string; name: string; at: number }[] = []
      const stored = await declared(processes)
      const due = stored
        .filter(({ row }) => isWaiting(row) && Date.parse(row.NextAt) <= now)
        .toSorted((a, b) => Date.parse(a.row.NextAt) - Date.parse(b.row.NextAt))
      for (const { row, outline, transactionAt } of due.slice(0, limit)) {
        try {
          const { started, times } = await fire(row, outline, transactionAt, now)
          runs.push(...started)
          fired.push(...times.map((at) => ({ process: row.Process, name: row.Name, at })))
        } catch (error) {
          // The caller publishes what was fired before. Its next call begins with this schedule.
          if (fired.length === 0) throw error
          return { runs, fired, nextInMs: 0 }
        }
      }
      // Most checks find nothing due, and need no second reading.
      const present = due.length === 0 ? stored : await declared(processes)
      const next = present.flatMap(({ row }) =>
        isWaiting(row) ? [Date.parse(row.NextAt) - now] : [],
      )
      return { runs, fired, nextInMs: next.length === 0 ? null : Math.min(...next) }
    },

    openTicks: async (processes) =>
      (await declared(processes))
        .flatMap(({ row }) => (row.TickAt === null ? [] : [tickOf(row, row.TickAt)]))
        .toSorted((a, b) => a.at - b.at),

    async queueTick(process, { name, at, cursor }, transactions, next) {
      const isOpen = (row: ScheduleRow | undefined): boolean =>
        row?.TickAt === iso(at) && row.TickCursor === cursor && row.RemovedAt === null
      const row = await find(process.name, name)
      if (row === undefined || !isOpen(row)) return null
      const runs = await queued(process, transactions)
      const moved = { TickCursor: next, ...(next === null && { TickAt: null }) }
      const now = await records.now()
      return (await move(row, (current) => (isOpen(current) ? moved : null), now)) ? runs : null
    },

    async schedules() {
      const now = await records.now()
      return (await records.rows()).map((row) => storedOf(row, now))
    },

    async setSchedulePaused(process, name, isPaused, act) {
      for (;;) {
        const row = await find(process, name)
        if (row === undefined) return null
        const now = await records.now()
        const pause = isPaused
          ? { PausedAt: iso(now), PausedBy: pausedBy(act), Reason: act.reason }
          : {
              PausedAt: null,
              PausedBy: null,
              Reason: null,
              NextAt: iso(firstTick(timingOf(row), now)),
            }
        const after = isPaused === (row.PausedAt !== null) ? row : { ...row, ...pause }
        const kind = isPaused ? 'pause_schedule' : 'resume_schedule'
        if (await replace(row, after, now, actionOf(kind, act, process, `${name}@`, now)))
          return storedOf(after, now)
      }
    },

    async openTick(process, name, act) {
      for (;;) {
        const row = await find(process, name)
        if (row === undefined || row.TickAt !== null || row.RemovedAt !== null) return null
        const now = await records.now()
        const after = { ...row, TickAt: iso(now), TickCursor: null, LastAt: iso(now) }
        const action = actionOf('run_schedule', act, process, scheduledId(name, now, null), now)
        if (await replace(row, after, now, action)) return tickOf(after, iso(now))
      }
    },
  }
}

const actionOf = (
  kind: ActionKind,
  act: Act,
  Process: string,
  TransactionID: string,
  now: number,
) => entryOf(kind, act, { Process, TransactionID }, { now })
