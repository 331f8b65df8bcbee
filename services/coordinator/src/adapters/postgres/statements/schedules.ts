/**
 * The schedules of the processes. `fireSchedules` uses SKIP LOCKED to lock the schedules that are due, so that two
 * coordinators never fire the same schedule. The runs and the next time are committed together.
 */
import type postgres from 'postgres'
import { type Act, entryOf } from '../../../transaction/action.ts'
import type { Run } from '../../../transaction/run.ts'
import { pausedBy } from '../../../transaction/pause.ts'
import type { NewTransaction, ProcessOutline } from '../../../transaction/transaction-source.ts'
import { type Schedule, scheduledId, type ScheduleTiming } from '../../../schedule/schedule.ts'
import type {
  FiredSchedules,
  OpenTick,
  ScheduledProcess,
  StoredSchedule,
} from '../../../schedule/schedule-store.ts'
import { dueTicks, firstTick } from '../../../schedule/ticks.ts'
import type { orderSchedule } from '../schema/operations.ts'
import { enqueueRuns } from './enqueue-runs.ts'

type Sql = postgres.Sql | postgres.TransactionSql
type ScheduleRow = typeof orderSchedule.$inferSelect
/** The time of the database in epoch ms, which is the same in all statements of a database transaction. */
const nowMs = (sql: Sql) => sql`floor(extract(epoch from now()) * 1000)::float8`
const iso = (at: number): string => new Date(at).toISOString()

const timingOf = (row: ScheduleRow): ScheduleTiming => ({
  cron: row.Cron,
  timeZone: row.TimeZone,
  each: row.Each as ScheduleTiming['each'],
  catchUp: row.CatchUp as ScheduleTiming['catchUp'],
  jitterSeconds: row.JitterSeconds,
})

/** Inserts or updates the schedules of a process, and marks its other schedules as removed. */
export async function declareSchedules(
  tx: postgres.TransactionSql,
  process: string,
  schedules: readonly Schedule[],
): Promise<void> {
  const [clock] = await tx<{ now: number }[]>`select ${nowMs(tx)} as now`
  const rows = schedules.map((schedule) => ({
    ...schedule,
    input: undefined, // not stored: the coordinator that queues the runs uses its own definition
    nextAt: iso(firstTick(schedule, clock?.now ?? 0)),
  }))
  await tx`
    insert into "Order_Schedule" as s ("Process", "Name", "Cron", "TimeZone", "Each", "CatchUp", "JitterSeconds",
      "NextAt")
    select ${process}, d.name, d.cron, d."timeZone", d.each, d."catchUp", d."jitterSeconds", d."nextAt"
    from jsonb_to_recordset(${JSON.stringify(rows)}::text::jsonb) as d(name text collate "C", cron text,
      "timeZone" text, each text, "catchUp" text, "jitterSeconds" int, "nextAt" timestamptz)
    order by d.name -- two coordinators that start together must lock the rows in the same order
    on conflict ("Process", "Name") do update set "Cron" = excluded."Cron", "TimeZone" = excluded."TimeZone",
      "Each" = excluded."Each", "CatchUp" = excluded."CatchUp", "JitterSeconds" = excluded."JitterSeconds",
      "NextAt" = case when s."RemovedAt" is null and s."Cron" = excluded."Cron"
        and s."TimeZone" = excluded."TimeZone"
        and not (excluded."NextAt" < s."NextAt" and excluded."NextAt" > coalesce(s."LastAt", '-infinity'))
        then s."NextAt" else excluded."NextAt" end,
      "RemovedAt" = null, "UpdatedAt" = now()`
  await tx`
    update "Order_Schedule" set "RemovedAt" = now(), "TickAt" = null, "TickCursor" = null, "UpdatedAt" = now()
    where "Process" = ${process} and "RemovedAt" is null and not "Name" in (
      select jsonb_array_elements_text(${JSON.stringify(schedules.map(({ name }) => name))}::text::jsonb))`
}

