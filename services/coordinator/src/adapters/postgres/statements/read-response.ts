import type postgres from 'postgres'
import type { StoredResponse } from '../../../transaction/run-detail.ts'

/** Reads the response of a step. Returns `null` if there is no such run. */
export async function readResponse(
  sql: postgres.Sql,
  process: string,
  transactionId: string,
  replayId: number | null,
  step: string,
): Promise<StoredResponse | null> {
  const [row] = await sql<StoredResponse[]>`
    select h."Realm" as realm, (
      select "ResponseBody" from "Order_Item" i
      where (i."Process", i."TransactionID", i."ReplayID")
          = (h."Process", h."TransactionID", h."ReplayID")
        and i."StepName" = ${step}) as body
    from "Order_Header" h
    where h."Process" = ${process} and h."TransactionID" = ${transactionId}
      and (${replayId}::int is null or h."ReplayID" = ${replayId}::int)
    order by h."ReplayID" desc limit 1`
  return row ?? null
}
