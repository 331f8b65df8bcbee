import type postgres from 'postgres'
import { type Act, requireVersion } from '../../../transaction/action.ts'
import { notFound } from '../../../transaction/errors.ts'
import type { RunRow } from '../rows.ts'

/**
 * Locks a run for the rest of the database transaction; the latest run if no `replayId` is given.
 * The version that the action requires is checked under the lock, so no other transition can come in between.
 *
 * @throws {IntegrationError} `transaction_not_found` or `version_moved`.
 */
export async function lockRun(
  tx: postgres.TransactionSql,
  process: string,
  transactionId: string,
  replayId: number | null,
  act: Act,
): Promise<Pick<RunRow, 'Process' | 'TransactionID' | 'ReplayID' | 'ErasedAt'>> {
  const [row] = await tx<RunRow[]>`
    select * from "Order_Header" h
    where h."Process" = ${process} and h."TransactionID" = ${transactionId}
      and (${replayId}::int is null or h."ReplayID" = ${replayId}::int)
    order by h."ReplayID" desc limit 1 for update`
  if (row === undefined) throw notFound()
  requireVersion(row, act)
  return row
}
