import type postgres from 'postgres'
import type { Transition } from '../../../run/progress.ts'
import { idempotencyKey, KEPT_ROUNDS, REPEATED } from '../../../run/item.ts'
import { isOver } from '../../../run/status.ts'
import { outcomeOf, PARENT_RECHECK_MS, waitsForChildren } from '../../../run/transitions.ts'
import type {
  AnnouncedRun,
  Lease,
  NewWebhook,
  RunState,
  WebhooksOf,
} from '../../../run/transaction-source.ts'
import { areFew, isRunOf } from '../predicates.ts'
import { type RecordedBatch, stateOf } from '../rows.ts'
import { insertEntries } from './entries.ts'
import { hasNoRun, webhookRows } from './webhooks.ts'

/**
 * The column `NextSweepAt` is rewritten only if less than this share of the sweep interval remains. The column is
 * indexed, so each rewrite also writes the index. The exact time does not matter, because the sweeper is needed only if
 * the message after a commit is lost.
 */
const MIN_REMAINING_SWEEP = 2 / 3

type Sql = postgres.Sql | postgres.TransactionSql

interface Outcome {
  readonly lease: Lease
  readonly transition: Transition
}

/**
 * Records the outcomes of many leased steps in one statement, with their items and attempts. The result is
 * `null` for each step whose lease was lost.
 */