/** Returns the names of the schedules of these processes as JSON rows, for use in a condition. */
const namesOf = (processes: readonly ScheduledProcess[]): string =>
  JSON.stringify(
    processes.flatMap(({ outline, schedules }) =>
      [...schedules.keys()].map((name) => ({ process: outline.name, name })),
    ),
  )

/** True for the schedules that are still in the definitions of these processes. */
const declared = (sql: Sql, processes: readonly ScheduledProcess[]) => sql`
  s."RemovedAt" is null and (s."Process", s."Name") in (
    select d.process, d.name from jsonb_to_recordset(${namesOf(processes)}::text::jsonb)
      as d(process text collate "C", name text collate "C"))`

export async function fireSchedules(
  tx: postgres.TransactionSql,
  processes: readonly ScheduledProcess[],
  limit: number,
  times: { readonly sweepMs: number; readonly leaseMs: number },
): Promise<FiredSchedules> {
  const isDeclared = declared(tx, processes)
  const rows = await tx<(ScheduleRow & { now: number })[]>`
    select s.*, ${nowMs(tx)} as now from "Order_Schedule" s
    where s."NextAt" <= now() and s."PausedAt" is null and s."TickAt" is null and ${isDeclared}
    order by s."NextAt" limit ${limit} for update skip locked`
  const runs: Run[] = []
  const fired: { process: string; name: string; at: number }[] = []
  for (const row of rows) {
    const { Process: process, Name: name } = row
    const known = processes.find(({ outline }) => outline.name === process)
    const transactionAt = known?.schedules.get(name)
    if (known === undefined || transactionAt === undefined) continue
    const timing = timingOf(row)
    const { due, nextAt } = dueTicks(timing, Date.parse(row.NextAt), row.now)
    if (timing.each === 'once' && due.length > 0) {
      const transactions = due.map((at) => transactionAt(timing, at))
      const results = await enqueueRuns(tx, known.outline, transactions, times)
      runs.push(...results.filter(isQueued).map(({ run }) => run))
    }
    fired.push(...due.map((at) => ({ process, name, at })))
    const last = due.at(-1)
    await tx`
      update "Order_Schedule" set "NextAt" = ${iso(nextAt)}, "UpdatedAt" = now()
        ${last === undefined ? tx`` : tx`, "LastAt" = ${iso(last)}`}
        ${timing.each === 'company' && last !== undefined ? tx`, "TickAt" = ${iso(last)}` : tx``}
      where "Process" = ${process} and "Name" = ${name}`
  }
  const [next] = await tx<{ ms: number | null }[]>`
    select (extract(epoch from min(s."NextAt") - now()) * 1000)::float8 as ms from "Order_Schedule" s
    where s."PausedAt" is null and s."TickAt" is null and ${isDeclared}`
  return { runs, fired, nextInMs: next?.ms ?? null }
}

const isQueued = ({ outcome }: { readonly outcome: string }): boolean => outcome === 'queued'

const tickOf = (row: ScheduleRow): OpenTick => ({
  process: row.Process,
  name: row.Name,
  timing: timingOf(row),
  at: Date.parse(row.TickAt ?? ''),
  cursor: row.TickCursor,
})

export async function openTicks(
  sql: Sql,
  processes: readonly ScheduledProcess[],
): Promise<OpenTick[]> {
  const rows = await sql<ScheduleRow[]>`
    select s.* from "Order_Schedule" s where s."TickAt" is not null and ${declared(sql, processes)}
    order by s."TickAt"`
  return rows.map(tickOf)
}

export async function queueTick(
  tx: postgres.TransactionSql,
  process: ProcessOutline,
  { name, at, cursor }: OpenTick,
  transactions: readonly NewTransaction[],
  next: string | null,
  times: { readonly sweepMs: number; readonly leaseMs: number },
): Promise<Run[] | null> {
  // The update matches no row if another coordinator has already queued this page.
  const moved = await tx`
    update "Order_Schedule" set "TickCursor" = ${next}, "UpdatedAt" = now()
      ${next === null ? tx`, "TickAt" = null` : tx``}
    where "Process" = ${process.name} and "Name" = ${name} and "TickAt" = ${iso(at)}
      and "TickCursor" is not distinct from ${cursor} and "RemovedAt" is null
    returning 1`
  if (moved.length === 0) return null
  if (transactions.length === 0) return []
  const results = await enqueueRuns(tx, process, transactions, times)
  return results.filter(isQueued).map(({ run }) => run)
}

