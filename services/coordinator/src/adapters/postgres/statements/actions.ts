import type postgres from 'postgres'
import type { Act, ActionKind } from '../../../run/action.ts'

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
