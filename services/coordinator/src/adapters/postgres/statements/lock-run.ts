import type postgres from 'postgres'
import { type Act, type DoneEntry, requireFirstAct, requireVersion } from '../../../run/action.ts'
import { notFound, purged } from '../../../run/errors.ts'
import type { RunKey } from '../../../run/run.ts'
import type { RunRow } from '../rows.ts'

/**
 * Locks run 0 of a transaction. The lock serializes all actions that start or continue a run of the transaction. Each
 * of them sees which run the previous action has made active, so a transaction has at most one active run.
 */
export async function lockTransaction(
  tx: postgres.TransactionSql,
  process: string,
  transactionId: string,
): Promise<void> {
  await tx`select from "Order_Header" where "Process" = ${process}
    and "TransactionID" = ${transactionId} and "ReplayID" = 0 for update`
}

/**
 * Returns the ReplayID of the latest run of the transaction. The caller must hold a lock from {@link lockRun}.
 *
 * @param requested the `replayId` that was passed to {@link lockRun}. If it was `null`, the locked run is the latest run.
 */
export async function latestReplayId(
  tx: postgres.TransactionSql,
  { Process, TransactionID, ReplayID }: RunKey,
  requested: number | null,
): Promise<number> {
  if (requested === null) return ReplayID
  const [latest] = await tx<{ ReplayID: number }[]>`
    select "ReplayID" from "Order_Header"
    where "Process" = ${Process} and "TransactionID" = ${TransactionID}
    order by "ReplayID" desc limit 1`
  return latest?.ReplayID ?? ReplayID
}

/**
 * Locks a run for the rest of the database transaction. Without a `replayId`, locks the latest run. Under the lock,
 * checks that the run has the required version. If a bulk operation makes the change, also checks that this operation
 * has not changed the transaction before. Because of the lock, no other transition can happen between these checks and
 * the change.
 *
 * @throws {IntegrationError} `transaction_not_found`, `transaction_purged` or `version_moved`.
 * @throws {DoneBefore} if the bulk operation has already changed the run.
 */
export async function lockRun(
  tx: postgres.TransactionSql,
  process: string,
  transactionId: string,
  replayId: number | null,
  act: Act,
): Promise<RunRow> {
  const [row] = await tx<RunRow[]>`
    select * from "Order_Header" h
    where h."Process" = ${process} and h."TransactionID" = ${transactionId}
      and (${replayId}::int is null or h."ReplayID" = ${replayId}::int)
    order by h."ReplayID" desc limit 1 for update`
  if (row === undefined) throw notFound(process, transactionId, replayId)
  if (row.PurgedAt !== null) throw purged()
  requireVersion(row, act)
  if (act.operation !== undefined) {
    // This is a separate statement, so that it sees what was committed while the first statement waited for the lock.
    const [done] = await tx<DoneEntry[]>`
      select "Action", "ReplayID" from "Order_Action"
      where "TransactionID" = ${transactionId} and "Process" = ${process}
        and "OperationID" = ${act.operation.id} and "Outcome" = 'done' limit 1`
    requireFirstAct(row, act.operation, done)
  }
  return row
}
