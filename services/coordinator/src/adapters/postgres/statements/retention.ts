import type postgres from 'postgres'
import {
  COUNTED,
  type EndPosition,
  FILES_LEFT,
  type PurgeablePage,
  type RetentionPolicy,
} from '../../../run/retention.ts'
import { type RunKey, runKey } from '../../../run/run.ts'
import { areFew, isFirstRunOf, isRunOf, withoutData } from '../predicates.ts'
import { positionAfter } from '../rows.ts'

/** For each process, adds the number of its rows in the CTE `changed` to the stored count of the process. */
const addToCounts = (sql: postgres.Sql, action: keyof typeof COUNTED) => sql`
  insert into "Order_Installation" as i ("Name", "Value")
  select ${COUNTED[action]} || "Process", to_jsonb(count(*)) from changed group by "Process" order by 1
  on conflict ("Name") do update set "Value" = to_jsonb(i."Value"::bigint + excluded."Value"::bigint)`

/** True for an ended run (of the given alias) that is older than the retention time for its outcome. */
const isOld = (sql: postgres.Sql, alias: 'h' | 's', { completedMs, failedMs }: RetentionPolicy) => {
  const run = sql(alias)
  return sql`coalesce(${run}."CompletedAt" < now() - interval '1 ms'
    * case when ${run}."Status" = 'Completed' then ${completedMs}::float8 else ${failedMs}::float8 end, false)`
}

/** True if the run `h` may be purged: all runs of its transaction are old enough, and the parent of a child is purged. */
const mayGo = (sql: postgres.Sql, policy: RetentionPolicy) => sql`
  ${isOld(sql, 'h', policy)} and (h."ParentProcess" is null or not exists (
    select from "Order_Header" p where p."Process" = h."ParentProcess"
      and p."TransactionID" = h."ParentTransactionID" and p."ReplayID" = h."ParentReplayID"
      and p."PurgedAt" is null)) and not exists (
    select from "Order_Header" s
    where s."Process" = h."Process" and s."TransactionID" = h."TransactionID"
      and s."PurgedAt" is null and not ${isOld(sql, 's', policy)})`

/** Reads finished runs in the order of the index `Order_Header_completed`, the oldest first. */
export async function purgeable(
  sql: postgres.Sql,
  policy: RetentionPolicy,
  after: EndPosition,
  limit: number,
): Promise<PurgeablePage> {
  const { process, completedMs, failedMs } = policy
  const shortestMs = Math.min(completedMs ?? Infinity, failedMs ?? Infinity)
  if (shortestMs === Infinity) return { runs: [], next: null, oldestMs: null }
  const rows = await sql<(RunKey & { position: string; ageMs: number; mayGo: boolean })[]>`
    select h."Process", h."TransactionID", h."ReplayID", h."CompletedAt"::text as position,
      (extract(epoch from now() - h."CompletedAt") * 1000)::float8 as "ageMs", ${mayGo(sql, policy)} as "mayGo"
    from (
      select "Process", "TransactionID", "ReplayID", "CompletedAt", "Status", "ParentProcess",
        "ParentTransactionID", "ParentReplayID" from "Order_Header"
      where "Process" = ${process} and "CompletedAt" is not null and "PurgedAt" is null
        and "CompletedAt" < now() - ${shortestMs} * interval '1 ms'
        and ("CompletedAt", "TransactionID", "ReplayID")
          > ((${after.completedAt}::text)::timestamptz, ${after.transactionId}::text, ${after.replayId}::int)
      order by "CompletedAt", "TransactionID", "ReplayID" limit ${limit}) h`
  return {
    runs: rows.filter((row) => row.mayGo).map((row) => runKey(row)),
    next: positionAfter(rows, limit),
    oldestMs: rows[0]?.ageMs ?? null,
  }
}

/**
 * Purges runs in one statement, with their items, attempts and tags. A run that another statement has locked is skipped
 * and is purged by the next pass. Each run is checked again under its lock, because it may have been resumed meanwhile.
 * The keys of the purged runs are stored in one row of `"Order_Installation"` until their files are removed.
 */
