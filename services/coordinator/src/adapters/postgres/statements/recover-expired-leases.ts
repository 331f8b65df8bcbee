import type postgres from 'postgres'
import type { Run } from '../../../run/run.ts'
import {
  LOST_BASE_MS,
  LOST_CAP_MS,
  WORKER_LOST,
  WORKER_WAS_LOST,
} from '../../../run/transitions.ts'
import { isRunOf, leavesDoubt } from '../predicates.ts'
import { runOf, type RunRow } from '../rows.ts'

/**
 * Releases at most `limit` expired leases. Their runs become due again, and the attempts of the lost workers are
 * recorded as `in_doubt`. A run that has lost two or more workers in a row waits before its next attempt.
 */
export async function recoverExpiredLeases(
  sql: postgres.TransactionSql,
  limit: number,
  { sweepMs }: { readonly sweepMs: number },
): Promise<Run[]> {
  const rows = await sql<RunRow[]>`
    with held as (
      select *, case when h."ErrorClass" = ${WORKER_LOST}
        then least(${LOST_CAP_MS}::float8, ${LOST_BASE_MS}::float8 * 2 ^ least(greatest(h."Attempt" - 2, 0), 30)) * interval '1 ms'
        end as delay
      from "Order_Header" h
      where h."CompletedAt" is null and h."NextSweepAt" <= now()
        and h."Status" in ('Running', 'Undoing') and h."LeaseUntil" <= now()
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
      "InDoubt" = h."InDoubt" or ${leavesDoubt(sql)}, "Version" = h."Version" + 1,
      "ErrorClass" = ${WORKER_LOST}, "LastError" = ${WORKER_WAS_LOST},
      "Status" = case when delay is null or h."Status" = 'Undoing' then h."Status" else 'Retrying' end,
      "NextAttemptAt" = coalesce(now() + delay, h."NextAttemptAt"),
      "NextSweepAt" = now() + coalesce(delay, interval '0') + ${sweepMs} * interval '1 ms',
      "SweepCount" = 0, "UpdatedAt" = now()
    from held
    where ${isRunOf(sql, 'held')}
    returning h.*`
  return rows.map(runOf)
}
