/** The schedules of the memory source. */
import { type Act, type ActionKind, entryOf } from '../../transaction/action.ts'
import { pausedBy } from '../../transaction/pause.ts'
import type { Run } from '../../transaction/run.ts'
import type { NewTransaction, ProcessOutline } from '../../transaction/transaction-source.ts'
import * as transitions from '../../transaction/transitions.ts'
import type { StoredRun, Times } from '../../transaction/transitions.ts'
import { type ScheduleTiming, scheduledId } from '../../schedule/schedule.ts'
import type {
  OpenTick,
  ScheduledProcess,
  ScheduleStore,
  StoredSchedule,
} from '../../schedule/schedule-store.ts'
import { dueTicks, firstTick, isOverlooked } from '../../schedule/ticks.ts'
import type { Entry, MemoryStore } from './store.ts'

/** A schedule as it is stored, without the members that are computed when it is read. */
export interface ScheduleRow extends Omit<StoredSchedule, 'lagMs'> {
  readonly tickCursor: string | null
}

/** The stored schedules, in the order of process and name. */
export interface ScheduleTable {
  get(process: string, name: string): ScheduleRow | undefined
  put(row: ScheduleRow): void
  remove(row: ScheduleRow): void
  all(): readonly ScheduleRow[]
}

export function createScheduleTable(): ScheduleTable {
  const rows = new Map<string, ScheduleRow>()
  const keyOf = (process: string, name: string): string => `${process}/${name}` // names contain no slash
  return {
    get: (process, name) => rows.get(keyOf(process, name)),
    put: (row) => void rows.set(keyOf(row.process, row.name), row),
    remove: (row) => void rows.delete(keyOf(row.process, row.name)),
    all: () => [...rows.entries()].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, row]) => row),
  }
}

const iso = (at: number): string => new Date(at).toISOString()

