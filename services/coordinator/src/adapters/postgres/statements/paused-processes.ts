import type postgres from 'postgres'
import type { Act } from '../../../transaction/action.ts'
import { recordOnChanged } from './actions.ts'

export async function pausedProcesses(sql: postgres.Sql): Promise<ReadonlySet<string>> {
  const rows = await sql<{ Process: string }[]>`
    select "Process" from "Order_Process" where "Paused"`
  return new Set(rows.map(({ Process }) => Process))
}

export async function setPaused(
  sql: postgres.Sql,
  process: string,
  isPaused: boolean,
  act: Act,
): Promise<void> {
  await sql`
    with changed as (
      insert into "Order_Process" ("Process", "Paused") values (${process}, ${isPaused})
      on conflict ("Process") do update set "Paused" = excluded."Paused", "UpdatedAt" = now()
      returning "Process", null::text as "TransactionID", null::int as "ReplayID", null::text as "Realm")
    ${recordOnChanged(sql, isPaused ? 'pause' : 'resume', act)}`
}
