import type postgres from 'postgres'
import { notFound } from '../../../transaction/errors.ts'
import type { RunKey } from '../../../transaction/run.ts'
import type { RunRow } from '../rows.ts'

/**
 * Locks a run for the rest of the database transaction; the latest run if no `replayId` is given.
 *
 * @throws {IntegrationError} `transaction_not_found`.
 */
export async function lockRun(
  tx: postgres.TransactionSql,
  process: string,
  transactionId: string,
  replayId: number | null,
): Promise<RunKey> {
  const [row] = await tx<RunRow[]>`
    select * from "Order_Header" h
    where h."Process" = ${process} and h."TransactionID" = ${transactionId}
      and (${replayId}::int is null or h."ReplayID" = ${replayId}::int)
    order by h."ReplayID" desc limit 1 for update`
  if (row === undefined) throw notFound()
  return row
}
