import type postgres from 'postgres'
import type {
  Act,
  Action,
  ActionFilter,
  ActionKind,
  ActionWithoutChange,
} from '../../../run/action.ts'

/**
 * Returns the CTE that records an action on each row of the CTE `changed`. The CTE is part of the statement that makes
 * the change, so that the action is recorded if and only if the change is committed.
 */
export const recordOnChanged = (
  sql: postgres.Sql | postgres.TransactionSql,
  kind: ActionKind,
  { by, reason, operation }: Pick<Act, 'by' | 'reason' | 'operation'>,
  outcome = 'done',
) => sql`
  insert into "Order_Action" ("KeyID", "Person", "Action", "Process", "TransactionID", "ReplayID",
    "Realm", "Reason", "Outcome", "OperationID")
  select ${by.keyId}, ${by.person}, ${kind}, "Process", "TransactionID", "ReplayID", "Realm",
    ${reason}, ${outcome}, ${operation?.id ?? null}
  from changed`

/** Records a rejected action, or a read of data. The entry has the realm of the transaction, if the transaction has one. */
export async function recordWithoutChange(
  sql: postgres.Sql,
  { kind, act, Process, TransactionID, ReplayID, Outcome }: ActionWithoutChange,
): Promise<void> {
  await sql`
    insert into "Order_Action" ("KeyID", "Person", "Action", "Process", "TransactionID", "ReplayID",
      "Realm", "Reason", "Outcome")
    values (${act.by.keyId}, ${act.by.person}, ${kind}, ${Process}, ${TransactionID}, ${ReplayID},
      (select "Realm" from "Order_Header" where "Process" = ${Process}
        and "TransactionID" = ${TransactionID} and "ReplayID" = 0),
      ${act.reason}, ${Outcome})`
}

/**
 * Reads entries of the action log, newest first. Each combination of filters is a separate statement with its own plan.
 */
export function listActions(
  sql: postgres.Sql,
  { process, transactionId, before, limit }: ActionFilter,
): Promise<Action[]> {
  return sql<Action[]>`
    select "ID"::float8 as "ID", "At", "KeyID", "Person", "Action", "Process", "TransactionID",
      "ReplayID", "Realm", "Reason", "Outcome", "OperationID"
    from "Order_Action" a
    where true ${process === undefined ? sql`` : sql`and "Process" = ${process}`}
      ${transactionId === undefined ? sql`` : sql`and "TransactionID" = ${transactionId}`}
      ${before === undefined ? sql`` : sql`and a."ID" < ${before}`}
    order by a."ID" desc limit ${limit}`
}
