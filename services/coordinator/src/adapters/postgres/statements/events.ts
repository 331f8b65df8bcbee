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
  storedData,
  waitingFor,
} from '../../../run/events.ts'
import { idempotencyKey } from '../../../run/item.ts'
import { keyText, type Run, type RunKey, runKey } from '../../../run/run.ts'
import { areFew, isActive, isRun, isRunOf } from '../predicates.ts'
import { itemOf, type ItemRow, type Numbered, runOf, type RunRow, stateColumns } from '../rows.ts'
import { lockRun } from './operate-run.ts'

type Tx = postgres.TransactionSql

/** The assignments of a run that moves on to the place `following`; the run is completed if there is none. */
export const movedOn = (tx: Tx, following: postgres.Fragment, sweepMs: number) => tx`
  "Status" = case when ${following} is null then 'Completed' else 'Running' end,
  "StepName" = coalesce(${following}, h."StepName"), "Version" = h."Version" + 1, "Attempt" = 0,
  "WaitingFor" = null, "LastError" = null, "ErrorClass" = null,
  "NextAttemptAt" = case when ${following} is not null then now() end,
  "NextSweepAt" = now() + ${sweepMs} * interval '1 ms', "SweepCount" = 0, "UpdatedAt" = now(),
  "CompletedAt" = case when ${following} is null then now() end`

/** An event for a run. A `replayId` of `null` means the latest run. */
export interface Signal {
  readonly at: EventPlace
  readonly transactionId: string
  readonly replayId: number | null
  readonly event: NewEvent
  readonly act: Act
}

interface Times {
  readonly sweepMs: number
}
const NO_RESULTS: ReadonlyMap<number, SignalResult> = new Map()

/**
 * Delivers events to runs that wait for exactly them, and returns one result for each. The result is `null` for an event
 * that changed nothing: {@link signalRun} then decides what becomes of it. A run that another database transaction has
 * locked is skipped, so that no event of the batch waits for the run of another one.
 */
export async function signalWaiting(
  tx: Tx,
  signals: readonly Signal[],
  times: Times,
): Promise<(SignalResult | null)[]> {
  const wanted = signals.map(({ at, transactionId, replayId, act }, n) => ({
    n,
    process: at.process,
    id: transactionId,
    replay: replayId,
    waits: waitingFor(at),
    version: act.ifVersion,
  }))
  const locked = await tx<Numbered<RunKey>[]>`
    select w.n, h."Process", h."TransactionID", h."ReplayID"
    from json_to_recordset(${JSON.stringify(wanted)}::text::json)
      as w(n int, process text, id text, replay int, waits text, version int), "Order_Header" h
    where ${areFew(tx)} and h."Process" = w.process and h."TransactionID" = w.id
      and h."ReplayID" = coalesce(w.replay, (
        select r."ReplayID" from "Order_Header" r
        where r."Process" = w.process and r."TransactionID" = w.id
        order by r."ReplayID" desc limit 1))
      and h."Status" = 'Waiting' and h."WaitingFor" = w.waits
      and (w.version is null or h."Version" = w.version)
    for update of h skip locked`
  // Of two events of a run, the first one of the batch is stored.
  const firsts = new Map(locked.toSorted((a, b) => b.n - a.n).map((run) => [keyText(run), run]))
  const events = [...firsts.values()].map((run) => ({ ...(signals[run.n] as Signal), run })) // n is its index
  const results = events.length === 0 ? NO_RESULTS : await storeEvents(tx, events, times)
  return signals.map((_, n) => results.get(n) ?? null)
}

/**
 * Stores an event as the item of its place. Moves the run on if it waits there.
 *
 * @throws {IntegrationError} `transaction_not_found`, `transaction_purged` or `version_moved`
 */
export async function signalRun(tx: Tx, signal: Signal, times: Times): Promise<SignalResult> {
  const { at, transactionId, replayId, act } = signal
  const before = await lockRun(tx, at.process, transactionId, replayId, act)
  const stored = await storeEvents(tx, [{ ...signal, run: { ...before, n: 0 } }], times)
  const [result] = stored.values()
  if (result !== undefined) return result
  const [row] = await tx<{ item: ItemRow }[]>`
    select to_jsonb(h) as item from "Order_Item" h where ${isRun(tx, before)} and h."StepName" = ${at.place}`
  const item = row === undefined ? null : itemOf(row.item)
  return { isAccepted: false, hasMoved: false, run: runOf(before), item }
}