const stored = (sql: Sql) => sql`
  "Order_Schedule".*, (greatest(0, extract(epoch from now() - coalesce("TickAt", case
    when "PausedAt" is null and "RemovedAt" is null then "NextAt" end, now()))) * 1000)::float8 as "lagMs"`

const storedOf = (row: ScheduleRow & { readonly lagMs: number }): StoredSchedule => ({
  process: row.Process,
  name: row.Name,
  timing: timingOf(row),
  nextAt: row.NextAt,
  lastAt: row.LastAt,
  tickAt: row.TickAt,
  pausedAt: row.PausedAt,
  pausedBy: row.PausedBy,
  reason: row.Reason,
  removedAt: row.RemovedAt,
  lagMs: row.lagMs,
})

export async function listSchedules(sql: Sql): Promise<StoredSchedule[]> {
  const rows = await sql<(ScheduleRow & { lagMs: number })[]>`
    select ${stored(sql)} from "Order_Schedule" order by "Process", "Name"`
  return rows.map(storedOf)
}

export async function setSchedulePaused(
  tx: postgres.TransactionSql,
  process: string,
  name: string,
  isPaused: boolean,
  act: Act,
): Promise<StoredSchedule | null> {
  const [row] = await tx<(ScheduleRow & { now: number })[]>`
    select s.*, ${nowMs(tx)} as now from "Order_Schedule" s
    where "Process" = ${process} and "Name" = ${name} for update`
  if (row === undefined) return null
  const wasPaused = row.PausedAt !== null
  const change = isPaused
    ? tx`"PausedAt" = now(), "PausedBy" = ${pausedBy(act)}, "Reason" = ${act.reason}`
    : tx`"PausedAt" = null, "PausedBy" = null, "Reason" = null,
        "NextAt" = ${iso(firstTick(timingOf(row), row.now))}`
  const [changed] = await tx<(ScheduleRow & { lagMs: number })[]>`
    update "Order_Schedule" set "UpdatedAt" = now() ${isPaused === wasPaused ? tx`` : tx`, ${change}`}
    where "Process" = ${process} and "Name" = ${name} returning ${stored(tx)}`
  await recordAction(tx, isPaused ? 'pause_schedule' : 'resume_schedule', act, process, `${name}@`)
  return changed === undefined ? null : storedOf(changed)
}

export async function openTick(
  tx: postgres.TransactionSql,
  process: string,
  name: string,
  act: Act,
): Promise<OpenTick | null> {
  const [row] = await tx<ScheduleRow[]>`
    update "Order_Schedule" set "TickAt" = date_trunc('milliseconds', now()), "TickCursor" = null,
      "LastAt" = date_trunc('milliseconds', now()), "UpdatedAt" = now()
    where "Process" = ${process} and "Name" = ${name} and "TickAt" is null and "RemovedAt" is null
    returning *`
  if (row === undefined) return null
  const tick = tickOf(row)
  await recordAction(tx, 'run_schedule', act, process, scheduledId(name, tick.at, null))
  return tick
}

async function recordAction(
  tx: postgres.TransactionSql,
  kind: 'pause_schedule' | 'resume_schedule' | 'run_schedule',
  act: Act,
  Process: string,
  TransactionID: string,
): Promise<void> {
  const entry = entryOf(kind, act, { Process, TransactionID }, { now: 0 })
  await tx`
    insert into "Order_Action" ("KeyID", "Person", "Action", "Process", "TransactionID", "Reason", "Outcome")
    values (${entry.KeyID}, ${entry.Person}, ${kind}, ${Process}, ${TransactionID}, ${entry.Reason}, 'done')`
}