export async function purgeRuns(
  sql: postgres.Sql,
  policy: RetentionPolicy,
  runs: readonly RunKey[],
): Promise<number> {
  if (runs.length === 0) return 0
  const [row] = await sql<{ count: number }[]>`
    with held as (
      select h.* from (
        select * from json_to_recordset(${JSON.stringify(runs.map((run, n) => ({ ...run, n })))}::text::json)
          as w(n int, "Process" text, "TransactionID" text, "ReplayID" int)
        where ${areFew(sql)}
        order by "Process", "TransactionID", "ReplayID") w
      cross join lateral (
        select h."Process", h."TransactionID", h."ReplayID", h."CreatedAt", h."Tags"
        from "Order_Header" h
        where ${isRunOf(sql, 'w')} and h."PurgedAt" is null and ${mayGo(sql, policy)}
        for update skip locked) h
    ), slots as (
      delete from "Order_Slot" h using held where ${isRunOf(sql, 'held')}
    ), debounces as (
      delete from "Order_Debounce" h using held where ${isFirstRunOf(sql, 'held')}
    ), delayed as (
      delete from "Order_Delayed" h using held where ${isFirstRunOf(sql, 'held')}
    ), items as (
      delete from "Order_Item" h using held where ${isRunOf(sql, 'held')}
    ), attempts as (
      delete from "Order_Attempt" h using held where ${isRunOf(sql, 'held')}
    ), ${deleteTags(sql, 'held')},
    changed as (
      update "Order_Header" h set ${withoutData(sql)}, "PurgedAt" = now()
      from held where ${isRunOf(sql, 'held')}
      returning h."Process", h."TransactionID", h."ReplayID"
    ), families as (
      -- The children of the runs are purged next.
      update "Order_Family" h set "NextSweepAt" = now() from held where ${isRunOf(sql, 'held')}
        and h."PurgedAt" is null and h."OfReplayID" = h."ReplayID"
    ), left_behind as (
      insert into "Order_Installation" ("Name", "Value")
      select ${FILES_LEFT.prefix ?? ''} || gen_random_uuid(), jsonb_agg(to_jsonb(changed)) from changed
      having count(*) > 0
    ), counted as (${addToCounts(sql, 'purge')})
    select count(*)::int as count from changed`
  return row?.count ?? 0
}

/** Deletes the rows of the runs that were purged longest ago. All rows of a transaction are deleted together. */
export async function forgetRuns(
  sql: postgres.Sql,
  dedupeMs: number,
  limit: number,
): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    with old as (
      select h."Process", h."TransactionID" from "Order_Header" h
      where h."PurgedAt" is not null and h."PurgedAt" < now() - ${dedupeMs} * interval '1 ms'
        and not exists (
          select from "Order_Header" s
          where s."Process" = h."Process" and s."TransactionID" = h."TransactionID"
            and (s."PurgedAt" is null or s."PurgedAt" >= now() - ${dedupeMs} * interval '1 ms'))
        and not exists (
          select from "Order_Installation"
          where "Name" ^@ ${FILES_LEFT.prefix ?? ''} and "Value" @> jsonb_build_array(
            jsonb_build_object('Process', h."Process", 'TransactionID', h."TransactionID")))
      order by h."PurgedAt" limit ${limit}
    ), changed as (
      delete from "Order_Header" h using (select distinct * from old) w
      where h."Process" = w."Process" and h."TransactionID" = w."TransactionID"
        and h."PurgedAt" is not null
      returning h."Process", h."TransactionID"
    ), absorbed as (
      delete from "Order_Absorbed" a using (select distinct * from changed) c
      where a."Process" = c."Process" and a."AbsorbedBy" = c."TransactionID"
    ), families as (
      delete from "Order_Family" f using (select distinct * from changed) c
      where f."Process" = c."Process" and f."TransactionID" = c."TransactionID"
    ), counted as (${addToCounts(sql, 'forget')})
    select count(*)::int as count from changed`
  return row?.count ?? 0
}

/**
 * Returns the CTEs that delete the tags of the runs in the CTE `runs`, which has the columns `CreatedAt` and `Tags`.
 * The CTE `tagged` is materialized, because otherwise PostgreSQL might not look up each tag by its whole key.
 */
export const deleteTags = (
  sql: postgres.Sql | postgres.TransactionSql,
  runs: 'ended' | 'held',
) => sql`
  tagged as materialized (
    select runs.*, tag.key, tag.value
    from ${sql(runs)} runs cross join lateral jsonb_each_text(runs."Tags") tag
  ), tags as (
    delete from "Order_Tag" h using tagged t
    where h."Name" = t.key and h."Value" = t.value and h."CreatedAt" = t."CreatedAt"
      and ${isRunOf(sql, 't')}
  )`
