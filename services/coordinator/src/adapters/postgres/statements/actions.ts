import type postgres from 'postgres'
import type {
  Act,
  Action,
  ActionFilter,
  ActionKind,
  RejectedAction,
} from '../../../transaction/action.ts'

/**
 * The part of a statement that records an action on each row of its CTE `changed`, in the statement of the action
 * itself. Only a change that is committed has an entry, and it has one always.
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

/** Records an action that was rejected. The entry has the realm of the transaction, if there is one. */
export async function recordRejected(
  sql: postgres.Sql,
  { kind, act, Process, TransactionID, ReplayID, Outcome }: RejectedAction,
): Promise<void> {
  await sql`
    insert into "Order_Action" ("KeyID", "Person", "Action", "Process", "TransactionID", "ReplayID",
      "Realm", "Reason", "Outcome")
    values (${act.by.keyId}, ${act.by.person}, ${kind}, ${Process}, ${TransactionID}, ${ReplayID},
      (select "Realm" from "Order_Header" where "Process" = ${Process}
        and "TransactionID" = ${TransactionID} and "ReplayID" = 0),
      ${act.reason}, ${Outcome})`
}

/** Reads entries of the action log, newest first. Each combination of filters is a statement with a plan of its own. */
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
