import type postgres from 'postgres'
import type { RunDetail } from '../../../transaction/transaction-source.ts'
import { attemptOf, type AttemptRow, itemOf, type ItemRow, runOf, type RunRow } from '../rows.ts'

/**
 * Reads a run with its items and attempts; without a `replayId`, the latest run. Returns `null` if there is no
 * such run.
 */
export async function getRun(
  sql: postgres.Sql,
  process: string,
  transactionId: string,
  replayId: number | null,
): Promise<RunDetail | null> {
  const [row] = await sql<(RunRow & { items: ItemRow[]; attempts: AttemptRow[] })[]>`
    select h.*,
      coalesce((select jsonb_agg(to_jsonb(i)) from "Order_Item" i
        where (i."Process", i."TransactionID", i."ReplayID")
          = (h."Process", h."TransactionID", h."ReplayID")), '[]') as items,
      coalesce((select jsonb_agg(to_jsonb(a) order by a."ID") from "Order_Attempt" a
        where (a."Process", a."TransactionID", a."ReplayID")
          = (h."Process", h."TransactionID", h."ReplayID")), '[]') as attempts
    from "Order_Header" h
    where h."Process" = ${process} and h."TransactionID" = ${transactionId}
      and (${replayId}::int is null or h."ReplayID" = ${replayId}::int)
    order by h."ReplayID" desc limit 1`
  return row === undefined
    ? null
    : {
        run: runOf(row),
        items: row.items.map(itemOf),
        attempts: row.attempts.map(attemptOf),
      }
}
