import type postgres from 'postgres'
import type { Run, RunKey } from '../../../run/run.ts'
import { isActive, isRun, isUnleased, leavesDoubt } from '../predicates.ts'
import { runOf, type RunRow } from '../rows.ts'

/** Fails an active run that has no lease. Returns `null` if the run has changed since `version`. */
export async function failRun(
  sql: postgres.TransactionSql,
  key: RunKey,
  version: number,
  errorClass: string,
  error: string,
): Promise<Run | null> {
  const rows = await sql<RunRow[]>`
    update "Order_Header" h set "Version" = h."Version" + 1,
      "InDoubt" = h."InDoubt" or ${leavesDoubt(sql)}, "LeaseOwner" = null,
      "Status" = case h."Status" when 'Undoing' then 'UndoFailed' else 'Failed' end, "LeaseUntil" = null, "NextAttemptAt" = null, "ErrorClass" = ${errorClass}, "LastError" = ${error}, "UpdatedAt" = now(), "CompletedAt" = now()
    where ${isRun(sql, key)} and h."Version" = ${version}
      and ${isActive(sql)}
      and ${isUnleased(sql)}
    returning h.*`
  return rows[0] === undefined ? null : runOf(rows[0])
}