export async function recordOutcomes(
  sql: Sql,
  outcomes: readonly Outcome[],
  {
    leaseMs,
    sweepMs,
    webhooksOf,
  }: {
    readonly leaseMs: number
    readonly sweepMs: number
    readonly webhooksOf: WebhooksOf | null
  },
): Promise<(RunState | null)[]> {
  const webhooks =
    webhooksOf === null
      ? []
      : outcomes.flatMap(({ lease, transition }, n) =>
          webhooksOf(announced(lease, transition)).map((webhook) => ({ ...webhook, n })),
        )
  const entries = outcomes.flatMap(({ transition }, n) =>
    (transition.entries ?? []).map((entry) => ({ ...entry, n })),
  )
  // The result is one row for the whole batch, because all recorded outcomes have the same time.
  const [batch] = await sql<[RecordedBatch]>`
    with done as (
      select * from json_to_recordset(${outcomesJson(outcomes, { leaseMs, sweepMs })}::text::json) as d(
        n int, "Process" text, "TransactionID" text, "ReplayID" int, step text, version int, owner text,
        key text, status text, "stepName" text, attempt int, "delayMs" float8, "sweepMs" float8,
        "waitingFor" text, "lastError" text, "errorClass" text, "isOver" boolean, "isInDoubt" boolean,
        "itemStatus" text, "isUndo" boolean, outcome text, "responseStatus" int, "responseBody" text, data jsonb, "itemError" text, ask jsonb, "isParked" boolean,
        "leasedMs" float8, "soonMs" float8, round int, state jsonb, report jsonb, ran int, "startedAt" timestamptz, method text, url text,
        "traceId" text, "responseId" text)
      where ${areFew(sql)}
      order by "Process", "TransactionID", "ReplayID"
    ), moved as (
      update "Order_Header" h set
        "Status" = d.status, "StepName" = d."stepName", "Version" = h."Version" + 1,
        "LeaseOwner" = case when d."leasedMs" is not null then d.owner end,
        "LeaseUntil" = now() + d."leasedMs" * interval '1 ms',
        "StartedAt" = case when d."leasedMs" is not null then now() end,
        "Attempt" = d.attempt, "InDoubt" = d."isInDoubt", "WaitingFor" = d."waitingFor",
        "LastError" = d."lastError", "ErrorClass" = d."errorClass",
        "NextAttemptAt" = case when not d."isOver" then now() + d."delayMs" * interval '1 ms' end,
        -- NextSweepAt is indexed, so it is rewritten only if necessary. The sweeper ignores leased runs.
        "NextSweepAt" = case
          when d."sweepMs" is null or h."NextSweepAt" - now() between d."soonMs" * interval '1 ms'
            and d."sweepMs" * interval '1 ms' then h."NextSweepAt"
          else now() + d."sweepMs" * interval '1 ms' end,
        "SweepCount" = 0, "UpdatedAt" = now(), "CompletedAt" = case when d."isOver" then now() end
      from done d
      where ${isRunOf(sql, 'd')} and h."Version" = d.version and h."LeaseOwner" = d.owner
      returning d.n, d.step, d.key, d."itemStatus", d."isUndo", d.outcome, d."responseStatus", d."responseBody", d.data,
        d."itemError", d.ask, d."isParked", d.round, d.state, d.report, d.ran, d."startedAt", d.method, d.url,
        d."traceId", d."responseId", h."Process", h."TransactionID", h."ReplayID",
        h."ErrorClass", h."NextAttemptAt"
        ${webhooks.length === 0 ? sql`` : sql`, h."Realm"`}
    ), items as (
      insert into "Order_Item" as i ("Process", "TransactionID", "ReplayID", "StepName", "Status",
        "Attempt", "IdempotencyKey", "ResponseStatus", "ResponseBody", "Data", "Error",
        "Ask", "Round", "State", "Report", "StartedAt", "FinishedAt")
      select "Process", "TransactionID", "ReplayID", step, "itemStatus", ran, key,
        "responseStatus", "responseBody", data, "itemError", ask, round, state, report, "startedAt",
        case when "isParked" is null then now() end
      from moved where "itemStatus" is not null and "isUndo" is null
      on conflict ("Process", "TransactionID", "ReplayID", "StepName") do update set
        "Status" = excluded."Status", "Attempt" = excluded."Attempt",
        "IdempotencyKey" = excluded."IdempotencyKey",
        "Round" = coalesce(excluded."Round", i."Round"),
        "Report" = coalesce(excluded."Report", i."Report"),
        "State" = case when excluded."Round" is null then i."State" else excluded."State" end,
        "ResponseStatus" = excluded."ResponseStatus", "ResponseBody" = excluded."ResponseBody",
        "Data" = excluded."Data", "Error" = excluded."Error", "Ask" = coalesce(excluded."Ask", i."Ask"),
        "StartedAt" = excluded."StartedAt", "FinishedAt" = excluded."FinishedAt"
        where i."Status" <> 'Completed'
          -- Only the end of the place replaces an event that was received early.
          and (i."Status" <> 'Received' or excluded."Status" in ('Completed', 'Skipped'))
    ), attempts as (
      insert into "Order_Attempt" ("Process", "TransactionID", "ReplayID", "StepName", "Attempt",
        "Outcome", "ResponseStatus", "Error", "Method", "Url", "TraceID", "ResponseID", "StartedAt",
        "FinishedAt")
      select "Process", "TransactionID", "ReplayID", step, ran,
        outcome, "responseStatus", "itemError", method, url, "traceId", "responseId", "startedAt", now()
      from moved where "itemStatus" <> 'Skipped' and "isParked" is null
    )${outcomes.some(({ transition }) => transition.item?.round !== undefined) ? deleteOldRounds(sql) : sql``}${outcomes.some(({ transition }) => transition.isUndo) ? markUndone(sql) : sql``}${entries.length === 0 ? sql`` : insertEntries(sql, entries)}${webhooks.length === 0 ? sql`` : insertWebhooks(sql, webhooks)}
    select now() as "at", coalesce(json_agg(n), '[]') as numbers,
      json_object_agg(n, "NextAttemptAt") filter (where "NextAttemptAt" > now()) as later
    from moved`
  const numbers = new Set(batch.numbers)
  return outcomes.map(({ lease, transition }, n) =>
    numbers.has(n) ? stateOf(lease, transition, n, batch) : null,
  )
}

/**
 * Returns the outcomes as JSON. Members that are null are left out: most are null, and json_to_recordset reads a missing
 * member as null.
 */
