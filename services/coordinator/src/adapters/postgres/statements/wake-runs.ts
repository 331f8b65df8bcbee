import type postgres from 'postgres'
import type { Run } from '../../../run/run.ts'
import { isRunOf } from '../predicates.ts'
import { runOf, type RunRow } from '../rows.ts'

/** Makes at most `limit` runs due again that wait for this credential. */
export async function wakeRuns(
  sql: postgres.Sql,
  credential: string,
  limit: number,
  { sweepMs }: { readonly sweepMs: number },
): Promise<Run[]> {
  const rows = await sql<RunRow[]>`
    with held as (
      select * from "Order_Header" h
      where h."Status" in ('Waiting', 'Undoing') and h."WaitingFor" = ${credential}
      order by h."CreatedAt" limit ${limit} for update of h skip locked
    )
    update "Order_Header" h set
      "Status" = case h."Status" when 'Undoing' then h."Status" else 'Running' end, "Version" = h."Version" + 1, "WaitingFor" = null,
      "NextAttemptAt" = now(), "NextSweepAt" = now() + ${sweepMs} * interval '1 ms',
      "SweepCount" = 0, "LastError" = null, "ErrorClass" = null, "UpdatedAt" = now()
    from held
    where ${isRunOf(sql, 'held')}
    returning h.*`
  return rows.map(runOf)
}
