import type postgres from 'postgres'
import type { Run } from '../../../run/run.ts'
import { DEADLINE_EXCEEDED, LAST_ERROR, PAST_DEADLINE } from '../../../run/transitions.ts'
import { isActive, isRunOf } from '../predicates.ts'
import { runOf, type RunRow } from '../rows.ts'

/** Fails at most `limit` active runs that have no lease and whose deadline has passed. */
export async function failPastDeadline(
  sql: postgres.TransactionSql,
  limit: number,
): Promise<Run[]> {
  const rows = await sql<RunRow[]>`
    with held as (
      select * from "Order_Header" h
      where h."DeadlineAt" <= now() and h."CompletedAt" is null
        and ${isActive(sql)} and h."LeaseUntil" is null
      order by h."DeadlineAt" limit ${limit}
      for update of h skip locked
    )
    update "Order_Header" h set
      "Status" = 'Failed', "Version" = h."Version" + 1, "NextAttemptAt" = null,
      "WaitingFor" = null, "ErrorClass" = ${DEADLINE_EXCEEDED},
      "LastError" = ${PAST_DEADLINE} || coalesce(${LAST_ERROR} || h."LastError", ''),
      "CompletedAt" = now(), "UpdatedAt" = now()
    from held
    where ${isRunOf(sql, 'held')}
    returning h.*`
  return rows.map(runOf)
}
