import type postgres from 'postgres'
import type { Act } from '../../../transaction/action.ts'
import type {
  ErasureBatch,
  ErasurePosition,
  Erasures,
  ErasureScope,
} from '../../../transaction/erasure.ts'
import { runKey, type RunKey } from '../../../transaction/run.ts'
import { isActive, isRunOf } from '../predicates.ts'
import { recordOnChanged } from './actions.ts'

/** True for the runs of the scope that are not purged. */
const isInScope = (sql: postgres.Sql, scope: ErasureScope) =>
  'Ids' in scope
    ? sql`h."Process" = ${scope.Process} and h."PurgedAt" is null and h."TransactionID" in
        (select jsonb_array_elements_text(${JSON.stringify(scope.Ids)}::text::jsonb))`
    : sql`h."Realm" = ${scope.Realm} and h."PurgedAt" is null
        and (${scope.Process}::text is null or h."Process" = ${scope.Process}::text)`

/**
 * Blanks the next runs of the scope that have ended, in one statement with their items, attempts, tags and entries in
 * the action log. The rows are locked in the order of the batch, so that two erasures cannot deadlock.
 */
export async function eraseRuns(
  sql: postgres.Sql,
  scope: ErasureScope,
  { after, limit }: { readonly after: ErasurePosition | null; readonly limit: number },
  act: Pick<Act, 'by' | 'reason'>,
): Promise<ErasureBatch> {
  const behind =
    after === null
      ? sql``
      : sql`and (h."CreatedAt", h."Process", h."TransactionID", h."ReplayID") >
          ((${after.CreatedAt}::text)::timestamptz, ${after.Process}, ${after.TransactionID}, ${after.ReplayID}::int)`
  const rows = await sql<(ErasurePosition & { isNew: boolean })[]>`
    with ended as (
      select h."CreatedAt", h."Process", h."TransactionID", h."ReplayID", h."Tags",
        h."ErasedAt" is null as "isNew"
      from "Order_Header" h
      where ${isInScope(sql, scope)} and not ${isActive(sql)} ${behind}
      order by h."CreatedAt", h."Process", h."TransactionID", h."ReplayID"
      limit ${limit} for update
    ), changed as (
      update "Order_Header" h set "InitialData" = 'null', "Tags" = null, "LastError" = null,
        "ErasedAt" = now()
      from ended where ${isRunOf(sql, 'ended')} and ended."isNew"
      returning h."Process", h."TransactionID", h."ReplayID", h."Realm"
    ), items as (
      update "Order_Item" h set "ResponseBody" = null, "Data" = null, "Error" = null
      from changed where ${isRunOf(sql, 'changed')}
    ), attempts as (
      update "Order_Attempt" h set "Error" = null, "Url" = null
      from changed where ${isRunOf(sql, 'changed')}
    ), tags as (
      delete from "Order_Tag" t using ended, jsonb_each_text(ended."Tags") as pair
      where ended."isNew" and t."Name" = pair.key and t."Value" = pair.value
        and t."CreatedAt" = ended."CreatedAt" and t."Process" = ended."Process"
        and t."TransactionID" = ended."TransactionID" and t."ReplayID" = ended."ReplayID"
    ), recorded as (${recordOnChanged(sql, 'erase', act)})
    select "Process", "TransactionID", "ReplayID", "CreatedAt"::text, "isNew" from ended e
    order by e."CreatedAt", "Process", "TransactionID", "ReplayID"`
  const last = rows.at(-1)
  return {
    runs: rows.map(({ isNew, ...key }) => ({ ...runKey(key), isNew })),
    next: last === undefined || rows.length < limit ? null : last,
  }
}

/** Implements {@link Erasures.unerasable}. */
export async function countUnerasable(
  sql: postgres.Sql,
  scope: ErasureScope,
): ReturnType<Erasures['unerasable']> {
  const [counted] = await sql<[{ active: number }]>`
    select count(*)::int as active from "Order_Header" h
    where h."CompletedAt" is null and ${isInScope(sql, scope)} and ${isActive(sql)}`
  if (!('Ids' in scope)) return { ...counted, unknown: 0 }
  const known = await sql<Pick<RunKey, 'TransactionID'>[]>`
    select distinct h."TransactionID" from "Order_Header" h
    where h."Process" = ${scope.Process} and h."TransactionID" in
      (select jsonb_array_elements_text(${JSON.stringify(scope.Ids)}::text::jsonb))`
  return { ...counted, unknown: new Set(scope.Ids).size - known.length }
}
