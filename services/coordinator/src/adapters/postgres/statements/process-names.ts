/**
 * Statements that return the distinct values of the first columns of an index. They jump from each value to the next
 * value; with `select distinct`, PostgreSQL would read the whole index.
 */
import type postgres from 'postgres'
import type { ENDED, StoredProcesses } from '../../../run/run-search.ts'

type EndedStatus = (typeof ENDED)[number]

/** The maximum number of processes, or of index ranges, that a search merges. */
const MOST = 1_000

/** Returns the names of the processes that have runs. */
export async function processNames(
  sql: postgres.Sql | postgres.TransactionSql,
): Promise<readonly string[]> {
  const rows = await sql<{ name: string }[]>`
    with recursive p as (
      (select "Process" as name from "Order_Header" order by 1 limit 1)
      union all
      select later.name from p cross join lateral (
        select "Process" as name from "Order_Header" h where h."Process" > p.name order by 1 limit 1) later)
    select name from p limit ${MOST}`
  return rows.map(({ name }) => name)
}

export interface EndedRange {
  readonly process: string
  readonly ended: EndedStatus
  readonly class: string
  readonly doubt: boolean
}

/**
 * Returns the combinations of process, status, error class and in-doubt flag that exist in runs that have ended without
 * being completed; `null` if there are too many.
 */
export async function endedRanges(
  sql: postgres.Sql | postgres.TransactionSql,
  process: string | null,
): Promise<readonly EndedRange[] | null> {
  // If the process is given, `Process` must not be part of the row comparison. With it, PostgreSQL would begin each
  // search at the first index entry of the process instead of at the compared values.
  const [columns, last, inProcess] =
    process === null
      ? [
          sql`"Process", "EndedAs", "EndedClass", "EndedInDoubt"`,
          sql`r.process, r.ended, r.class, r.doubt`,
          sql``,
        ]
      : [
          sql`"EndedAs", "EndedClass", "EndedInDoubt"`,
          sql`r.ended, r.class, r.doubt`,
          sql`and "Process" = ${process}`,
        ]
  const ranges = sql`
    select "Process" as process, "EndedAs" as ended, "EndedClass" as class, "EndedInDoubt" as doubt
    from "Order_Header" h where "EndedAs" is not null and "PurgedAt" is null ${inProcess}`
  const rows = await sql<EndedRange[]>`
    with recursive r as (
      (${ranges} order by ${columns} limit 1)
      union all
      select later.* from r cross join lateral (
        ${ranges} and (${columns}) > (${last}) order by ${columns} limit 1) later)
    select * from r limit ${MOST + 1}`
  return rows.length > MOST ? null : rows
}

/** Returns the names of the processes that have runs, and counts the unfinished runs of those that `isCounted` names. */
export async function storedProcesses(
  sql: postgres.Sql,
  isCounted: (name: string) => boolean = () => false,
): Promise<StoredProcesses> {
  const names = await processNames(sql)
  const counted = names.filter(isCounted)
  const stored = new Map<string, number | null>(names.map((name) => [name, null]))
  for (const name of counted) stored.set(name, 0)
  if (counted.length === 0) return stored
  const rows = await sql<{ process: string; count: number }[]>`
    select "Process" as process, count(*)::int as count from "Order_Header"
    where "CompletedAt" is null and ${JSON.stringify(counted)}::text::jsonb ? "Process" group by 1`
  for (const { process, count } of rows) stored.set(process, count)
  return stored
}
