import type postgres from 'postgres'
import type { Act } from '../../../run/action.ts'
import { notInDoubt, requireData, stepInFlight } from '../../../run/errors.ts'
import { idempotencyKey } from '../../../run/item.ts'
import type { Settlement } from '../../../run/operator-actions.ts'
import type { Run } from '../../../run/run.ts'
import { isOver, isUndo } from '../../../run/status.ts'
import type { ProcessOutline } from '../../../run/transaction-source.ts'
import { settledState } from '../../../run/transitions.ts'
import { deadlineFromNow, isRun, isRunOf, isUnleased } from '../predicates.ts'
import { runOf, type RunRow } from '../rows.ts'
import { recordOnChanged } from './actions.ts'
import { latestReplayId, lockRun, lockTransaction } from './operate-run.ts'

/**
 * Settles a run in doubt. Either completes the item of the due step and continues the run, or makes the step due again.
 * If an ended run has a later run, it stays ended, because a transaction must not have two active runs. If the lease of
 * a lost worker has expired, the worker's attempt is recorded as `in_doubt`.
 */
export async function settleRun(
  tx: postgres.TransactionSql,
  process: ProcessOutline,
  transactionId: string,
  replayId: number | null,
  settlement: Settlement,
  act: Act,
  { sweepMs }: { readonly sweepMs: number },
): Promise<Run> {
  await lockTransaction(tx, process.name, transactionId)
  const before = await lockRun(tx, process.name, transactionId, replayId, act)
  if (!before.InDoubt && before.LeaseUntil === null) throw notInDoubt()
  const [unleased] = await tx`
    select from "Order_Header" h where ${isRun(tx, before)} and ${isUnleased(tx)}`
  if (unleased === undefined) throw stepInFlight()
  requireData(before)
  const isLatest = (await latestReplayId(tx, before, replayId)) === before.ReplayID
  const staysOver = isOver(before.Status) && !isLatest
  const change = staysOver
    ? tx``
    : tx`${continued(tx, settledState(before, process, settlement), sweepMs)}
        ${isOver(before.Status) ? tx`, "DeadlineAt" = ${deadlineFromNow(tx, process)}` : tx``}`
  const step = before.StepName || process.steps[0]
  const isDone = settlement.outcome === 'done'
  // A finished step can be in doubt only because of its undo.
  const isOfUndo =
    isUndo(before.Status) &&
    (
      await tx`select from "Order_Item" h where ${isRun(tx, before)} and h."StepName" = ${step}
      and h."Status" in ('Completed', 'Copied')`
    ).length > 0
  const data = isDone && settlement.data !== null ? JSON.stringify(settlement.data) : null
  const [row] = await tx<RunRow[]>`
    with changed as (
      update "Order_Header" h set "InDoubt" = false, "UpdatedAt" = now() ${change}
      where ${isRun(tx, before)}
      returning h.*
    ), item as (
      insert into "Order_Item" as i ("Process", "TransactionID", "ReplayID", "StepName", "Status",
        "Attempt", "IdempotencyKey", "Data", "StartedAt", "FinishedAt")
      select "Process", "TransactionID", "ReplayID", ${step}, 'Completed', ${before.Attempt}::int,
        ${idempotencyKey(before, step)}, ${data}::text::jsonb, now(), now()
      from changed where ${isDone && !isOfUndo}::boolean
      on conflict ("Process", "TransactionID", "ReplayID", "StepName") do update set
        "Status" = excluded."Status", "Attempt" = excluded."Attempt", "ResponseStatus" = null,
        "ResponseBody" = null, "Data" = excluded."Data", "Error" = null,
        "StartedAt" = excluded."StartedAt", "FinishedAt" = excluded."FinishedAt"
        where i."Status" <> 'Completed'
    ), undone as (
      update "Order_Item" h set "Status" = 'Undone', "FinishedAt" = now()
      from changed where ${isRunOf(tx, 'changed')} and h."StepName" = ${step}
        and ${isDone && isOfUndo}::boolean
    ), lost as (
      insert into "Order_Attempt"
        ("Process", "TransactionID", "ReplayID", "StepName", "Attempt", "Outcome", "StartedAt")
      select "Process", "TransactionID", "ReplayID", ${step}, ${before.Attempt}::int, 'in_doubt',
        coalesce(${before.StartedAt}::timestamptz, now())
      from changed where ${before.LeaseUntil !== null}::boolean
    ), recorded as (${recordOnChanged(tx, 'settle', act, settlement.outcome)})
    select * from changed`
  if (row === undefined) throw new Error('the locked run was deleted')
  return runOf(row)
}

/** The assignments that continue a run, in addition to the assignments that clear its in-doubt flag. */
const continued = (
  tx: postgres.TransactionSql,
  { Status, StepName, Attempt }: Pick<Run, 'Status' | 'StepName' | 'Attempt'>,
  sweepMs: number,
) => tx`
  , "Status" = ${Status}, "StepName" = ${StepName}, "Version" = h."Version" + 1,
  "Attempt" = ${Attempt}, "LeaseOwner" = null, "LeaseUntil" = null, "StartedAt" = null,
  "NextAttemptAt" = case when not ${isOver(Status)}::boolean then now() end,
  "NextSweepAt" = now() + ${sweepMs} * interval '1 ms', "SweepCount" = 0,
  "LastError" = null, "ErrorClass" = null, "WaitingFor" = null,
  "CompletedAt" = case when ${isOver(Status)}::boolean then now() end`
