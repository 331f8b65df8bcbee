import type postgres from 'postgres'
import { WAITS_FOR_SLOT } from '../../../run/concurrency.ts'
import type { Act } from '../../../run/action.ts'
import {
  notActive,
  notResumable,
  notRetryable,
  notUndoable,
  requireData,
  requireLatest,
} from '../../../run/errors.ts'
import type { OperatorAction, OperatorActions } from '../../../run/operator-actions.ts'
import type { Run } from '../../../run/run.ts'
import { resumableStatuses, undoableStatuses } from '../../../run/status.ts'
import type { RunTerms } from '../../../run/transaction-source.ts'
import { UNDO_CANCELLED } from '../../../run/transitions.ts'
import {
  deadlineFromNow,
  familiesDue,
  isActive,
  isDelayed,
  isNotWaitingAtPlace,
  isRun,
  isRunOf,
  leavesDoubt,
} from '../predicates.ts'
import { runOf, type RunRow } from '../rows.ts'
import { recordOnChanged } from './actions.ts'
import { endWaits } from './sweep-runs.ts'
import { latestReplayId, lockRun, lockTransaction } from './lock-run.ts'

type Tx = postgres.TransactionSql

/** Performs an action on a run. If the run is cancelled, its worker can no longer record an outcome. */
export async function operateRun(
  tx: Tx,
  ...[action, process, transactionId, replayId, act, { sweepMs }]: [
    ...Parameters<OperatorActions['operate']>,
    { readonly sweepMs: number },
  ]
): Promise<Run> {
  const key = await lockFor(action, tx, process.name, transactionId, replayId, act)
  const { change, isPossible, families, impossible } = effectOf(tx, action, process, sweepMs)
  const [row] = await tx<RunRow[]>`
    with changed as (update "Order_Header" h set
      ${change}, "Version" = h."Version" + 1, "WaitingFor" = null, "UpdatedAt" = now()
    where ${isRun(tx, key)} and ${isPossible}
    returning h.*),
    ${families === undefined ? tx`` : tx`families as (${families}),`}
    recorded as (${recordOnChanged(tx, action, act)})
    select * from changed`
  if (row === undefined) throw impossible()
  if (action === 'cancel') await endWaits(tx, [row])
  return runOf(row)
}

/** Locks the run. Only the latest run of a transaction can be resumed or undone. */
async function lockFor(
  action: OperatorAction,
  ...[tx, process, transactionId, replayId, act]: [Tx, string, string, number | null, Act]
): Promise<RunRow> {
  if (action !== 'resume' && action !== 'undo')
    return lockRun(tx, process, transactionId, replayId, act)
  await lockTransaction(tx, process, transactionId)
  const run = await lockRun(tx, process, transactionId, replayId, act)
  requireLatest(run, await latestReplayId(tx, run, replayId), action)
  requireData(run)
  return run
}

interface Effect {
  /** The assignments of the action, apart from those that all actions have. */
  readonly change: postgres.Fragment
  /** The condition under which the run allows the action. */
  readonly isPossible: postgres.Fragment
  /** What becomes of the families that the run has started. */
  readonly families?: postgres.Fragment
  readonly impossible: () => Error
}

function effectOf(tx: Tx, action: OperatorAction, terms: RunTerms, sweepMs: number): Effect {
  const dueNow = tx`"NextSweepAt" = now() + ${sweepMs} * interval '1 ms', "SweepCount" = 0`
  /** The assignments of an ended run that is due again. */
  const dueAgain = tx`${dueNow}, "Attempt" = 0, "NextAttemptAt" = now(), "CompletedAt" = null`
  switch (action) {
    case 'cancel':
      return {
        change: tx`
          "Status" = case h."Status" when 'Undoing' then 'UndoFailed' else 'Cancelled' end,
          "ErrorClass" = case h."Status" when 'Undoing' then ${UNDO_CANCELLED} else h."ErrorClass" end,
          "LastError" = case h."Status" when 'Undoing' then null else h."LastError" end,
          "InDoubt" = h."InDoubt" or ${leavesDoubt(tx)}, "LeaseOwner" = null, "LeaseUntil" = null,
          "StartedAt" = null, "NextAttemptAt" = null, "CompletedAt" = now()`,
        isPossible: isActive(tx),
        families: familiesDue(tx, 'changed'),
        impossible: notActive,
      }
    case 'resume':
      return {
        change: tx`
          "Status" = case h."Status" when 'UndoFailed' then 'Undoing' else 'Queued' end, ${dueAgain},
          "LastError" = null, "ErrorClass" = null, "DeadlineAt" = ${deadlineFromNow(tx, terms)},
          "NotBefore" = null`,
        isPossible: tx`h."Status" in ${tx([...resumableStatuses])}`,
        // The children that have failed until now are resumed when the run gets to their place.
        families: tx`
          update "Order_Family" h set "ResumedAt" = now() from changed where ${isRunOf(tx, 'changed')}`,
        impossible: notResumable,
      }
    case 'undo':
      return {
        change: tx`"Status" = 'Undoing', ${dueAgain}`, // the last error stays, as the reason of the undo
        isPossible: tx`h."Status" in ${tx([...undoableStatuses])}`,
        impossible: notUndoable,
      }
    case 'retry':
      // A run that waits for a slot keeps `NextAttemptAt`, because slots are assigned in the order of this time. The
      // deadline of a delayed run counts from its start, so the deadline moves to an earlier time as well.
      return {
        change: tx`
          "Status" = case when h."Status" = 'Undoing' or ${isDelayed(tx)} then h."Status" else 'Retrying' end,
          "NextAttemptAt" = case when h."WaitingFor" = ${WAITS_FOR_SLOT} then h."NextAttemptAt" else now() end,
          "DeadlineAt" = case when ${isDelayed(tx)}
            then h."DeadlineAt" - (h."NextAttemptAt" - now()) else h."DeadlineAt" end,
          "NotBefore" = case when ${isDelayed(tx)} then null else h."NotBefore" end,
          ${dueNow}, "LastError" = null, "ErrorClass" = null`,
        isPossible: tx`(h."Status" in ('Retrying', 'Waiting') or ${isDelayed(tx)}
            or (h."Status" = 'Undoing' and h."LeaseUntil" is null and h."NextAttemptAt" > now()))
          and ${isNotWaitingAtPlace(tx)}`,
        impossible: notRetryable,
      }
  }
}
