import type postgres from 'postgres'
import type { Run } from '../../../run/run.ts'
import type { ProcessOutline } from '../../../run/transaction-source.ts'
import { isActive, isUnleased } from '../predicates.ts'
import { runOf, type RunRow } from '../rows.ts'

/** Returns at most `limit` overdue runs at a step that does not exist in their process. */
export async function runsAtUnknownStep(
  sql: postgres.Sql,
  processes: readonly ProcessOutline[],
  limit: number,
): Promise<Run[]> {
  const rows = await sql<RunRow[]>`
    select h.* from "Order_Header" h
      join jsonb_to_recordset(${JSON.stringify(processes)}::text::jsonb) as p(name text, steps jsonb)
        on p.name = h."Process"
    where h."CompletedAt" is null and h."NextSweepAt" <= now()
      and ${isActive(sql)}
      and ${isUnleased(sql)}
      and h."StepName" <> '' and not p.steps ? h."StepName"
    order by h."NextSweepAt" limit ${limit}`
  return rows.map(runOf)
}
