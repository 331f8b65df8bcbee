import type postgres from 'postgres'
import { type Audit, type DueRuns, STUCK_MS } from '../../../transaction/transaction-source.ts'
import { isActive, isUnleased } from '../predicates.ts'
import type { RunRow } from '../rows.ts'

/**
 * The maximum number of rows of the last hour that are compared. The audit runs each minute, and an hour may
 * add millions of rows.
 */
const MAX_AUDITED = 100_000

/** Counts runs by status and by due step, and counts violations of the rules that must hold between the tables. */
export async function auditTables(
  tx: postgres.TransactionSql,
  processes: readonly string[],
): Promise<Audit> {
  // Connections disable full scans, because every other statement looks rows up by key. The audit reads much of
  // the tables, so it enables full scans again; `local` limits this setting to the current database
  // transaction.
  await tx`set local enable_seqscan = on`
  await tx`set local enable_hashjoin = on`
  await tx`set local enable_mergejoin = on`
  const counts = await tx<{ Status: RunRow['Status']; count: number }[]>`
    select "Status", count(*)::int as count from "Order_Header"
    where "PurgedAt" is null group by 1`
  const dueBySteps = await tx<DueRuns[]>`
    select "Process" as process, "StepName" as step, count(*)::int as due,
      (extract(epoch from now() - min(greatest(coalesce("NextAttemptAt", "CreatedAt"), "LeaseUntil")))
        * 1000)::float8 as "oldestMs"
    from "Order_Header" h
    where "CompletedAt" is null and "Status" in ('Queued', 'Running', 'Retrying')
      and coalesce("NextAttemptAt", now()) <= now() and ${isUnleased(tx)}
    group by 1, 2 order by 1, 2`
  const [violations] = await tx<[Audit['violations']]>`
    select
      (select count(*)::int from (
          select * from "Order_Header"
          where "Status" = 'Completed' and "CompletedAt" > now() - interval '1 hour'
            and "PurgedAt" is null
          order by "CompletedAt" desc limit ${MAX_AUDITED}) h
        where not exists (select from "Order_Item" i where i."Process" = h."Process"
          and i."TransactionID" = h."TransactionID" and i."ReplayID" = h."ReplayID"
          and i."StepName" = h."StepName" and i."Status" = 'Completed')) as "completedWithoutItem",
      (select count(*)::int from "Order_Header" h join "Order_Item" i
        using ("Process", "TransactionID", "ReplayID", "StepName")
        where h."CompletedAt" is null and ${isActive(tx)} and i."Status" = 'Completed') as "itemAhead",
      (select count(*)::int from (
          select * from "Order_Item" where "FinishedAt" > now() - interval '1 hour'
          limit ${MAX_AUDITED}) i
        where not exists (select from "Order_Header" h where h."Process" = i."Process"
          and h."TransactionID" = i."TransactionID" and h."ReplayID" = i."ReplayID")) as "orphanItems",
      (select count(*)::int from "Order_Header" h
        where h."CompletedAt" is null and ${isActive(tx)}
        and greatest(h."NextSweepAt", h."LeaseUntil") < now() - ${STUCK_MS} * interval '1 ms'
        and not exists (select from "Order_Process" p
          where p."Process" = h."Process" and p."Paused")) as stuck,
      (select count(*)::int from "Order_Header" h
        where h."CompletedAt" is null and ${isActive(tx)}
        and not ${JSON.stringify(processes)}::text::jsonb ? h."Process") as "unknownProcess"`
  return {
    runsByStatus: Object.fromEntries(counts.map(({ Status, count }) => [Status, count])),
    dueBySteps,
    violations,
  }
}
