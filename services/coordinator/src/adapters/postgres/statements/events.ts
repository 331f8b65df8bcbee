import type postgres from 'postgres'
import type { Act } from '../../../run/action.ts'
import {
  decidedStatuses,
  EVENT_RECHECK_MS,
  EVENT_TIMED_OUT,
  EVENT_TIMEOUT,
  type EventPlace,
  type NewEvent,
  senderOf,
  type SignalResult,
  waitingFor,
} from '../../../run/events.ts'
import { idempotencyKey } from '../../../run/item.ts'
import type { Run, RunKey } from '../../../run/run.ts'
import { isActive, isRun, isRunOf } from '../predicates.ts'
import { itemOf, type ItemRow, runOf, type RunRow } from '../rows.ts'
import { recordOnChanged } from './actions.ts'
import { lockRun } from './lock-run.ts'

type Tx = postgres.TransactionSql

/** The assignments of a run that moves on to the place `following`; the run is completed if there is none. */
export const movedOn = (tx: Tx, following: postgres.Fragment, sweepMs: number) => tx`
  "Status" = case when ${following} is null then 'Completed' else 'Running' end,
  "StepName" = coalesce(${following}, h."StepName"), "Version" = h."Version" + 1, "Attempt" = 0,
  "WaitingFor" = null, "LastError" = null, "ErrorClass" = null,
  "NextAttemptAt" = case when ${following} is not null then now() end,
  "NextSweepAt" = now() + ${sweepMs} * interval '1 ms', "SweepCount" = 0, "UpdatedAt" = now(),
  "CompletedAt" = case when ${following} is null then now() end`

/** Stores an event as the item of its place. Moves the run on if it waits there. */
export async function signalRun(
  tx: Tx,
  at: EventPlace,
  transactionId: string,
  replayId: number | null,
  event: NewEvent,
  act: Act,
  { sweepMs }: { readonly sweepMs: number },
): Promise<SignalResult> {
  const { process, place, next } = at
  const waits = waitingFor(at)
  const before = await lockRun(tx, process, transactionId, replayId, act)
  const data = event.data === null ? null : JSON.stringify(event.data)
  // The statements after the lock see every event that was stored before it.
  const [row] = await tx<(RunRow & { item: ItemRow; hasMoved: boolean })[]>`
    with item as (
      insert into "Order_Item" as i ("Process", "TransactionID", "ReplayID", "StepName", "Status",
        "Attempt", "IdempotencyKey", "Data", "Sender", "StartedAt", "FinishedAt")
      select h."Process", h."TransactionID", h."ReplayID", ${place},
        case when h."WaitingFor" = ${waits} then 'Completed' else 'Received' end,
        0, ${idempotencyKey(before, place)}, ${data}::text::jsonb,
        ${JSON.stringify(senderOf(act, event))}::text::jsonb, now(), now()
      from "Order_Header" h where ${isRun(tx, before)} and ${isActive(tx)} and h."Status" <> 'Undoing'
      on conflict ("Process", "TransactionID", "ReplayID", "StepName") do update set
        "Status" = excluded."Status", "Attempt" = 0, "ResponseStatus" = null, "ResponseBody" = null,
        "Data" = excluded."Data", "Error" = null, "Sender" = excluded."Sender",
        "FinishedAt" = excluded."FinishedAt"
        where i."Status" not in ${tx([...decidedStatuses])}
      returning i.*
    ), changed as (
      select h.* from "Order_Header" h, item i where ${isRunOf(tx, 'i')}
    ), moved as (
      update "Order_Header" h set ${movedOn(tx, tx`${next}::text`, sweepMs)}
      from item i where ${isRunOf(tx, 'i')} and h."Status" = 'Waiting'
        and h."WaitingFor" = ${waits}
      returning h.*
    ), slots as (
      -- The run gets a slot when it is claimed again.
      delete from "Order_Slot" h using moved m where ${isRunOf(tx, 'm')}
    ), recorded as (${recordOnChanged(tx, 'signal', act)})
    select r.*, to_jsonb(item) as item from item, (
      select true as "hasMoved", * from moved union all
      select false, * from changed where not exists (select from moved)) r`
  if (row !== undefined)
    return { isAccepted: true, hasMoved: row.hasMoved, run: runOf(row), item: itemOf(row.item) }
  const [item] = await tx<{ item: ItemRow }[]>`
    select to_jsonb(h) as item from "Order_Item" h where ${isRun(tx, before)} and h."StepName" = ${place}`
  return {
    isAccepted: false,
    hasMoved: false,
    run: runOf(before),
    item: item === undefined ? null : itemOf(item.item),
  }
}

