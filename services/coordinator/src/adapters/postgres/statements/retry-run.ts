import type postgres from 'postgres'
import { WAITS_FOR_SLOT } from '../../../run/concurrency.ts'
import type { Act } from '../../../run/action.ts'
import { notRetryable } from '../../../run/errors.ts'
import type { Run } from '../../../run/run.ts'
import { isDelayed, isNotWaitingAtPlace, isRun } from '../predicates.ts'
import { runOf, type RunRow } from '../rows.ts'
import { recordOnChanged } from './actions.ts'
import { lockRun } from './lock-run.ts'

/**
 * Makes a waiting run due at once. The run may wait for its next attempt, for its start time, or for a credential. A
 * run that waits for a slot keeps `NextAttemptAt`, because slots are assigned in the order of this time. The deadline
 * of a delayed run counts from its start, so the deadline moves to an earlier time as well.
 */
export async function retryRun(
  tx: postgres.TransactionSql,
  process: string,
  transactionId: string,
  replayId: number | null,
  act: Act,
  { sweepMs }: { readonly sweepMs: number },
): Promise<Run> {
  const key = await lockRun(tx, process, transactionId, replayId, act)
  const [row] = await tx<RunRow[]>`
    with changed as (update "Order_Header" h set
      "Status" = case when h."Status" = 'Undoing' or ${isDelayed(tx)} then h."Status" else 'Retrying' end,
      "Version" = h."Version" + 1,
      "NextAttemptAt" = case when h."WaitingFor" = ${WAITS_FOR_SLOT} then h."NextAttemptAt" else now() end,
      "DeadlineAt" = case when ${isDelayed(tx)}
        then h."DeadlineAt" - (h."NextAttemptAt" - now()) else h."DeadlineAt" end,
      "NotBefore" = case when ${isDelayed(tx)} then null else h."NotBefore" end,
      "NextSweepAt" = now() + ${sweepMs} * interval '1 ms', "SweepCount" = 0,
      "LastError" = null, "ErrorClass" = null, "WaitingFor" = null, "UpdatedAt" = now()
    where ${isRun(tx, key)} and (h."Status" in ('Retrying', 'Waiting') or ${isDelayed(tx)}
        or (h."Status" = 'Undoing' and h."LeaseUntil" is null and h."NextAttemptAt" > now()))
      and ${isNotWaitingAtPlace(tx)}
    returning h.*),
    recorded as (${recordOnChanged(tx, 'retry', act)})
    select * from changed`
  if (row === undefined) throw notRetryable()
  return runOf(row)
}
