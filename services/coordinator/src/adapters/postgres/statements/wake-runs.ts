import type postgres from 'postgres'
import type { Run } from '../../../run/run.ts'
import { WAITS_FOR_RESUME } from '../../../run/status.ts'
import { isRunOf } from '../predicates.ts'
import { runOf, type RunRow } from '../rows.ts'

/** Makes at most `limit` runs due again that wait for this credential, or for the resume of this company. */
export async function wakeRuns(
  sql: postgres.Sql,
  waitingFor: string,
  limit: number,
  { sweepMs }: { readonly sweepMs: number },
): Promise<Run[]> {
  const keepsError = waitingFor.startsWith(WAITS_FOR_RESUME)
  const rows = await sql<RunRow[]>`
    with held as (
      select * from "Order_Header" h
      where h."Status" in ('Waiting', 'Undoing') and h."WaitingFor" = ${waitingFor}
      order by h."CreatedAt" limit ${limit} for update of h skip locked
    )
    update "Order_Header" h set
      "Status" = case h."Status" when 'Undoing' then h."Status" else 'Running' end, "Version" = h."Version" + 1, "WaitingFor" = null,
      "NextAttemptAt" = now(), "NextSweepAt" = now() + ${sweepMs} * interval '1 ms',
      "SweepCount" = 0, "UpdatedAt" = now(),
      "LastError" = case when ${keepsError} then h."LastError" end,
      "ErrorClass" = case when ${keepsError} then h."ErrorClass" end
    from held
    where ${isRunOf(sql, 'held')}
    returning h.*`
  return rows.map(runOf)
}
