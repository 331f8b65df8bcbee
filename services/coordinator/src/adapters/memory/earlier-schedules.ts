/** Reads the schedules in the files of an earlier version. */
import { type ScheduleRow, SCHEDULES, type StoredSchedule } from '../../schedule/schedule-store.ts'
import { keyOf, type RecordChange } from './records.ts'

export interface EarlierSchedule extends Omit<StoredSchedule, 'lagMs'> {
  readonly tickCursor: string | null
}

export function scheduleChange({ timing, ...known }: EarlierSchedule): RecordChange {
  const row: ScheduleRow = {
    Process: known.process,
    Name: known.name,
    Cron: timing.cron,
    TimeZone: timing.timeZone,
    Each: timing.each,
    CatchUp: timing.catchUp,
    JitterSeconds: timing.jitterSeconds,
    NextAt: known.nextAt,
    LastAt: known.lastAt,
    TickAt: known.tickAt,
    TickCursor: known.tickCursor,
    PausedAt: known.pausedAt,
    PausedBy: known.pausedBy,
    Reason: known.reason,
    RemovedAt: known.removedAt,
    UpdatedAt: known.nextAt,
  }
  return { table: SCHEDULES.table, key: keyOf([row.Process, row.Name]), row }
}
