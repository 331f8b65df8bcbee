/**
 * Conditions that several statements share. Each of them refers to the columns of `"Order_Header"` by the alias
 * `h`.
 */
import type postgres from 'postgres'
import type { RunKey } from '../../run/run.ts'
import {
  activeStatuses,
  WAITS_FOR_CHANGE,
  WAITS_FOR_CHILDREN,
  WAITS_FOR_EVENT,
  WAITS_FOR_TURN,
} from '../../run/status.ts'
import { WORKER_LOST } from '../../run/transitions.ts'
import type { RunTerms } from '../../run/transaction-source.ts'

type Sql = postgres.Sql | postgres.TransactionSql
type Alias =
  | 'a'
  | 'd'
  | 'e'
  | 'f'
  | 'g'
  | 'r'
  | 's'
  | 'i'
  | 'l'
  | 'm'
  | 'p'
  | 't'
  | 'w'
  | 'held'
  | 'picked'
  | 'ended'
  | 'changed'

const ACTIVE = `h."Status" in (${activeStatuses.map((status) => `'${status}'`).join(', ')})`

/**
 * True for an unfinished run. The statuses are literals instead of parameters, so that every execution uses the
 * same plan.
 */
export const isActive = (sql: Sql) => sql.unsafe(ACTIVE)

/** True for a run whose deadline has not passed. A run that is being undone has no deadline. */
export const isBeforeDeadline = (sql: Sql) =>
  sql`(h."DeadlineAt" is null or h."DeadlineAt" > now() or h."Status" = 'Undoing')`

/** Assigns the columns of a run without its data; `NO_DATA` in run/transitions.ts is the same for the memory source. */
export const withoutData = (sql: Sql) => sql`
  "InitialData" = 'null', "Tags" = null, "LastError" = null, "ConcurrencyKey" = null, "DebounceKey" = null`

/** The deadline of a run that begins at `start`. */
export const deadlineFrom = (
  sql: Sql,
  { deadlineMs = null }: RunTerms,
  start: postgres.PendingQuery<postgres.Row[]>,
) => sql`${start} + ${deadlineMs}::float8 * interval '1 ms'`

/** The deadline of a run that begins or is resumed now. */
export const deadlineFromNow = (sql: Sql, terms: RunTerms) => deadlineFrom(sql, terms, sql`now()`)

const AT_PLACE = [WAITS_FOR_EVENT, WAITS_FOR_CHANGE, WAITS_FOR_CHILDREN, WAITS_FOR_TURN]
  .map((prefix) => `${prefix}%`)
  .join(',')

/** False for a run that waits at a place: for an event, a change in the books, its children, or its turn as a child. */
export const isNotWaitingAtPlace = (sql: Sql) =>
  sql.unsafe(`(h."WaitingFor" is null or h."WaitingFor" not like all ('{${AT_PLACE}}'))`)

/** True for a queued run whose start time has not come yet. */
export const isDelayed = (sql: Sql) => sql`(h."Status" = 'Queued' and h."NextAttemptAt" > now())`

/** True for a run without a live lease: the run has no lease, or its lease has expired. */
export const isUnleased = (sql: Sql) => sql`(h."LeaseUntil" is null or h."LeaseUntil" <= now())`

/**
 * True for a run whose lease, if it ends without a recorded outcome, leaves the step in doubt. An undo at a step without a
 * finished item can only have called `confirm` (rule U3 in run/undo.ts).
 */
export const leavesDoubt = (sql: Sql) => sql`(h."LeaseUntil" is not null
  and case when h."Status" = 'Undoing' then exists (
    select from "Order_Item" i where ${isRunOf(sql, 'i')} and i."StepName" = h."StepName"
      and i."Status" in ('Completed', 'Copied')) else true end)`

/**
 * False for a run that has lost two workers in a row, until lease recovery has released it: lease recovery decides how
 * long the run waits.
 */
export const isNotLostAgain = (sql: Sql) =>
  sql`(h."LeaseUntil" is null or h."ErrorClass" is distinct from ${WORKER_LOST})`

/**
 * True for a run that the request `w` is allowed to claim. The run must have the version that the request names. If a
 * worker has claimed this version and was then lost, the run has the next version; the request is allowed to claim that
 * version once the worker's lease has expired, unless the run has lost another worker before.
 */
export const isClaimable = (sql: Sql) => sql`${isRunOf(sql, 'w')}
  and (h."Version" = w.version or (h."Version" = w.version + 1 and h."LeaseUntil" <= now()))
  and (h."StepName" = w.step or (h."StepName" = '' and w."isFirst"))
  and ${isActive(sql)}
  and ${isUnleased(sql)}
  and ${isNotLostAgain(sql)}
  and coalesce(h."NextAttemptAt", now()) <= now()
  and ${isBeforeDeadline(sql)}`

/** True for the row with this run key. */
export const isRun = (sql: Sql, key: RunKey) =>
  sql`h."Process" = ${key.Process} and h."TransactionID" = ${key.TransactionID} and h."ReplayID" = ${key.ReplayID}`

/**
 * True for the run to which a row of `alias` refers. Each run is found by one lookup in the primary key; with a join,
 * the planner would read all active rows for every batch. `renewLeases` uses this condition in a LATERAL subquery with
 * FOR UPDATE, so that it locks the rows in key order.
 */
export const isRunOf = (sql: Sql, alias: Alias) => {
  const other = sql(alias)
  return sql`h."Process" = ${other}."Process" and h."TransactionID" = ${other}."TransactionID"
    and h."ReplayID" = ${other}."ReplayID"`
}

/**
 * True if the row `h` of `"Order_Debounce"` refers to the run of the row `alias`. A row of `"Order_Debounce"` always
 * refers to the first run of a transaction, because replays are not debounced.
 */
export const isFirstRunOf = (sql: Sql, alias: Alias) => {
  const other = sql(alias)
  return sql`h."Process" = ${other}."Process" and h."TransactionID" = ${other}."TransactionID"
    and ${other}."ReplayID" = 0`
}

/** The statement that makes the families of the runs of a CTE due, because the end of a parent concerns its children. */
export const familiesDue = (sql: Sql, alias: Alias) => sql`
  update "Order_Family" h set "NextSweepAt" = now() from ${sql(alias)}
  where ${isRunOf(sql, alias)} and not h."Cascaded"`

/**
 * True for every row of a batch. The condition only lowers the planner's estimate of the number of rows. Without the
 * condition, PostgreSQL expects a hundred rows from `json_to_recordset`. It would then read a small table as a whole
 * instead of looking each row up by key, and the prepared statement would keep that plan after the table has grown.
 * With the two bounds, PostgreSQL expects one row (DEFAULT_RANGE_INEQ_SEL in its sources).
 */
export const areFew = (sql: Sql) => sql`n between 0 and 1000000`
