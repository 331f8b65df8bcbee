import type postgres from 'postgres'
import type { RunsPage, RunSummary } from '../../../run/run-detail.ts'

/** Reads the runs of a transaction without their data, the latest first. */
export const listReplays = (
  sql: postgres.Sql,
  process: string,
  transactionId: string,
  { before, limit }: RunsPage,
): Promise<RunSummary[]> =>
  sql<RunSummary[]>`
    select "ReplayID", "Status", "StepName", "ErrorClass", "InDoubt", "InputChanged", "DefinitionVersion",
      "Realm", "Version", "CreatedAt", "UpdatedAt", "CompletedAt", "PurgedAt"
    from "Order_Header"
    where "Process" = ${process} and "TransactionID" = ${transactionId}
      and (${before ?? null}::int is null or "ReplayID" < ${before ?? null}::int)
    order by "ReplayID" desc limit ${limit}`
