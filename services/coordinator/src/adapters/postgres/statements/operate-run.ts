import type postgres from 'postgres'
import { type Act, type DoneEntry, requireFirstAct, requireVersion } from '../../../run/action.ts'
import { WAITS_FOR_SLOT } from '../../../run/concurrency.ts'
import {
  notActive,
  notFound,
  notResumable,
  notRetryable,
  notUndoable,
  purged,
  requireData,
  requireLatest,
} from '../../../run/errors.ts'
import type { OperatorAction, OperatorActions } from '../../../run/operator-actions.ts'
import type { Run, RunKey } from '../../../run/run.ts'
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

/**
 * Locks run 0 of a transaction. The lock serializes all actions that start or continue a run of the transaction. Each
 * of them sees which run the previous action has made active, so a transaction has at most one active run.
 */
export async function lockTransaction(
  tx: postgres.TransactionSql,
  process: string,
  transactionId: string,
): Promise<void> {
  await tx`select from "Order_Header" where "Process" = ${process}
    and "TransactionID" = ${transactionId} and "ReplayID" = 0 for update`
}

/**
 * Returns the ReplayID of the latest run of the transaction. The caller must hold a lock from {@link lockRun}.
 *
 * @param requested the `replayId` that was passed to {@link lockRun}. If it was `null`, the locked run is the latest run.
 */
export async function latestReplayId(
  tx: postgres.TransactionSql,
  { Process, TransactionID, ReplayID }: RunKey,
  requested: number | null,
): Promise<number> {
  if (requested === null) return ReplayID
  const [latest] = await tx<{ ReplayID: number }[]>`
    select "ReplayID" from "Order_Header"
    where "Process" = ${Process} and "TransactionID" = ${TransactionID}
    order by "ReplayID" desc limit 1`
  return latest?.ReplayID ?? ReplayID
}

/**
 * Locks a run for the rest of the database transaction. Without a `replayId`, locks the latest run. Under the lock,
 * checks that the run has the required version. If a bulk operation makes the change, also checks that this operation
 * has not changed the transaction before. Because of the lock, no other transition can happen between these checks and
 * the change.
 *
 * @throws {IntegrationError} `transaction_not_found`, `transaction_purged` or `version_moved`.
 * @throws {DoneBefore} if the bulk operation has already changed the run.
 */
export async function lockRun(
  tx: postgres.TransactionSql,
  process: string,
  transactionId: string,
  replayId: number | null,
  act: Act,
): Promise<RunRow> {
  const [row] = await tx<RunRow[]>`
    select * from "Order_Header" h
    where h."Process" = ${process} and h."TransactionID" = ${transactionId}
      and (${replayId}::int is null or h."ReplayID" = ${replayId}::int)
    order by h."ReplayID" desc limit 1 for update`
  if (row === undefined) throw notFound(process, transactionId, replayId)
  if (row.PurgedAt !== null) throw purged()
  requireVersion(row, act)
  if (act.operation !== undefined) {
    // This is a separate statement, so that it sees what was committed while the first statement waited for the lock.
    const [done] = await tx<DoneEntry[]>`
      select "Action", "ReplayID" from "Order_Action"
      where "TransactionID" = ${transactionId} and "Process" = ${process}
        and "OperationID" = ${act.operation.id} and "Outcome" = 'done' limit 1`
    requireFirstAct(row, act.operation, done)
  }
  return row
}
