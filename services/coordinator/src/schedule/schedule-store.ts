/**
 * The store of schedules.
 *
 * T1  With `each: 'once'`, the run of a scheduled time is queued before its schedule moves to the next time. With
 *     `each: 'company'`, the move opens a tick, whose cursor moves after each page of companies was queued. The id of a
 *     run contains its scheduled time, so after a crash between the two, or if two coordinators fire at once, no time
 *     starts two runs.
 * T2  There is no leader. Of two coordinators that fire the same time, one moves the schedule.
 * T3  A coordinator fires only schedules that its own definitions have. It uses the stored cron expression, which is
 *     the one that was declared last.
 */
import { isDeepStrictEqual } from 'node:util'
import { changeRow, iso, type RecordKind, updateRow } from '../records/records.ts'
import { type Act, type ActionKind, entryOf } from '../run/action.ts'
import { pausedBy } from '../run/pause.ts'
import type { Run } from '../run/run.ts'
import type { NewTransaction, TransactionSource } from '../run/transaction-source.ts'
import { outlineOf, type ProcessDefinition } from '../step/definition.ts'
import { type Schedule, scheduledId, type ScheduleTiming, transactionOf } from './schedule.ts'
import { dueTicks, firstTick, isOverlooked } from './ticks.ts'

/** A row of `Order_Schedule`. Its times are ISO 8601. */
export interface ScheduleRow {
  readonly Process: string
  readonly Name: string
  readonly Cron: string
  readonly TimeZone: string
  readonly Each: ScheduleTiming['each']
  readonly CatchUp: ScheduleTiming['catchUp']
  readonly JitterSeconds: number
  readonly NextAt: string
  /**
   * The latest time that has begun runs: a scheduled time, or the time at which a person started the runs of all companies;
   * `null` if there is none.
   */
  readonly LastAt: string | null
  /** The open tick: a scheduled time whose runs, one per company, are not all queued yet; `null` if there is none. */
  readonly TickAt: string | null
  /** The position in the list of companies at which the tick continues; `null` if it begins with the first company. */
  readonly TickCursor: string | null
  readonly PausedAt: string | null
  readonly PausedBy: string | null
  readonly Reason: string | null
  /** When the definition of the process was first without this schedule; `null` while the process has it. */
  readonly RemovedAt: string | null
  readonly UpdatedAt: string
}

export const SCHEDULES: RecordKind<ScheduleRow> = {
  table: 'Order_Schedule',
  key: ['Process', 'Name'],
}

/** A stored schedule that a definition of this coordinator has, with the stored timing. */
export interface OwnSchedule {
  readonly row: ScheduleRow
  readonly process: ProcessDefinition
  readonly schedule: Schedule
}

type Processes = ReadonlyMap<string, ProcessDefinition>

const NEVER = { LastAt: null, TickAt: null, TickCursor: null }
const NOT_PAUSED = { PausedAt: null, PausedBy: null, Reason: null }

const isWaiting = ({ PausedAt, TickAt }: ScheduleRow): boolean =>
  PausedAt === null && TickAt === null

export const timingOf = (row: ScheduleRow): ScheduleTiming => ({
  cron: row.Cron,
  timeZone: row.TimeZone,
  each: row.Each,
  catchUp: row.CatchUp,
  jitterSeconds: row.JitterSeconds,
})

/**
 * Returns how late a schedule is at `now`, in ms: the age of the open tick, or else the time since `NextAt`. 0 if `NextAt`
 * has not passed yet, or if the schedule is paused or removed.
 */
export function lagMs({ PausedAt, RemovedAt, NextAt, TickAt }: ScheduleRow, now: number): number {
  const since = TickAt ?? (PausedAt === null && RemovedAt === null ? NextAt : null)
  return since === null ? 0 : Math.max(0, now - Date.parse(since))
}

