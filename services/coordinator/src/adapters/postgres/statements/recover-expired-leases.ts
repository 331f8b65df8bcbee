import type postgres from 'postgres'
import type { Run } from '../../../transaction/run.ts'
import { isRunOf } from '../predicates.ts'
import { runOf, type RunRow } from '../rows.ts'

/**
 * Releases at most `limit` expired leases. Their runs become due again, and the attempts of the lost workers are
 * recorded as `in_doubt`.
 */
export async function recoverExpiredLeases(
  sql: postgres.TransactionSql,
  limit: number,
  { sweepMs }: { readonly sweepMs: number },
): Promise<Run[]> {
  const rows = await sql<RunRow[]>`
    with held as (
      select * from "Order_Header" h
      where h."CompletedAt" is null and h."NextSweepAt" <= now()
        and h."Status" = 'Running' and h."LeaseUntil" <= now()
      order by h."NextSweepAt" limit ${limit}
      for update of h skip locked
    ), lost as (
      insert into "Order_Attempt"
        ("Process", "TransactionID", "ReplayID", "StepName", "Attempt", "Outcome", "StartedAt")
      select "Process", "TransactionID", "ReplayID", "StepName", "Attempt", 'in_doubt',
        coalesce("StartedAt", now())
      from held
    )
    update "Order_Header" h set "LeaseOwner" = null, "LeaseUntil" = null, "StartedAt" = null,
      "InDoubt" = true, "Version" = h."Version" + 1, "NextSweepAt" = now() + ${sweepMs} * interval '1 ms',
      "SweepCount" = 0, "UpdatedAt" = now()
    from held
    where ${isRunOf(sql, 'held')}
    returning h.*`
  return rows.map(runOf)
}
