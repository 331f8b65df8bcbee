import type postgres from 'postgres'
import type {
  DeadLetter,
  DeadLetterCounts,
  DeadLetterFilter,
  DeadLetterStore,
  NewDeadLetter,
} from '../../../run/dead-letter.ts'
import { recordOnChanged } from './actions.ts'

/** Inserts the dead letters that are not stored yet, in key order, so that two replicas cannot deadlock. */
export async function addDeadLetters(
  sql: postgres.Sql,
  letters: readonly NewDeadLetter[],
): Promise<readonly void[]> {
  const rows = letters.map((letter) => ({ ...letter, Content: letter.Content.toString('base64') }))
  await sql`
    insert into "Order_DeadLetter" ("Process", "MessageID", "Reason", "TransactionID", "ReplayID",
      "StepName", "Content", "ContentBytes")
    select d."Process", d."MessageID", d."Reason", d."TransactionID", d."ReplayID", d."StepName",
      decode(d."Content", 'base64'), d."ContentBytes"
    from json_to_recordset(${JSON.stringify(rows)}::text::json) as d("Process" text collate "C",
      "MessageID" text collate "C", "Reason" text, "TransactionID" text, "ReplayID" int,
      "StepName" text, "Content" text, "ContentBytes" int)
    order by d."Process", d."MessageID"
    on conflict do nothing`
  return letters.map(() => undefined)
}

/**
 * Joins each row of `d` with run 0 of its transaction to read the realm, which is the same for all runs of a
 * transaction.
 */
const withTransaction = (sql: postgres.Sql) => sql`
  left join "Order_Header" h on h."Process" = d."Process"
    and h."TransactionID" = d."TransactionID" and h."ReplayID" = 0`

const columns = (sql: postgres.Sql, contentBytes: number) => sql`
  d."ID"::float8 as "ID", d."Process", d."MessageID", d."Reason", d."At", d."TransactionID",
  d."ReplayID", d."StepName", substring(d."Content" from 1 for ${contentBytes}) as "Content",
  d."ContentBytes", h."Process" is not null as "isOfTransaction", h."Realm"`

export function listDeadLetters(
  sql: postgres.Sql,
  process: string,
  { before, limit, contentBytes }: DeadLetterFilter,
): Promise<DeadLetter[]> {
  return sql<DeadLetter[]>`
    select ${columns(sql, contentBytes)}
    from "Order_DeadLetter" d ${withTransaction(sql)}
    where d."Process" = ${process} ${before === undefined ? sql`` : sql`and d."ID" < ${before}`}
    order by d."ID" desc limit ${limit}`
}

/** The maximum number of stored dead letters. It bounds the disk space: 10,000 dead letters of 64 KiB are 640 MB. */
const CAPACITY = 10_000

export async function countDeadLetters(sql: postgres.Sql): Promise<DeadLetterCounts> {
  const rows = await sql<{ process: string; count: number }[]>`
    select "Process" as process, count(*)::int as count from "Order_DeadLetter" group by "Process"`
  return { byProcess: new Map(rows.map((row) => [row.process, row.count])), capacity: CAPACITY }
}

export async function removeDeadLetters(
  sql: postgres.Sql,
  ...[process, id, kind, act]: Parameters<DeadLetterStore['removeDeadLetters']>
): Promise<number> {
  const [isRemoved, changed] =
    id === null
      ? [
          sql``,
          sql`
      select ${process}::text as "Process", null::text as "TransactionID", null::int as "ReplayID",
        null::text as "Realm"
      where exists (select from removed)`,
        ]
      : [
          sql`and "ID" = ${id}`,
          sql`
      select d."Process", h."TransactionID", -- null if there is no such transaction
        case when h."TransactionID" is not null then d."ReplayID" end as "ReplayID", h."Realm"
      from removed d ${withTransaction(sql)}`,
        ]
  const { count } = await sql`
    with removed as (
      delete from "Order_DeadLetter" where "Process" = ${process} ${isRemoved}
      returning "Process", "TransactionID", "ReplayID"),
    changed as (${changed}),
    recorded as (${recordOnChanged(sql, kind, act)})
    select from removed`
  return count
}
