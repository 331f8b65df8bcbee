import type postgres from 'postgres'
import type { Act } from '../../../transaction/action.ts'
import { notRetryable } from '../../../transaction/errors.ts'
import type { Run } from '../../../transaction/run.ts'
import { isRun } from '../predicates.ts'
import { runOf, type RunRow } from '../rows.ts'
import { recordOnChanged } from './actions.ts'
import { lockRun } from './lock-run.ts'

/** Makes a waiting run due at once. The run may wait for its next attempt or for a credential. */
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
      "Status" = 'Retrying', "Version" = h."Version" + 1, "NextAttemptAt" = now(),
      "NextSweepAt" = now() + ${sweepMs} * interval '1 ms', "SweepCount" = 0,
      "LastError" = null, "ErrorClass" = null, "WaitingFor" = null, "UpdatedAt" = now()
    where ${isRun(tx, key)} and h."Status" in ('Retrying', 'Waiting')
    returning h.*),
    recorded as (${recordOnChanged(tx, 'retry', act)})
    select * from changed`
  if (row === undefined) throw notRetryable()
  return runOf(row)
}