/**
 * Moves waiting runs on whose event was received or whose time is over, and postpones the next sweep of the others.
 * Returns the runs that were moved. An event that is stored after the run has become `Waiting` moves the run on itself, so
 * it does not matter that this statement cannot see it.
 */
export async function settleWaits(
  tx: Tx,
  places: readonly EventPlace[],
  which: RunKey | { readonly limit: number },
  { sweepMs }: { readonly sweepMs: number },
): Promise<Run[]> {
  const refs = places.map((one) => ({ ...one, waits: waitingFor(one) }))
  const chosen =
    'limit' in which ? tx`h."CompletedAt" is null and h."NextSweepAt" <= now()` : isRun(tx, which)
  const range =
    'limit' in which
      ? tx`order by h."NextSweepAt" limit ${which.limit} for update of h skip locked`
      : tx`for update of h`
  const rows = await tx<RunRow[]>`
    with picked as (
      select h."Process", h."TransactionID", h."ReplayID", r.place, r.next, r."onTimeout",
        coalesce(h."NextAttemptAt" <= now(), false) as "isLate",
        coalesce((select i."Status" = 'Received' from "Order_Item" i
          where ${isRunOf(tx, 'i')} and i."StepName" = r.place), false) as "isReceived"
      from "Order_Header" h
      join json_to_recordset(${JSON.stringify(refs)}::text::json)
        as r(process text, place text, waits text, next text, "onTimeout" text)
        on r.process = h."Process" and r.waits = h."WaitingFor"
      where h."Status" = 'Waiting' and ${chosen}
      ${range}
    ), waits as (
      update "Order_Header" h set "SweepCount" = 0,
        "NextSweepAt" = least(h."NextAttemptAt", now() + ${EVENT_RECHECK_MS} * interval '1 ms')
      from picked p where ${isRunOf(tx, 'p')} and not p."isReceived" and not p."isLate"
    ), failed as (
      update "Order_Header" h set "Version" = h."Version" + 1,
        "Status" = case p."onTimeout" when 'undo' then 'Undoing' else 'Failed' end,
        "ErrorClass" = ${EVENT_TIMEOUT}, "LastError" = ${EVENT_TIMED_OUT}, "WaitingFor" = null,
        "NextAttemptAt" = case p."onTimeout" when 'undo' then now() end, "UpdatedAt" = now(),
        "NextSweepAt" = now() + ${sweepMs} * interval '1 ms', "SweepCount" = 0,
        "CompletedAt" = case p."onTimeout" when 'fail' then now() end
      from picked p where ${isRunOf(tx, 'p')} and not p."isReceived" and p."isLate"
        and p."onTimeout" <> 'continue'
      returning h.*
    ), moved as (
      update "Order_Header" h set ${movedOn(tx, tx`p.next`, sweepMs)}
      from picked p where ${isRunOf(tx, 'p')}
        and (p."isReceived" or (p."isLate" and p."onTimeout" = 'continue'))
      returning h.*
    ), items as (
      update "Order_Item" h set
        "Status" = case when p."isReceived" or p."onTimeout" = 'continue' then 'Completed' else 'Failed' end,
        "Error" = case when not p."isReceived" then ${EVENT_TIMEOUT} end, "FinishedAt" = now()
      from picked p where ${isRunOf(tx, 'p')} and h."StepName" = p.place
        and (p."isReceived" or p."isLate")
    ), slots as (
      delete from "Order_Slot" h using moved m where ${isRunOf(tx, 'm')}
    )
    select * from failed union all select * from moved`
  return rows.map(runOf)
}
