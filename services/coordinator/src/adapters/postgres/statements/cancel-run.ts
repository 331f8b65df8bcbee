import type postgres from 'postgres'
import type { Act } from '../../../run/action.ts'
import { notActive } from '../../../run/errors.ts'
import type { Run } from '../../../run/run.ts'
import { UNDO_CANCELLED } from '../../../run/transitions.ts'
import { familiesDue, isActive, isRun, leavesDoubt } from '../predicates.ts'
import { runOf, type RunRow } from '../rows.ts'
import { recordOnChanged } from './actions.ts'
import { endWaits } from './end-waits.ts'
import { lockRun } from './lock-run.ts'

/** Ends an active run. A worker that has claimed the run can no longer record an outcome. */
export async function cancelRun(
  tx: postgres.TransactionSql,
  process: string,
  transactionId: string,
  replayId: number | null,
  act: Act,
): Promise<Run> {
  const key = await lockRun(tx, process, transactionId, replayId, act)
  const [row] = await tx<RunRow[]>`
    with changed as (update "Order_Header" h set
      "Status" = case h."Status" when 'Undoing' then 'UndoFailed' else 'Cancelled' end,
      "ErrorClass" = case h."Status" when 'Undoing' then ${UNDO_CANCELLED} else h."ErrorClass" end,
      "LastError" = case h."Status" when 'Undoing' then null else h."LastError" end,
      "Version" = h."Version" + 1,
      "InDoubt" = h."InDoubt" or ${leavesDoubt(tx)}, "LeaseOwner" = null,
      "LeaseUntil" = null, "StartedAt" = null, "NextAttemptAt" = null, "WaitingFor" = null,
      "CompletedAt" = now(), "UpdatedAt" = now()
    where ${isRun(tx, key)} and ${isActive(tx)}
    returning h.*),
    families as (${familiesDue(tx, 'changed')}),
    recorded as (${recordOnChanged(tx, 'cancel', act)})
    select * from changed`
  if (row === undefined) throw notActive()
  await endWaits(tx, [row])
  return runOf(row)
}
