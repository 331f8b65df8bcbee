import type postgres from 'postgres'
import type { Act } from '../../../run/action.ts'
import { notResumable, requireData, requireLatest } from '../../../run/errors.ts'
import type { Run } from '../../../run/run.ts'
import { deadlineFromNow, isRun } from '../predicates.ts'
import type { ProcessOutline } from '../../../run/transaction-source.ts'
import { runOf, type RunRow } from '../rows.ts'
import { recordOnChanged } from './actions.ts'
import { latestReplayId, lockRun, lockTransaction } from './lock-run.ts'

/** Resumes the latest run, which has failed or was cancelled. The step at which the run ended becomes due again. */
export async function resumeRun(
  tx: postgres.TransactionSql,
  process: ProcessOutline,
  transactionId: string,
  replayId: number | null,
  act: Act,
  { sweepMs }: { readonly sweepMs: number },
): Promise<Run> {
  await lockTransaction(tx, process.name, transactionId)
  const key = await lockRun(tx, process.name, transactionId, replayId, act)
  requireLatest(key, await latestReplayId(tx, key, replayId))
  requireData(key)
  const [row] = await tx<RunRow[]>`
    with changed as (update "Order_Header" h set
      "Status" = 'Queued', "Version" = h."Version" + 1, "Attempt" = 0, "NextAttemptAt" = now(),
      "NextSweepAt" = now() + ${sweepMs} * interval '1 ms', "SweepCount" = 0,
      "LastError" = null, "ErrorClass" = null, "WaitingFor" = null, "CompletedAt" = null,
      "DeadlineAt" = ${deadlineFromNow(tx, process)}, "NotBefore" = null, "UpdatedAt" = now()
    where ${isRun(tx, key)} and h."Status" in ('Failed', 'Cancelled')
    returning h.*),
    recorded as (${recordOnChanged(tx, 'resume', act)})
    select * from changed`
  if (row === undefined) throw notResumable()
  return runOf(row)
}
