import type postgres from 'postgres'
import type { EndPosition } from '../../../run/retention.ts'
import {
  DEFAULT_ATTEMPTS,
  type ExportPage,
  type ExportRange,
  type RunDetail,
  type RunParts,
  type RunsPage,
  type RunSummary,
} from '../../../run/run-detail.ts'
import { isRunOf } from '../predicates.ts'
import { familiesOfRun } from './families.ts'
import {
  attemptOf,
  type AttemptRow,
  itemOf,
  type ItemRow,
  positionAfter,
  runOf,
  type RunRow,
} from '../rows.ts'

/**
 * Reads a run with its items and its newest attempts. Without a `replayId`, reads the latest run. Returns `null` if the
 * run does not exist.
 */
export async function getRun(
  sql: postgres.Sql,
  process: string,
  transactionId: string,
  replayId: number | null,
  { attempts = DEFAULT_ATTEMPTS, bodies = true, families = false }: RunParts = {},
): Promise<RunDetail | null> {
  const [row] = await sql<
    (RunRow &
      Pick<RunDetail, 'attemptCount' | 'families'> & {
        items: ItemRow[]
        attempts: AttemptRow[]
      })[]
  >`
    select h.*,
      coalesce((select jsonb_agg(i) from (
        select "StepName", "Status", "Attempt", "IdempotencyKey", "ResponseStatus",
          ${bodies ? sql`"ResponseBody", "Data", "State", "Ask"` : sql`null as "ResponseBody", null as "Data"`},
          "Error", "StartedAt", "FinishedAt", "Round", "Report", "Sender"
        from "Order_Item" i
        where ${isRunOf(sql, 'i')} ${typeof bodies === 'object' ? sql`and i."StepName" = ${bodies.step}` : sql``}
      ) i), '[]') as items,
      coalesce((select jsonb_agg(a order by a."ID") from (
        select * from "Order_Attempt" a
        where ${isRunOf(sql, 'a')}
        order by a."ID" desc limit ${attempts}) a), '[]') as attempts,
      (select count(*)::int from "Order_Attempt" a
        where ${isRunOf(sql, 'a')}) as "attemptCount",
      ${families ? familiesOfRun(sql) : sql`'[]'::jsonb`} as families
    from "Order_Header" h
    where h."Process" = ${process} and h."TransactionID" = ${transactionId}
      and (${replayId}::int is null or h."ReplayID" = ${replayId}::int)
    order by h."ReplayID" desc limit 1`
  return row === undefined
    ? null
    : {
        run: runOf(row),
        lease: {
          LeaseOwner: row.LeaseOwner,
          LeaseUntil: row.LeaseUntil,
          StartedAt: row.StartedAt,
        },
        items: row.items.map(itemOf),
        attempts: row.attempts.map(attemptOf),
        attemptCount: row.attemptCount,
        families: row.families,
      }
}

/** Reads the runs of transactions without their data, the latest first. OFFSET as in `firstRuns` (enqueue-runs.ts). */
export const listReplays = (
  sql: postgres.Sql,
  process: string,
  ids: readonly string[],
  { before, limit }: RunsPage,
): Promise<RunSummary[]> =>
  sql<RunSummary[]>`
    select h.* from (
      select distinct id from jsonb_array_elements_text(${JSON.stringify(ids)}::text::jsonb) as given (id)
    ) given cross join lateral (
      select "TransactionID", "ReplayID", "Status", "StepName", "ErrorClass", "InDoubt", "InputChanged",
        "DefinitionVersion", "Realm", "Version", "CreatedAt", "UpdatedAt", "CompletedAt", "PurgedAt"
      from "Order_Header"
      where "Process" = ${process} and "TransactionID" = given.id
        and (${before ?? null}::int is null or "ReplayID" < ${before ?? null}::int)
      order by "ReplayID" desc limit ${limit}) h
    order by h."ReplayID" desc limit ${limit}`

/** Reads a page from the index `Order_Header_completed`. */
export async function exportPage(
  sql: postgres.Sql,
  { process, since, until }: ExportRange,
  after: EndPosition,
  limit: number,
): Promise<ExportPage> {
  const rows = await sql<
    (RunRow & { position: string; items: ItemRow[]; attempts: AttemptRow[] })[]
  >`
    select h.*, h."CompletedAt"::text as position,
      coalesce((select jsonb_agg(i order by i."StartedAt") from "Order_Item" i
        where ${isRunOf(sql, 'i')}), '[]') as items,
      coalesce((select jsonb_agg(a order by a."ID") from "Order_Attempt" a
        where ${isRunOf(sql, 'a')}), '[]') as attempts
    from "Order_Header" h
    where h."Process" = ${process} and h."CompletedAt" is not null and h."PurgedAt" is null
      and (h."CompletedAt", h."TransactionID", h."ReplayID")
        > ((${after.completedAt}::text)::timestamptz, ${after.transactionId}::text, ${after.replayId}::int)
      and h."CompletedAt" >= (${since ?? after.completedAt}::text)::timestamptz
      and h."CompletedAt" < (${until}::text)::timestamptz
    order by h."CompletedAt", h."TransactionID", h."ReplayID" limit ${limit}`
  return {
    runs: rows.map((row) => ({
      run: runOf(row),
      items: row.items.map(itemOf),
      attempts: row.attempts.map(attemptOf),
    })),
    next: positionAfter(rows, limit),
  }
}