const outcomesJson = (
  outcomes: readonly Outcome[],
  { leaseMs, sweepMs }: { readonly leaseMs: number; readonly sweepMs: number },
): string =>
  JSON.stringify(
    outcomes.map(({ lease, transition }, n) => ({
      n,
      Process: lease.Process,
      TransactionID: lease.TransactionID,
      ReplayID: lease.ReplayID,
      step: lease.step,
      version: lease.version,
      owner: lease.owner,
      ran:
        transition.item?.ask === undefined && transition.item?.status !== 'Skipped'
          ? lease.attempt
          : 0,
      startedAt: lease.startedAt,
      key: idempotencyKey(lease, lease.step, transition.item?.round?.number ?? lease.round),
      round: transition.item?.round?.number,
      state: transition.item?.round?.state,
      report: transition.item?.report,
      status: transition.status,
      stepName: transition.stepName,
      attempt: transition.attempt,
      delayMs: transition.delayMs,
      waitingFor: transition.waitingFor ?? undefined,
      lastError: transition.lastError ?? undefined,
      errorClass: transition.errorClass ?? undefined,
      isOver: isOver(transition.status),
      isInDoubt: transition.isInDoubt,
      sweepMs: transition.continues === true ? undefined : sweepFromMs(transition) + sweepMs,
      soonMs: sweepFromMs(transition) + sweepMs * MIN_REMAINING_SWEEP,
      leasedMs: transition.continues === true ? leaseMs : undefined,
      itemStatus: transition.item?.status,
      isUndo: transition.isUndo,
      outcome: transition.item === null ? undefined : outcomeOf(transition),
      itemError: transition.item?.error ?? undefined,
      ask: transition.item?.ask ?? undefined,
      isParked: transition.item?.ask === undefined ? undefined : true,
      data: transition.item?.data,
      responseStatus: transition.item?.response?.status,
      responseBody: transition.item?.response?.body,
      method: transition.call?.method,
      url: transition.call?.url,
      traceId: transition.call?.traceId,
      responseId: transition.call?.responseId ?? undefined,
    })),
  )

/** Returns the time from which the interval of the next sweep counts. A waiting run is looked at again soon. */
const sweepFromMs = (transition: Transition): number => {
  if (waitsForChildren(transition)) return PARENT_RECHECK_MS
  return transition.item?.ask === undefined ? (transition.delayMs ?? 0) : 0
}

/**
 * Returns the part of the statement that deletes the attempts of old rounds. The attempt that the statement inserts is not
 * visible to this part, so one attempt less is left.
 */
const deleteOldRounds = (sql: Sql) => sql`
    , old as (
      delete from "Order_Attempt" h using moved m, lateral (
        select "ID" from "Order_Attempt" a
        where (a."Process", a."TransactionID", a."ReplayID") = (m."Process", m."TransactionID", m."ReplayID")
          and a."StepName" = m.step and a."Outcome" = ${REPEATED}
        order by a."ID" desc offset ${KEPT_ROUNDS - 1}) o
      where m.round is not null and ${isRunOf(sql, 'm')} and h."ID" = o."ID"
    )`

/** Returns the part of the statement that marks the items of undone steps. */
const markUndone = (sql: Sql) => sql`
    , undone as (
      update "Order_Item" h set "Status" = 'Undone', "FinishedAt" = now()
      from moved m where ${isRunOf(sql, 'm')} and h."StepName" = m.step
        and m."isUndo" and m."itemStatus" = 'Undone'
    )`

/** Returns the part of the statement that stores the webhooks of the recorded outcomes. */
const insertWebhooks = (sql: Sql, webhooks: readonly (NewWebhook & { n: number })[]) => sql`
    , webhooks as (
      insert into "Order_Webhook"
        ("Receiver", "Realm", "OrderedBy", "TransactionID", "InitialData")
      select w."Receiver", m."Realm", coalesce(m."Realm", w."Lane"), w."TransactionID",
        w."InitialData"
      from json_to_recordset(${webhookRows(webhooks)}::text::json) as w(n int, k int,
        "Receiver" text, "Lane" text, "TransactionID" text collate "C", "InitialData" jsonb)
      join moved m on m.n = w.n
      where ${hasNoRun(sql)}
      order by k
      on conflict do nothing
    )`

const announced = (
  { Process, TransactionID, ReplayID, version }: Lease,
  { status, stepName, isInDoubt, errorClass, lastError }: Transition,
): AnnouncedRun => ({
  Process,
  TransactionID,
  ReplayID,
  Status: status,
  StepName: stepName,
  Version: version + 1,
  InDoubt: isInDoubt,
  ErrorClass: errorClass,
  LastError: lastError,
})
