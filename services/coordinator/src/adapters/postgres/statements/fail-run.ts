import type postgres from 'postgres'
import type { Run, RunKey } from '../../../run/run.ts'
import { isActive, isRun, isUnleased, leavesDoubt } from '../predicates.ts'
import { runOf, type RunRow } from '../rows.ts'
import { endWaits } from './end-waits.ts'

/**
 * Fails an active run that has no lease, or begins its undo at the step `undoAt`. Returns `null` if the run has changed
 * since `version`.
 */
export async function failRun(
  sql: postgres.TransactionSql,
  key: RunKey,
  version: number,
  {
    errorClass,
    error,
    undoAt = null,
  }: {
    readonly errorClass: string
    readonly error: string
    readonly undoAt?: string | null | undefined
  },
  { sweepMs }: { readonly sweepMs: number },
): Promise<Run | null> {
  const rows = await sql<RunRow[]>`
    with held as (
      select *, "InDoubt" or ${leavesDoubt(sql)} as doubt from "Order_Header" h
      where ${isRun(sql, key)} and h."Version" = ${version} and ${isActive(sql)} and ${isUnleased(sql)}
      for update of h
    ), decided as (
      select *, ${undoAt}::text is not null and (h."StepName" = ${undoAt} or not doubt) as "isUndone"
      from held h
    )
    update "Order_Header" h set "Version" = h."Version" + 1,
      "InDoubt" = decided.doubt, "LeaseOwner" = null, "LeaseUntil" = null, "WaitingFor" = null,
      "Status" = case when "isUndone" then 'Undoing'
        when ${undoAt}::text is not null or h."Status" = 'Undoing' then 'UndoFailed' else 'Failed' end,
      "StepName" = case when "isUndone" then ${undoAt} else h."StepName" end,
      "Attempt" = case when "isUndone" then 0 else h."Attempt" end,
      "NextAttemptAt" = case when "isUndone" then now() end,
      "NextSweepAt" = now() + ${sweepMs} * interval '1 ms', "SweepCount" = 0, "UpdatedAt" = now(),
      "ErrorClass" = case when "isUndone" and h."Status" = 'Undoing' then h."ErrorClass" else ${errorClass} end,
      "LastError" = case when "isUndone" and h."Status" = 'Undoing' then h."LastError" else ${error} end,
      "CompletedAt" = case when not "isUndone" then now() end
    from decided
    where h."Process" = decided."Process" and h."TransactionID" = decided."TransactionID"
      and h."ReplayID" = decided."ReplayID"
    returning h.*`
  await endWaits(sql, rows)
  return rows[0] === undefined ? null : runOf(rows[0])
}
