import type postgres from 'postgres'
import type { Act } from '../../../transaction/action.ts'
import { type Pause, pausedBy, type Pauses } from '../../../transaction/pause.ts'
import { recordOnChanged } from './actions.ts'

export async function pausedProcesses(
  sql: postgres.Sql | postgres.TransactionSql,
): Promise<Pauses> {
  const rows = await sql<Pause[]>`
    select "Process", "PausedAt", "PausedBy", "Reason" from "Order_Process" where "Paused"`
  return new Map(rows.map((pause) => [pause.Process, pause]))
}

export async function setPaused(
  sql: postgres.Sql,
  process: string,
  isPaused: boolean,
  act: Act,
): Promise<void> {
  await sql`
    with changed as (
      insert into "Order_Process" as p ("Process", "Paused", "PausedAt", "PausedBy", "Reason")
      values (${process}, ${isPaused}, now(), ${pausedBy(act)}, ${act.reason})
      on conflict ("Process") do update set "Paused" = excluded."Paused",
        "PausedAt" = case when p."Paused" then p."PausedAt" else excluded."PausedAt" end,
        "PausedBy" = case when p."Paused" then p."PausedBy" else excluded."PausedBy" end,
        "Reason" = case when p."Paused" then p."Reason" else excluded."Reason" end, "UpdatedAt" = now()
      returning "Process", null::text as "TransactionID", null::int as "ReplayID", null::text as "Realm")
    ${recordOnChanged(sql, isPaused ? 'pause' : 'resume', act)}`
}
