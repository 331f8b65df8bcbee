import type postgres from 'postgres'
import type { EndPosition } from '../../../run/retention.ts'
import type { ExportPage, ExportRange } from '../../../run/run-export.ts'
import { isoTime } from '@integration-host/postgres/client'
import { isRunOf } from '../predicates.ts'
import {
  attemptOf,
  type AttemptRow,
  itemOf,
  type ItemRow,
  positionAfter,
  runOf,
  type RunRow,
} from '../rows.ts'

export async function exportEnd(
  sql: postgres.Sql,
  wanted: string | null,
  { exportLagMs }: { readonly exportLagMs: number },
): Promise<string> {
  const [row] = await sql<{ end: string }[]>`
    select date_trunc('milliseconds', least((${wanted}::text)::timestamptz,
      now() - ${exportLagMs} * interval '1 ms'))::text as end`
  return isoTime(row?.end ?? '')
}

/** Reads a page from the index `Order_Header_completed`. */
export async function exportPage(
  sql: postgres.Sql,
  { process, since, until }: ExportRange,
  after: EndPosition,
  limit: number,
): Promise<ExportPage> {
  const rows = await sql<
    (RunRow & { position: string; items: ItemRow[]; attempts: AttemptRow[] })[]
  >`
    select h.*, h."CompletedAt"::text as position,
      coalesce((select jsonb_agg(i order by i."StartedAt") from "Order_Item" i
        where ${isRunOf(sql, 'i')}), '[]') as items,
      coalesce((select jsonb_agg(a order by a."ID") from "Order_Attempt" a
        where ${isRunOf(sql, 'a')}), '[]') as attempts
    from "Order_Header" h
    where h."Process" = ${process} and h."CompletedAt" is not null and h."PurgedAt" is null
      and (h."CompletedAt", h."TransactionID", h."ReplayID")
        > ((${after.completedAt}::text)::timestamptz, ${after.transactionId}::text, ${after.replayId}::int)
      and h."CompletedAt" >= (${since ?? after.completedAt}::text)::timestamptz
      and h."CompletedAt" < (${until}::text)::timestamptz
    order by h."CompletedAt", h."TransactionID", h."ReplayID" limit ${limit}`
  return {
    runs: rows.map((row) => ({
      run: runOf(row),
      items: row.items.map(itemOf),
      attempts: row.attempts.map(attemptOf),
    })),
    next: positionAfter(rows, limit),
  }
}
