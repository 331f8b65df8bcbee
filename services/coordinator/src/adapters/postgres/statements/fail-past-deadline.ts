import type postgres from 'postgres'
import type { Run } from '../../../run/run.ts'
import { DEADLINE_EXCEEDED, LAST_ERROR, PAST_DEADLINE } from '../../../run/transitions.ts'
import { familiesDue, isActive, isRunOf } from '../predicates.ts'
import { runOf, type RunRow } from '../rows.ts'
import { endWaits } from './end-waits.ts'

/**
 * Fails at most `limit` active runs that have no lease and whose deadline has passed. The runs of the processes `undone`
 * begin to be undone instead.
 */
export async function failPastDeadline(
  sql: postgres.TransactionSql,
  limit: number,
  undone: readonly string[],
  { sweepMs }: { readonly sweepMs: number },
): Promise<Run[]> {
  const rows = await sql<RunRow[]>`
    with held as (
      select *, ${JSON.stringify(undone)}::text::jsonb ? h."Process" as "isUndone" from "Order_Header" h
      where h."DeadlineAt" <= now() and h."CompletedAt" is null
        and ${isActive(sql)} and h."Status" <> 'Undoing' and h."LeaseUntil" is null
      order by h."DeadlineAt" limit ${limit}
      for update of h skip locked
    ), families as (${familiesDue(sql, 'held')})
    update "Order_Header" h set
      "Status" = case when "isUndone" then 'Undoing' else 'Failed' end, "Version" = h."Version" + 1,
      "Attempt" = case when "isUndone" then 0 else h."Attempt" end,
      "NextAttemptAt" = case when "isUndone" then now() end, "SweepCount" = 0,
      "NextSweepAt" = case when "isUndone" then now() + ${sweepMs} * interval '1 ms' else h."NextSweepAt" end,
      "WaitingFor" = null, "ErrorClass" = ${DEADLINE_EXCEEDED},
      "LastError" = ${PAST_DEADLINE} || coalesce(${LAST_ERROR} || h."LastError", ''),
      "CompletedAt" = case when not "isUndone" then now() end, "UpdatedAt" = now()
    from held
    where ${isRunOf(sql, 'held')}
    returning h.*`
  await endWaits(sql, rows)
  return rows.map(runOf)
}
