import type postgres from 'postgres'
import type { ListFilter, Page } from '../../../transaction/transaction-source.ts'
import { runOf, type RunRow } from '../rows.ts'

/** Reads a page of runs, newest first. */
export async function listRuns(
  sql: postgres.Sql,
  process: string,
  { status, since, after, limit }: ListFilter,
): Promise<Page> {
  const rows = await sql<(RunRow & { position: string })[]>`
    select h.*, h."CreatedAt"::text as position from "Order_Header" h
    where h."Process" = ${process} and h."PurgedAt" is null -- repeats the condition of the index "Order_Header_newest"
      and (${status ?? null}::text is null or h."Status" = ${status ?? null}::text)
      and (${since ?? null}::text is null or h."CompletedAt" >= (${since ?? null}::text)::timestamptz
        or (h."CompletedAt" is null and h."UpdatedAt" >= (${since ?? null}::text)::timestamptz))
      and (${after?.createdAt ?? null}::text is null
        or (h."CreatedAt", h."TransactionID", h."ReplayID")
          < ((${after?.createdAt ?? null}::text)::timestamptz, ${after?.transactionId ?? null}::text,
            ${after?.replayId ?? null}::int))
    order by h."CreatedAt" desc, h."TransactionID" desc, h."ReplayID" desc
    limit ${limit + 1}`
  const last = rows.length > limit ? rows[limit - 1] : undefined
  return {
    runs: rows.slice(0, limit).map(runOf),
    next:
      last === undefined
        ? null
        : {
            createdAt: last.position,
            transactionId: last.TransactionID,
            replayId: last.ReplayID,
          },
  }
}
