/** Conditions that several statements share. Each names the columns of `"Order_Header"`, aliased `h`. */
import type postgres from 'postgres'
import type { RunKey } from '../../transaction/run.ts'
import { activeStatuses } from '../../transaction/status.ts'

type Sql = postgres.Sql | postgres.TransactionSql

const ACTIVE = `h."Status" in (${activeStatuses.map((status) => `'${status}'`).join(', ')})`

/** The run is not over. The statuses are literals, not parameters, so that every execution uses the same plan. */
export const isActive = (sql: Sql) => sql.unsafe(ACTIVE)

/** The run has no live lease: it has none, or its lease has expired. */
export const isUnleased = (sql: Sql) => sql`(h."LeaseUntil" is null or h."LeaseUntil" <= now())`

/** The row is this run. */
export const isRun = (sql: Sql, key: RunKey) =>
  sql`h."Process" = ${key.Process} and h."TransactionID" = ${key.TransactionID} and h."ReplayID" = ${key.ReplayID}`

/**
 * The row is the run that a row of `alias` names, found with one lookup in the primary key for each: joined as
 * a set, the planner reads all active rows for every batch. `renewLeases` uses it under LATERAL with FOR
 * UPDATE, which locks the rows in key order.
 */
export const isRunOf = (sql: Sql, alias: 'w' | 'd' | 'l' | 'm' | 'held' | 'picked') => {
  const other = sql(alias)
  return sql`h."Process" = ${other}."Process" and h."TransactionID" = ${other}."TransactionID"
    and h."ReplayID" = ${other}."ReplayID"`
}

/**
 * True for every row of a batch. PostgreSQL expects a hundred rows from `json_to_recordset`, so reading a small
 * table whole looks cheaper than a lookup by key for each, and the prepared plan stays when the table has
 * grown. Two bounds make it expect one row (DEFAULT_RANGE_INEQ_SEL in its sources).
 */
export const areFew = (sql: Sql) => sql`n between 0 and 1000000`
