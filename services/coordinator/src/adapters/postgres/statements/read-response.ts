import type postgres from 'postgres'
import type { StoredResponse } from '../../../run/run-detail.ts'
import { isRunOf } from '../predicates.ts'

/** Reads the response of a step. Returns `null` if the run does not exist. */
export async function readResponse(
  sql: postgres.Sql,
  process: string,
  transactionId: string,
  replayId: number | null,
  step: string,
): Promise<StoredResponse | null> {
  const [row] = await sql<StoredResponse[]>`
    select h."ReplayID" as "replayId", h."Realm" as realm, (
      select "ResponseBody" from "Order_Item" i
      where ${isRunOf(sql, 'i')}
        and i."StepName" = ${step}) as body
    from "Order_Header" h
    where h."Process" = ${process} and h."TransactionID" = ${transactionId}
      and (${replayId}::int is null or h."ReplayID" = ${replayId}::int)
    order by h."ReplayID" desc limit 1`
  return row ?? null
}
