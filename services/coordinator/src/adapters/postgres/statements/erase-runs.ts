import { WEBHOOK_PROCESS } from '@integration-host/shared/contracts/events'
import type postgres from 'postgres'
import type { AuditContext } from '../../../run/action.ts'
import type {
  ErasableRun,
  ErasurePage,
  ErasurePosition,
  ErasureScope,
  RunToErase,
} from '../../../run/erasure.ts'
import { FILES_LEFT } from '../../../run/retention.ts'
import { runKey } from '../../../run/run.ts'
import { REMOVAL_WEBHOOK } from '../../../webhook/webhook.ts'
import { areFew, isActive, isFirstRunOf, isRunOf, withoutData } from '../predicates.ts'
import { recordOnChanged } from './actions.ts'
import { deleteTags } from './retention.ts'

/**
 * The maximum number of rows that a statement reads. It bounds the duration of the statement even if all of these rows
 * are already erased.
 */
const WINDOW = 10_000

/** True for the runs in the scope of the erasure that are not purged. */
const isInScope = (sql: postgres.Sql, scope: ErasureScope) =>
  'Ids' in scope
    ? sql`h."PurgedAt" is null and (h."Process", h."TransactionID") in (
        -- A transaction is erased with its children, and with theirs.
        with recursive member as (
          select ${scope.Process}::text collate "C" as process, id::text collate "C" as id
          from jsonb_array_elements_text(${JSON.stringify(scope.Ids)}::text::jsonb) as given (id)
          union
          select c."Process", c."TransactionID" from member m join "Order_Header" c
            on c."ParentProcess" = m.process and c."ParentTransactionID" = m.id)
        select process, id from member)`
    : sql`h."Realm" = ${scope.Realm} and h."PurgedAt" is null
        and (${scope.Process}::text is null or h."Process" = ${scope.Process}::text)`

/** True for the runs that deliver webhooks about the removal of a credential. */
const isRemovalWebhook = (sql: postgres.Sql) =>
  sql`(h."Process" = ${WEBHOOK_PROCESS} and starts_with(h."TransactionID", ${REMOVAL_WEBHOOK}))`

/** Reads the runs of a company in the order of the index `Order_Header_realm`. */
export async function erasableRuns(
  sql: postgres.Sql,
  scope: ErasureScope,
  { after, limit }: { readonly after: ErasurePosition | null; readonly limit: number },
  { leaseMs }: { readonly leaseMs: number },
): Promise<ErasurePage> {
  const behind =
    after === null
      ? sql``
      : sql`and (h."CreatedAt", h."Process", h."TransactionID", h."ReplayID") >
          ((${after.CreatedAt}::text)::timestamptz, ${after.Process}, ${after.TransactionID}, ${after.ReplayID}::int)`
  const order = sql`h."CreatedAt", h."Process", h."TransactionID", h."ReplayID"`
  const rows = await sql<
    (ErasurePosition & ErasableRun & { isErased: boolean; hasEnded: boolean; isLast: boolean })[]
  >`
    select h."Process", h."TransactionID", h."ReplayID", h."Version", h."CreatedAt"::text,
      h."isErased", h."hasEnded", n = ${WINDOW}::int as "isLast"
    from (
      select h."Process", h."TransactionID", h."ReplayID", h."Version", h."CreatedAt",
        h."ErasedAt" is not null as "isErased",
        not ${isActive(sql)} and not coalesce(h."Status" in ('Cancelled', 'UndoFailed') and h."InDoubt"
          and h."CompletedAt" > now() - ${leaseMs} * interval '1 ms', false) as "hasEnded",
        row_number() over (order by ${order}) as n
      from "Order_Header" h
      where ${isInScope(sql, scope)} and not (${isRemovalWebhook(sql)} and ${isActive(sql)}) ${behind}
      order by ${order} limit ${WINDOW}::int
    ) h
    where not h."isErased" or n = ${WINDOW}::int
    order by ${order} limit ${limit}`
  const last = rows.at(-1)
  const left = rows.filter(({ isErased }) => !isErased)
  const ended = left.filter(({ hasEnded }) => hasEnded)
  return {
    runs: ended.map(({ Version, ...run }) => ({ ...runKey(run), Version })),
    notEnded: left.length - ended.length,
    next:
      last === undefined || (rows.length < limit && !last.isLast)
        ? null
        : { ...runKey(last), CreatedAt: last.CreatedAt },
  }
}

/**
 * Blanks the data of runs, their items, attempts and tags, and records this in the action log. The trigger
 * `Order_Header_erased` blanks the rest of the items, and the entries, also if an earlier release erases the runs. The
 * first statement locks the rows in the order that all statements use, so that no two statements can deadlock. The second
 * statement sees everything that was committed while the first one waited for a lock.
 */
export async function eraseRuns(
  tx: postgres.TransactionSql,
  runs: readonly RunToErase[],
  act: AuditContext,
): Promise<number> {
  if (runs.length === 0) return 0
  const wanted = tx`
    select * from json_to_recordset(${JSON.stringify(runs.map((run, n) => ({ ...run, n })))}::text::json)
      as w(n int, "Process" text, "TransactionID" text, "ReplayID" int, "Version" int,
        "filesLeft" bool)
    where ${areFew(tx)}
    order by "Process", "TransactionID", "ReplayID"`
  await tx`
    select from (${wanted}) w
    cross join lateral (select from "Order_Header" h where ${isRunOf(tx, 'w')} for update) h`
  const [row] = await tx<{ count: number }[]>`
    with ended as (
      select h.* from (${wanted}) w
      cross join lateral (
        select h."CreatedAt", h."Process", h."TransactionID", h."ReplayID", h."Tags"
        from "Order_Header" h
        where ${isRunOf(tx, 'w')} and h."Version" = w."Version"
          and h."ErasedAt" is null and h."PurgedAt" is null) h
    ), changed as (
      update "Order_Header" h set ${withoutData(tx)}, "ErasedAt" = now()
      from ended where ${isRunOf(tx, 'ended')}
      returning h."Process", h."TransactionID", h."ReplayID", h."Realm"
    ), slots as (
      delete from "Order_Slot" h using changed where ${isRunOf(tx, 'changed')}
    ), debounces as (
      delete from "Order_Debounce" h using changed where ${isFirstRunOf(tx, 'changed')}
    ), items as (
      update "Order_Item" h set "ResponseBody" = null, "Data" = null, "Error" = null
      from changed where ${isRunOf(tx, 'changed')}
    ), attempts as (
      update "Order_Attempt" h set "Error" = null, "Url" = null
      from changed where ${isRunOf(tx, 'changed')}
    ), left_behind as (
      insert into "Order_Installation" ("Name", "Value")
      select ${FILES_LEFT.prefix ?? ''} || gen_random_uuid(), jsonb_agg(jsonb_build_object('Process', h."Process",
        'TransactionID', h."TransactionID", 'ReplayID', h."ReplayID"))
      from (${wanted}) w join changed h on ${isRunOf(tx, 'w')} where w."filesLeft"
      group by h."Process"
    ), ${deleteTags(tx, 'ended')},
    recorded as (${recordOnChanged(tx, 'erase', act)})
    select count(*)::int as count from changed`
  return row?.count ?? 0
}
