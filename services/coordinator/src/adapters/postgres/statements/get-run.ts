import type postgres from 'postgres'
import { DEFAULT_ATTEMPTS, type RunDetail, type RunParts } from '../../../run/run-detail.ts'
import { isRunOf } from '../predicates.ts'
import { attemptOf, type AttemptRow, itemOf, type ItemRow, runOf, type RunRow } from '../rows.ts'

/**
 * Reads a run with its items and its newest attempts. Without a `replayId`, reads the latest run. Returns `null` if the
 * run does not exist.
 */
export async function getRun(
  sql: postgres.Sql,
  process: string,
  transactionId: string,
  replayId: number | null,
  { attempts = DEFAULT_ATTEMPTS, bodies = true }: RunParts = {},
): Promise<RunDetail | null> {
  const [row] = await sql<
    (RunRow & { items: ItemRow[]; attempts: AttemptRow[]; attemptCount: number })[]
  >`
    select h.*,
      coalesce((select jsonb_agg(i) from (
        select "StepName", "Status", "Attempt", "IdempotencyKey", "ResponseStatus",
          ${bodies ? sql`"ResponseBody", "Data", "State", "Ask"` : sql`null as "ResponseBody", null as "Data"`},
          "Error", "StartedAt", "FinishedAt", "Round", "Report", "Sender"
        from "Order_Item" i
        where ${isRunOf(sql, 'i')} ${typeof bodies === 'object' ? sql`and i."StepName" = ${bodies.step}` : sql``}
      ) i), '[]') as items,
      coalesce((select jsonb_agg(a order by a."ID") from (
        select * from "Order_Attempt" a
        where ${isRunOf(sql, 'a')}
        order by a."ID" desc limit ${attempts}) a), '[]') as attempts,
      (select count(*)::int from "Order_Attempt" a
        where ${isRunOf(sql, 'a')}) as "attemptCount"
    from "Order_Header" h
    where h."Process" = ${process} and h."TransactionID" = ${transactionId}
      and (${replayId}::int is null or h."ReplayID" = ${replayId}::int)
    order by h."ReplayID" desc limit 1`
  return row === undefined
    ? null
    : {
        run: runOf(row),
        lease: {
          LeaseOwner: row.LeaseOwner,
          LeaseUntil: row.LeaseUntil,
          StartedAt: row.StartedAt,
        },
        items: row.items.map(itemOf),
        attempts: row.attempts.map(attemptOf),
        attemptCount: row.attemptCount,
      }
}
