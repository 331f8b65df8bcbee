import type postgres from 'postgres'
import type { Act } from '../../../transaction/action.ts'
import { notResumable, requireData } from '../../../transaction/errors.ts'
import type { Run } from '../../../transaction/run.ts'
import { isRun } from '../predicates.ts'
import { runOf, type RunRow } from '../rows.ts'
import { recordOnChanged } from './actions.ts'
import { lockRun } from './lock-run.ts'

/** Makes a failed or cancelled run due again at the step where it ended. */
export async function resumeRun(
  tx: postgres.TransactionSql,
  process: string,
  transactionId: string,
  replayId: number | null,
  act: Act,
  { sweepMs }: { readonly sweepMs: number },
): Promise<Run> {
  const key = await lockRun(tx, process, transactionId, replayId, act)
  requireData(key)
  const [row] = await tx<RunRow[]>`
    with changed as (update "Order_Header" h set
      "Status" = 'Queued', "Version" = h."Version" + 1, "Attempt" = 0, "NextAttemptAt" = now(),
      "NextSweepAt" = now() + ${sweepMs} * interval '1 ms', "SweepCount" = 0,
      "LastError" = null, "ErrorClass" = null, "WaitingFor" = null, "CompletedAt" = null,
      "UpdatedAt" = now()
    where ${isRun(tx, key)} and h."Status" in ('Failed', 'Cancelled')
    returning h.*),
    recorded as (${recordOnChanged(tx, 'resume', act)})
    select * from changed`
  if (row === undefined) throw notResumable()
  return runOf(row)
}
