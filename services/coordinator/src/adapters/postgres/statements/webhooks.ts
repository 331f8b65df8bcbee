import { WEBHOOK_PROCESS, WEBHOOK_STEP } from '@integration-host/shared/contracts/events'
import type postgres from 'postgres'
import type { NewWebhook, StartedWebhooks } from '../../../run/transaction-source.ts'
import { runOf, type RunRow } from '../rows.ts'

type Sql = postgres.Sql | postgres.TransactionSql

/** Returns webhooks as JSON rows for an insertion. The column `k` preserves their order. */
export const webhookRows = (webhooks: readonly NewWebhook[]): string =>
  JSON.stringify(webhooks.map((webhook, k) => ({ ...webhook, k })))

/**
 * True for those webhooks of the rows `w` that have no run. A webhook that has a run must not be stored again, because
 * a copy of its event may arrive after the delivery.
 */
export const hasNoRun = (sql: Sql) => sql`not exists (
  select from "Order_Header" r where r."Process" = ${WEBHOOK_PROCESS}
    and r."TransactionID" = w."TransactionID" and r."ReplayID" = 0)`

/** Stores webhooks in the order of the list. */
export async function addWebhooks(sql: Sql, webhooks: readonly NewWebhook[]): Promise<void> {
  if (webhooks.length === 0) return
  await sql`
    insert into "Order_Webhook"
      ("Receiver", "Realm", "OrderedBy", "TransactionID", "InitialData", "At")
    select w."Receiver", w."Realm", coalesce(w."Realm", w."Lane"), w."TransactionID", w."InitialData",
      coalesce(w."At", now())
    from json_to_recordset(${webhookRows(webhooks)}::text::json) as w(k int, "Receiver" text, "Realm" text,
      "Lane" text, "TransactionID" text collate "C", "InitialData" jsonb, "At" timestamptz)
    where ${hasNoRun(sql)}
    order by k
    on conflict do nothing`
}

/**
 * The maximum number of webhook runs of a receiver at a time. It limits the load while the receiver is unavailable and
 * many companies have events for it.
 */
const MAX_RUNS = 1_000

/**
 * The oldest webhook for each pair of `Receiver` and `OrderedBy`. The webhook is found with one lookup in the index,
 * however many webhooks wait after it.
 */
const oldest = (sql: Sql) => sql`
  receiver as (
    (select "Receiver" from "Order_Webhook" order by "Receiver" limit 1)
    union all
    select later."Receiver" from receiver r cross join lateral (
      select "Receiver" from "Order_Webhook" n where n."Receiver" > r."Receiver"
      order by "Receiver" limit 1) later
  ), oldest as (
    select own."TransactionID" from receiver r cross join lateral (
      with recursive first as (
        (select "OrderedBy", "TransactionID" from "Order_Webhook" n
          where n."Receiver" = r."Receiver" order by "OrderedBy", "ID" limit 1)
        union all
        select later.* from first f cross join lateral (
          select "OrderedBy", "TransactionID" from "Order_Webhook" n
          where n."Receiver" = r."Receiver" and n."OrderedBy" > f."OrderedBy"
          order by "OrderedBy", "ID" limit 1) later)
      select * from first limit ${MAX_RUNS}) own)`

/**
 * For each pair of `Receiver` and `OrderedBy`, deletes the oldest webhook if its run has ended. Then queues a run for
 * the webhook that is now the oldest of the pair, if this webhook has no run yet.
 */
export async function startWebhooks(
  sql: postgres.Sql,
  limit: number,
  { sweepMs }: { readonly sweepMs: number },
): Promise<StartedWebhooks> {
  const { count } = await sql`
    with recursive ${oldest(sql)}, done as (
      select w."TransactionID" from "Order_Webhook" w join oldest o using ("TransactionID")
      join "Order_Header" h on h."Process" = ${WEBHOOK_PROCESS}
        and h."TransactionID" = o."TransactionID" and h."ReplayID" = 0
      where h."CompletedAt" is not null
      for update of w skip locked -- another replica deletes the locked rows
    )
    delete from "Order_Webhook" w using done where w."TransactionID" = done."TransactionID"`
  const rows = await sql<RunRow[]>`
    with recursive ${oldest(sql)}
    insert into "Order_Header"
      ("Process", "TransactionID", "StepName", "InitialData", "Realm", "NextSweepAt")
    select ${WEBHOOK_PROCESS}, w."TransactionID", ${WEBHOOK_STEP},
      w."InitialData" || jsonb_build_object('At', w."At"), w."Realm",
      now() + ${sweepMs} * interval '1 ms'
    from "Order_Webhook" w join oldest o using ("TransactionID")
    where ${hasNoRun(sql)}
    order by w."TransactionID" -- two replicas must insert in the same order
    limit ${limit}
    on conflict do nothing
    returning *`
  return { runs: rows.map(runOf), hasMore: count > 0 || rows.length === limit }
}