/**
 * Stores events of locked runs, and returns the results of those that are accepted, by their number. The statement runs
 * after the lock, so it sees every event that was stored before.
 */
async function storeEvents(
  tx: Tx,
  signals: readonly (Signal & { readonly run: Numbered<RunKey> })[],
  { sweepMs }: Times,
): Promise<ReadonlyMap<number, SignalResult>> {
  const events = signals.map(({ at, event, act, run }) => ({
    ...runKey(run),
    n: run.n,
    place: at.place,
    next: at.next,
    waits: waitingFor(at),
    key: idempotencyKey(run, at.place),
    data: storedData(event, run),
    sender: senderOf(act, event),
  }))
  const byNumber = new Map(events.map((event) => [event.n, event]))
  const rows = await tx<(Numbered<SignalResult['run']> & { hasMoved: boolean; at: string })[]>`
    with event as (
      select * from json_to_recordset(${JSON.stringify(events)}::text::json) as e(n int, "Process" text,
        "TransactionID" text, "ReplayID" int, place text, next text, waits text, key text, data jsonb,
        sender jsonb)
      where ${areFew(tx)}
    ), item as (
      insert into "Order_Item" as i ("Process", "TransactionID", "ReplayID", "StepName", "Status",
        "Attempt", "IdempotencyKey", "Data", "Sender", "StartedAt", "FinishedAt")
      select h."Process", h."TransactionID", h."ReplayID", e.place,
        case when h."WaitingFor" = e.waits then 'Completed' else 'Received' end,
        0, e.key, e.data, e.sender, now(), now()
      from event e, "Order_Header" h
      where ${isRunOf(tx, 'e')} and ${isActive(tx)} and h."Status" <> 'Undoing'
      on conflict ("Process", "TransactionID", "ReplayID", "StepName") do update set
        "Status" = excluded."Status", "Attempt" = 0, "ResponseStatus" = null, "ResponseBody" = null,
        "Data" = excluded."Data", "Error" = null, "Sender" = excluded."Sender",
        "FinishedAt" = excluded."FinishedAt"
        where i."Status" not in ${tx([...decidedStatuses])}
      returning i."Process", i."TransactionID", i."ReplayID", i."StepName"
    ), accepted as (
      select e.* from event e, item h where ${isRunOf(tx, 'e')} and h."StepName" = e.place
    ), changed as (
      select e.n, e.sender, h.* from "Order_Header" h, accepted e where ${isRunOf(tx, 'e')}
    ), moved as (
      update "Order_Header" h set ${movedOn(tx, tx`e.next`, sweepMs)}
      from accepted e
      where ${isRunOf(tx, 'e')} and h."Status" = 'Waiting' and h."WaitingFor" = e.waits
      returning e.n, h.*
    ), slots as (
      -- The run gets a slot when it is claimed again.
      delete from "Order_Slot" h using moved m where ${isRunOf(tx, 'm')}
    ), recorded as (
      insert into "Order_Action" ("KeyID", "Person", "Action", "Process", "TransactionID", "ReplayID",
        "Realm", "Reason", "Outcome")
      select sender->>'KeyID', sender->>'Person', 'signal', "Process", "TransactionID", "ReplayID",
        "Realm", sender->>'Reason', 'done'
      from changed
    )
    select h.n, true as "hasMoved", now() as at, ${stateColumns(tx)} from moved h union all
    select h.n, false, now(), ${stateColumns(tx)} from changed h
    where not exists (select from moved m where m.n = h.n)`
  return new Map(
    rows.map(({ n, hasMoved, at: FinishedAt, ...run }): [number, SignalResult] => {
      const {
        place: StepName,
        data: Data,
        sender: Sender,
      } = byNumber.get(n) as (typeof events)[number]
      const Status = hasMoved ? 'Completed' : 'Received'
      const item = { StepName, Status, Data, FinishedAt, Sender } as const
      return [n, { isAccepted: true, hasMoved, run, item }]
    }),
  )
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