export function createMemorySchedules(
  { table, schedules, log, commit }: Pick<MemoryStore, 'table' | 'schedules' | 'log' | 'commit'>,
  times: () => Times,
): ScheduleStore {
  const action = (kind: ActionKind, act: Act, Process: string, TransactionID: string) =>
    log.next(entryOf(kind, act, { Process, TransactionID }, { now: times().now }))

  /** Returns new runs for those transactions that have no run yet. */
  const newRuns = (
    process: ProcessOutline,
    transactions: readonly NewTransaction[],
  ): readonly StoredRun[] =>
    transactions.flatMap((transaction) => {
      const { TransactionID, InitialData, Realm = null, ConcurrencyKey = null } = transaction
      const key = { Process: process.name, TransactionID, ReplayID: 0 }
      if (table.get(key) !== undefined) return []
      const { NotBefore: notBefore } = transaction
      const data = { ...process, InitialData, Realm, ConcurrencyKey, notBefore }
      return [transitions.queued(key, process.steps[0], data, times())]
    })
  /**
   * Commits the runs before the schedule. If the OS process crashes between these two commits, the next check finds the
   * existing runs.
   */
  const commitBoth = async (runs: readonly StoredRun[], row: ScheduleRow): Promise<Run[]> => {
    await commit(...runs.map((run): Entry => ({ run })), { schedule: row })
    return runs.map(({ header }) => header)
  }

  const declared = (processes: readonly ScheduledProcess[]) =>
    schedules.all().flatMap((row) => {
      const known = processes.find(({ outline }) => outline.name === row.process)
      const transactionAt = known?.schedules.get(row.name)
      return known === undefined || transactionAt === undefined || row.removedAt !== null
        ? []
        : [{ row, outline: known.outline, transactionAt }]
    })
  const isWaiting = ({ pausedAt, tickAt }: ScheduleRow): boolean =>
    pausedAt === null && tickAt === null
  const tickOf = (row: ScheduleRow, at: string): OpenTick => ({
    process: row.process,
    name: row.name,
    timing: row.timing,
    at: Date.parse(at),
    cursor: row.tickCursor,
  })
  const shown = ({ tickCursor: _cursor, ...row }: ScheduleRow): StoredSchedule => {
    const since =
      row.tickAt ?? (row.pausedAt === null && row.removedAt === null ? row.nextAt : null)
    return { ...row, lagMs: since === null ? 0 : Math.max(0, times().now - Date.parse(since)) }
  }

  return {
    async declareSchedules(process, given) {
      const { now } = times()
      const kept = given.map(({ name, input: _input, ...timing }): ScheduleRow => {
        const known = schedules.get(process, name)
        const next = firstTick(timing, now)
        const isSame =
          known?.removedAt === null &&
          hasSameTimes(known.timing, timing) &&
          !isOverlooked(next, known)
        return {
          process,
          name,
          lastAt: null,
          tickAt: null,
          tickCursor: null,
          pausedAt: null,
          pausedBy: null,
          reason: null,
          ...known,
          timing,
          nextAt: isSame ? known.nextAt : iso(next),
          removedAt: null,
        }
      })
      const names = new Set(given.map(({ name }) => name))
      const removed = schedules
        .all()
        .filter((row) => row.process === process && row.removedAt === null && !names.has(row.name))
        .map((row) => ({ ...row, removedAt: iso(now), tickAt: null, tickCursor: null }))
      const changed = [...kept, ...removed].filter(
        (row) => JSON.stringify(row) !== JSON.stringify(schedules.get(row.process, row.name)),
      )
      await commit(...changed.map((schedule): Entry => ({ schedule })))
    },

    async fireSchedules(processes, limit) {
      const { now } = times()
      const runs: Run[] = []
      const fired: { process: string; name: string; at: number }[] = []
      const isDue = ({ row }: { readonly row: ScheduleRow }): boolean =>
        isWaiting(row) && Date.parse(row.nextAt) <= now
      const found = declared(processes)
        .filter(isDue)
        .toSorted((a, b) => Date.parse(a.row.nextAt) - Date.parse(b.row.nextAt))
      for (const { row, outline, transactionAt } of found.slice(0, limit)) {
        const { process, name, timing } = row
        const { due, nextAt } = dueTicks(timing, Date.parse(row.nextAt), now)
        const last = due.at(-1)
        const added = timing.each === 'once' ? due.map((at) => transactionAt(timing, at)) : []
        const lastAt = last === undefined ? row.lastAt : iso(last)
        const tickAt = timing.each === 'company' && last !== undefined ? iso(last) : null
        runs.push(
          ...(await commitBoth(newRuns(outline, added), {
            ...row,
            lastAt,
            tickAt,
            nextAt: iso(nextAt),
          })),
        )
        fired.push(...due.map((at) => ({ process, name, at })))
      }
      const next = declared(processes)
        .filter(({ row }) => isWaiting(row))
        .map(({ row }) => Date.parse(row.nextAt) - now)
      return { runs, fired, nextInMs: next.length === 0 ? null : Math.min(...next) }
    },

    async openTicks(processes) {
      return declared(processes).flatMap(({ row }) =>
        row.tickAt === null ? [] : [tickOf(row, row.tickAt)],
      )
    },

    async queueTick(process, { name, at, cursor }, transactions, next) {
      const row = schedules.get(process.name, name)
      if (row?.tickAt !== iso(at) || row.tickCursor !== cursor) return null
      const tickAt = next === null ? null : row.tickAt
      return commitBoth(newRuns(process, transactions), { ...row, tickAt, tickCursor: next })
    },

    schedules: async () => schedules.all().map(shown),

    async setSchedulePaused(process, name, isPaused, act) {
      const row = schedules.get(process, name)
      if (row === undefined) return null
      const { now } = times()
      const isSame = isPaused === (row.pausedAt !== null)
      const pause = isPaused
        ? { pausedAt: iso(now), pausedBy: pausedBy(act), reason: act.reason }
        : { pausedAt: null, pausedBy: null, reason: null, nextAt: iso(firstTick(row.timing, now)) }
      const schedule = isSame ? row : { ...row, ...pause }
      const kind = isPaused ? 'pause_schedule' : 'resume_schedule'
      await commit({ schedule, action: action(kind, act, process, `${name}@`) })
      return shown(schedule)
    },

    async openTick(process, name, act) {
      const row = schedules.get(process, name)
      if (row === undefined || row.tickAt !== null || row.removedAt !== null) return null
      const { now } = times()
      const at = iso(now)
      const schedule = { ...row, tickAt: at, tickCursor: null, lastAt: at }
      const id = scheduledId(name, now, null)
      await commit({ schedule, action: action('run_schedule', act, process, id) })
      return tickOf(schedule, at)
    },
  }
}

const hasSameTimes = (a: ScheduleTiming, b: ScheduleTiming): boolean =>
  a.cron === b.cron && a.timeZone === b.timeZone
