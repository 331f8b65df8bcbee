import type postgres from 'postgres'
import type { Act } from '../../../run/action.ts'
import { notResumable, notUndoable, requireData, requireLatest } from '../../../run/errors.ts'
import type { Run } from '../../../run/run.ts'
import { resumableStatuses, undoableStatuses } from '../../../run/status.ts'
import { deadlineFromNow, isRun, isRunOf } from '../predicates.ts'
import type { ProcessOutline } from '../../../run/transaction-source.ts'
import { runOf, type RunRow } from '../rows.ts'
import { recordOnChanged } from './actions.ts'
import { latestReplayId, lockRun, lockTransaction } from './lock-run.ts'

/**
 * Resumes the latest run, which has failed or was cancelled. The step at which the run ended becomes due again. A run
 * whose undo has failed goes on with the undo.
 */
export async function resumeRun(
  tx: postgres.TransactionSql,
  process: ProcessOutline,
  transactionId: string,
  replayId: number | null,
  act: Act,
  { sweepMs }: { readonly sweepMs: number },
): Promise<Run> {
  const key = await lockLatest(tx, process.name, transactionId, replayId, act, 'resume')
  const [row] = await tx<RunRow[]>`
    with changed as (update "Order_Header" h set
      "Status" = case h."Status" when 'UndoFailed' then 'Undoing' else 'Queued' end,
      ${dueAgain(tx, sweepMs)}, "LastError" = null, "ErrorClass" = null,
      "DeadlineAt" = ${deadlineFromNow(tx, process)}, "NotBefore" = null
    where ${isRun(tx, key)} and h."Status" in ${tx([...resumableStatuses])}
    returning h.*),
    families as (
      -- The children that have failed until now are resumed when the run gets to their place.
      update "Order_Family" h set "ResumedAt" = now() from changed where ${isRunOf(tx, 'changed')}
    ),
    recorded as (${recordOnChanged(tx, 'resume', act)})
    select * from changed`
  if (row === undefined) throw notResumable()
  return runOf(row)
}

/** Begins the undo of the latest run. Its last error stays, as the reason of the undo. */
export async function undoRun(
  tx: postgres.TransactionSql,
  process: string,
  transactionId: string,
  replayId: number | null,
  act: Act,
  { sweepMs }: { readonly sweepMs: number },
): Promise<Run> {
  const key = await lockLatest(tx, process, transactionId, replayId, act, 'undo')
  const [row] = await tx<RunRow[]>`
    with changed as (update "Order_Header" h set "Status" = 'Undoing', ${dueAgain(tx, sweepMs)}
    where ${isRun(tx, key)} and h."Status" in ${tx([...undoableStatuses])}
    returning h.*),
    recorded as (${recordOnChanged(tx, 'undo', act)})
    select * from changed`
  if (row === undefined) throw notUndoable()
  return runOf(row)
}

async function lockLatest(
  tx: postgres.TransactionSql,
  process: string,
  transactionId: string,
  replayId: number | null,
  act: Act,
  kind: 'resume' | 'undo',
): Promise<RunRow> {
  await lockTransaction(tx, process, transactionId)
  const run = await lockRun(tx, process, transactionId, replayId, act)
  requireLatest(run, await latestReplayId(tx, run, replayId), kind)
  requireData(run)
  return run
}

/** The assignments of an ended run that is due again. */
const dueAgain = (tx: postgres.TransactionSql, sweepMs: number) => tx`
  "Version" = h."Version" + 1, "Attempt" = 0, "NextAttemptAt" = now(),
  "NextSweepAt" = now() + ${sweepMs} * interval '1 ms', "SweepCount" = 0, "WaitingFor" = null,
  "CompletedAt" = null, "UpdatedAt" = now()`
