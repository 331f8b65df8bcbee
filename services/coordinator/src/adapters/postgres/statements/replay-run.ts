import { IntegrationError } from '@integration-host/shared/errors'
import type postgres from 'postgres'
import type { Act } from '../../../run/action.ts'
import {
  anotherRunStarted,
  earlierStepNotCompleted,
  parentActive,
  requireData,
  stillActive,
} from '../../../run/errors.ts'
import { idempotencyKey } from '../../../run/item.ts'
import { hasInitialData, type Run } from '../../../run/run.ts'
import type { ProcessOutline, ReplayRequest } from '../../../run/transaction-source.ts'
import { deadlineFromNow, isActive, isRun } from '../predicates.ts'
import { runOf, type RunRow } from '../rows.ts'
import { recordOnChanged } from './actions.ts'
import { lockRun, lockTransaction } from './operate-run.ts'

/** The largest ReplayID, because the column is a PostgreSQL `integer`. */
const MAX_REPLAY_ID = 2_147_483_647

/** Starts the next run of a transaction, with copies of the items before `fromStep`. */
export async function replayRun(
  tx: postgres.TransactionSql,
  process: ProcessOutline,
  transactionId: string,
  { fromStep, latest: expected, initialData, concurrencyKey = null }: ReplayRequest,
  act: Act,
  { sweepMs }: { readonly sweepMs: number },
): Promise<Run> {
  await lockTransaction(tx, process.name, transactionId)
  const latest = await lockRun(tx, process.name, transactionId, null, act)
  if (expected !== null && expected !== latest.ReplayID) throw anotherRunStarted(latest.ReplayID)
  const [active] = await tx<RunRow[]>`
    select * from "Order_Header" h where h."Process" = ${process.name}
      and h."TransactionID" = ${transactionId} and ${isActive(tx)} limit 1`
  if (active !== undefined) throw stillActive(active.ReplayID)
  if (latest.ParentProcess !== null) {
    const [parent] = await tx`
      select from "Order_Header" h where h."Process" = ${latest.ParentProcess}
        and h."TransactionID" = ${latest.ParentTransactionID} and h."ReplayID" = ${latest.ParentReplayID}
        and ${isActive(tx)}`
    if (parent !== undefined) throw parentActive()
  }
  if (latest.ReplayID === MAX_REPLAY_ID)
    throw new IntegrationError('transaction_conflict', 'the transaction has no replay ids left')
  if (initialData === undefined || fromStep !== null) requireData(latest)
  const first = fromStep ?? process.steps[0]
  const replayId = latest.ReplayID + 1
  const isChanged = initialData !== undefined && !hasInitialData(runOf(latest), initialData)
  const data = isChanged ? JSON.stringify(initialData) : null
  const [row] = await tx<RunRow[]>`
    with changed as (
      insert into "Order_Header" ("Process", "TransactionID", "ReplayID", "StepName", "InitialData",
        "InputChanged", "Realm", "Tags", "Priority", "DefinitionVersion", "DeadlineAt", "ConcurrencyKey", "NextSweepAt",
        "ParentProcess", "ParentTransactionID", "ParentReplayID", "ParentPlace")
      select "Process", "TransactionID", ${replayId}, ${first},
        coalesce(${data}::text::jsonb, "InitialData"), ${isChanged}::boolean, "Realm", "Tags", "Priority",
        ${process.version ?? null}::text, ${deadlineFromNow(tx, process)}, ${concurrencyKey}::text,
        now() + ${sweepMs} * interval '1 ms', "ParentProcess", "ParentTransactionID", "ParentReplayID", "ParentPlace"
      from "Order_Header" h where ${isRun(tx, latest)}
      returning *
    ), recorded as (${recordOnChanged(tx, 'replay', act)})
    select * from changed`
  if (row === undefined) throw new Error('the locked run was deleted')
  const before = process.steps.slice(0, process.steps.indexOf(first))
  const keys = before.map((step) => ({
    step,
    key: idempotencyKey({ ...latest, ReplayID: replayId }, step),
  }))
  const copied = await tx`
    insert into "Order_Item" ("Process", "TransactionID", "ReplayID", "StepName", "Status", "Attempt",
      "IdempotencyKey", "ResponseStatus", "ResponseBody", "Data", "Error", "Ask", "Sender", "StartedAt",
      "FinishedAt")
    select i."Process", i."TransactionID", ${replayId}, i."StepName",
      case i."Status" when 'Skipped' then 'Skipped' else 'Copied' end, 0, k.key,
      i."ResponseStatus", i."ResponseBody", i."Data", i."Error", i."Ask", i."Sender", i."StartedAt", i."FinishedAt"
    from "Order_Item" i join jsonb_to_recordset(${JSON.stringify(keys)}::text::jsonb) as k(step text, key text)
      on k.step = i."StepName"
    where i."Process" = ${latest.Process} and i."TransactionID" = ${latest.TransactionID}
      and i."ReplayID" = ${latest.ReplayID} and i."Status" in ('Completed', 'Copied', 'Skipped')`
  await tx`
    insert into "Order_Family" ("Process", "TransactionID", "ReplayID", "Place", "ChildProcess", "OfReplayID",
      "Prefix", "Total", "Tolerated", "Concurrent", "DeadlineMs", "Cascaded")
    select "Process", "TransactionID", ${replayId}, "Place", "ChildProcess", "OfReplayID", "Prefix", "Total",
      "Tolerated", "Concurrent", "DeadlineMs", true
    from "Order_Family" f where f."Process" = ${latest.Process} and f."TransactionID" = ${latest.TransactionID}
      and f."ReplayID" = ${latest.ReplayID} and ${JSON.stringify(before)}::text::jsonb ? f."Place"`
  if (copied.count < before.length) throw earlierStepNotCompleted()
  return runOf(row)
}
