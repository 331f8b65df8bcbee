import type { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import type postgres from 'postgres'
import type { Actor } from '../../../transaction/action.ts'
import { isRepeated, storedTags } from '../../../transaction/run.ts'
import type { ProcessOutline, QueueResult } from '../../../transaction/transaction-source.ts'
import { runOf, type RunRow } from '../rows.ts'

/**
 * Queues run 0 of each transaction and returns the results in the order of the transactions. A second statement
 * reads the runs that already exist, to distinguish a repeated request from a request with other data.
 */
export async function enqueueRuns(
  sql: postgres.Sql,
  process: ProcessOutline,
  transactions: readonly QueueTransaction[],
  { sweepMs }: { readonly sweepMs: number },
  by?: Actor,
): Promise<QueueResult[]> {
  const insertion = sql`
    insert into "Order_Header" ("Process", "TransactionID", "StepName", "InitialData", "Realm", "Tags",
      "NextSweepAt")
    select ${process.name}, t."TransactionID", ${process.steps[0]}, coalesce(t."InitialData", 'null'::jsonb),
      t."Realm", t."Tags", now() + ${sweepMs} * interval '1 ms'
    from jsonb_to_recordset(${JSON.stringify(transactions.map(rowOf))}::text::jsonb)
      as t("TransactionID" text, "InitialData" jsonb, "Realm" text, "Tags" jsonb)
    order by t."TransactionID" -- two batches with the same ids must lock them in the same order
    on conflict do nothing
    returning *`
  // Without an actor, the statement is the plain insertion: most transactions are queued by programs.
  const added = await (by === undefined
    ? sql<RunRow[]>`${insertion}`
    : sql<RunRow[]>`
        with changed as (${insertion}),
        recorded as (${recordQueued(sql, by, transactions)})
        select * from changed`)
  const isNew = new Set(added.map(({ TransactionID }) => TransactionID))
  const known = new Map(added.map((row) => [row.TransactionID, runOf(row)]))
  const others = transactions.filter(({ TransactionID }) => !known.has(TransactionID))
  if (others.length > 0) {
    const rows = await sql<RunRow[]>`
      select * from "Order_Header" where "Process" = ${process.name} and "ReplayID" = 0
        and "TransactionID" in (select jsonb_array_elements_text(
          ${JSON.stringify(others.map(({ TransactionID }) => TransactionID))}::text::jsonb))`
    for (const row of rows) known.set(row.TransactionID, runOf(row))
  }
  // An id that is forgotten between the two statements is not known any more, so its transaction is new.
  const forgotten = transactions.filter(({ TransactionID }) => !known.has(TransactionID))
  const again = (
    forgotten.length === 0 ? [] : await enqueueRuns(sql, process, forgotten, { sweepMs }, by)
  ).values()
  return transactions.map((transaction): QueueResult => {
    const run = known.get(transaction.TransactionID)
    if (run === undefined) return again.next().value as QueueResult
    if (isNew.delete(transaction.TransactionID)) return { outcome: 'queued', run }
    return { outcome: isRepeated(run, transaction) ? 'exists' : 'conflict', run }
  })
}

const rowOf = (transaction: QueueTransaction) => {
  const { TransactionID, InitialData, Realm } = transaction
  return { TransactionID, InitialData, Realm, Tags: storedTags(transaction) ?? undefined }
}

/**
 * The reasons are looked up in one JSON object, because joining them to the rows would compare each with each. OFFSET
 * makes PostgreSQL parse the object once instead of once for each row.
 */
const recordQueued = (sql: postgres.Sql, by: Actor, transactions: readonly QueueTransaction[]) => {
  const reasons = Object.fromEntries(
    transactions
      .flatMap(({ TransactionID, Reason }) =>
        Reason === undefined ? [] : [[TransactionID, Reason] as const],
      )
      .toReversed(), // of two lines with the same id, the first one is queued
  )
  return sql`
    insert into "Order_Action" ("KeyID", "Person", "Action", "Process", "TransactionID", "ReplayID",
      "Realm", "Reason", "Outcome")
    select ${by.keyId}, ${by.person}, 'queue', "Process", "TransactionID", "ReplayID", "Realm",
      reasons ->> "TransactionID", 'done'
    from changed, (select ${JSON.stringify(reasons)}::text::jsonb as reasons offset 0) given`
}