/**
 * Returns the row that a definition declares, with the rest of the row that is stored; the stored row if it is the same.
 * The next time is computed from now if the schedule is new or was removed, if its cron expression or time zone has
 * changed, or if the stored next time is later although the computed one has not fired (see `isOverlooked`).
 */
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
    !isOverlooked(next, known)
  const row = {
    ...NEVER,
    ...NOT_PAUSED,
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
  if (known !== undefined && isDeepStrictEqual(row, known)) return known
  return { ...row, UpdatedAt: iso(now) }
}

export type ScheduleStore = ReturnType<typeof createScheduleStore>

export function createScheduleStore(source: Pick<TransactionSource, 'queue' | 'records'>) {
  const records = source.records(SCHEDULES)
  /** Changes a schedule, unless there is none or `next` returns `null`. Returns the changed row, or else `null`. */
  const change = (
    { Process, Name }: Pick<ScheduleRow, 'Process' | 'Name'>,
    next: (row: ScheduleRow, now: number) => Partial<ScheduleRow> | null,
    actionOf?: (now: number) => ReturnType<typeof entryOf>,
  ): Promise<ScheduleRow | null> =>
    updateRow(
      records,
      [Process, Name],
      (row, now) => {
        const changed = next(row, now)
        return changed && { ...changed, UpdatedAt: iso(now) }
      },
      actionOf,
    )
  /**
   * Queues runs. Returns the new ones, and those without a transition: a coordinator that was lost, or that fires the
   * same time, has queued them, and may not have published their messages.
   */
  const queued = async (process: ProcessDefinition, list: readonly NewTransaction[]) =>
    list.length === 0
      ? []
      : (await source.queue(outlineOf(process), list)).flatMap(({ outcome, run }) =>
          outcome === 'queued' || (outcome === 'exists' && run.Version === 0) ? [run] : [],
        )
  const own = async (processes: Processes): Promise<readonly OwnSchedule[]> =>
    (await records.rows()).flatMap((row) => {
      const process = processes.get(row.Process)
      const known = process?.schedules.find(({ name }) => name === row.Name)
      return process === undefined || known === undefined || row.RemovedAt !== null
        ? []
        : [{ row, process, schedule: { ...known, ...timingOf(row) } }]
    })

  /**
   * Fires a schedule that is due. A pause that is stored after the runs were queued does not take them back. Nothing is
   * returned if another coordinator has moved the schedule meanwhile.
   */
  async function fire({ row, process, schedule }: OwnSchedule, now: number) {
    const { due, nextAt } = dueTicks(schedule, Date.parse(row.NextAt), now)
    const last = due.at(-1)
    const isOnce = schedule.each === 'once'
    const times = isOnce ? due : []
    const transactions = times.map((at) => transactionOf(process, schedule, at, null))
    const started = await queued(process, transactions)
    const moved = {
      NextAt: iso(nextAt),
      ...(last !== undefined && { LastAt: iso(last) }),
      ...(!isOnce && last !== undefined && { TickAt: iso(last) }),
    }
    const isMoved = await change(row, ({ NextAt, TickAt }) =>
      NextAt === row.NextAt && TickAt === null ? moved : null,
    )
    return isMoved === null ? { started: [], times: [] } : { started, times: due }
  }

  return {
    /** Stores the schedules of a process, see `declaredRow`. Others of it count as removed: visible, but not fired. */
    async declareSchedules(process: string, given: readonly Schedule[]): Promise<void> {
      for (const schedule of given)
        await changeRow(records, [process, schedule.name], (known, now) =>
          declaredRow(process, schedule, known, now),
        )
      for (const row of await records.rows(process))
        if (!given.some(({ name }) => name === row.Name))
          await change(row, ({ RemovedAt }, now) =>
            RemovedAt === null ? { RemovedAt: iso(now), TickAt: null, TickCursor: null } : null,
          )
    },

    /** Fires at most `limit` due schedules. `nextInMs`: until the next one is due; `null` if there is none. */
    async fireSchedules(processes: Processes, limit: number) {
      const now = await records.now()
      const runs: Run[] = []
      const fired: { process: string; name: string; at: number }[] = []
      const stored = await own(processes)
      const due = stored
        .filter(({ row }) => isWaiting(row) && Date.parse(row.NextAt) <= now)
        .toSorted((a, b) => Date.parse(a.row.NextAt) - Date.parse(b.row.NextAt))
      for (const one of due.slice(0, limit)) {
        try {
          const { started, times } = await fire(one, now)
          runs.push(...started)
          const { Process: process, Name: name } = one.row
          fired.push(...times.map((at) => ({ process, name, at })))
        } catch (error) {
          // The caller publishes what was fired before. Its next call begins with this schedule.
          if (fired.length === 0) throw error
          return { runs, fired, nextInMs: 0 }
        }
      }
      // Most checks find nothing due, and need no second reading.
      const present = due.length === 0 ? stored : await own(processes)
      const next = present.flatMap(({ row }) =>
        isWaiting(row) ? [Date.parse(row.NextAt) - now] : [],
      )
      return { runs, fired, nextInMs: next.length === 0 ? null : Math.min(...next) }
    },

    /** Returns the schedules with an open tick, the oldest tick first. */
    openTicks: async (processes: Processes): Promise<readonly OwnSchedule[]> =>
      (await own(processes))
        .filter(({ row }) => row.TickAt !== null)
        .toSorted((a, b) => Date.parse(a.row.TickAt ?? '') - Date.parse(b.row.TickAt ?? '')),

    /**
     * Queues the runs of a page of companies for the open tick. Then moves the tick to the page that begins at the cursor
     * `next`, or ends the tick if `next` is `null`. Returns `null` without a change if another coordinator has moved the
     * tick meanwhile.
     */
    async queueTick(
      { row, process, schedule }: OwnSchedule,
      realms: readonly string[],
      next: string | null,
    ): Promise<readonly Run[] | null> {
      const isOpen = ({ TickAt, TickCursor, RemovedAt }: ScheduleRow): boolean =>
        TickAt === row.TickAt && TickCursor === row.TickCursor && RemovedAt === null
      const [known] = await records.rows(row.Process, row.Name)
      if (known === undefined || !isOpen(known)) return null
      const at = Date.parse(row.TickAt ?? '')
      const transactions = realms.map((realm) => transactionOf(process, schedule, at, realm))
      const runs = await queued(process, transactions)
      const moved = { TickCursor: next, ...(next === null && { TickAt: null }) }
      return (await change(row, (current) => (isOpen(current) ? moved : null))) && runs
    },

    /** Returns the stored schedules in the order of process and name, and the present time of the store in epoch ms. */
    async schedules(): Promise<{ readonly now: number; readonly rows: readonly ScheduleRow[] }> {
      return { now: await records.now(), rows: await records.rows() }
    },

    /** Pauses or resumes a schedule, which then continues with its next time. `null` if there is none. */
    setSchedulePaused: (Process: string, Name: string, isPaused: boolean, act: Act) =>
      change(
        { Process, Name },
        (row, now) => {
          if (isPaused === (row.PausedAt !== null)) return {}
          return isPaused
            ? { PausedAt: iso(now), PausedBy: pausedBy(act), Reason: act.reason }
            : { ...NOT_PAUSED, NextAt: iso(firstTick(timingOf(row), now)) }
        },
        actionOf(isPaused ? 'pause_schedule' : 'resume_schedule', act, Process, () => `${Name}@`),
      ),

    /**
     * Opens a tick for the present time, so that a run is queued for each company. Returns the changed row; `null` if
     * another tick of the schedule is open, or if the schedule does not exist.
     */
    openTick: (Process: string, Name: string, act: Act) =>
      change(
        { Process, Name },
        ({ TickAt, RemovedAt }, now) =>
          TickAt === null && RemovedAt === null
            ? { TickAt: iso(now), TickCursor: null, LastAt: iso(now) }
            : null,
        actionOf('run_schedule', act, Process, (now) => scheduledId(Name, now, null)),
      ),
  }
}

const actionOf =
  (kind: ActionKind, act: Act, Process: string, idAt: (now: number) => string) => (now: number) =>
    entryOf(kind, act, { Process, TransactionID: idAt(now) })
