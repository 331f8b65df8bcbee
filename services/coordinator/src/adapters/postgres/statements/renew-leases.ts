import type postgres from 'postgres'
import { idempotencyKey } from '../../../run/item.ts'
import type { Lease, LeaseRenewal } from '../../../run/transaction-source.ts'
import { isRunOf } from '../predicates.ts'

/**
 * Extends leases to `leaseMs` from now, and stores the progress that their steps have reported. Resolves with the leases
 * that were lost.
 */
export async function renewLeases(
  sql: postgres.Sql,
  leases: readonly LeaseRenewal[],
  { leaseMs }: { readonly leaseMs: number },
): Promise<readonly Lease[]> {
  const hasReport = leases.some(({ report }) => report !== undefined)
  const renewals = leases.map((lease, n) => ({
    ...lease,
    n,
    ...(lease.report !== undefined && { key: idempotencyKey(lease, lease.step, lease.round) }),
  }))
  const rows = await sql<{ n: number }[]>`
    with held as (
      select l.n, l.step, l.attempt, l."startedAt", l.key, l.report, h.*
      from (
        select *
        from jsonb_to_recordset(${JSON.stringify(renewals)}::text::jsonb)
          as l(n int, "Process" text, "TransactionID" text, "ReplayID" int, version int, owner text,
            step text, attempt int, "startedAt" timestamptz, key text, report jsonb)
        order by "Process", "TransactionID", "ReplayID") l
        cross join lateral (
          select "Process", "TransactionID", "ReplayID" from "Order_Header" h
          where ${isRunOf(sql, 'l')} and h."Version" = l.version and h."LeaseOwner" = l.owner
          for update) h
    )${hasReport ? insertReports(sql) : sql``}
    update "Order_Header" h set "LeaseUntil" = now() + ${leaseMs} * interval '1 ms'
    from held
    where ${isRunOf(sql, 'held')}
    returning held.n`
  const kept = new Set(rows.map(({ n }) => n))
  return leases.filter((_, n) => !kept.has(n))
}

/** Returns the part of the statement that stores progress, with an item if the step has none yet. */
const insertReports = (sql: postgres.Sql) => sql`, reports as (
      insert into "Order_Item" as i ("Process", "TransactionID", "ReplayID", "StepName", "Status",
        "Attempt", "IdempotencyKey", "StartedAt", "Report")
      select "Process", "TransactionID", "ReplayID", step, 'Running', attempt, key, "startedAt", report
      from held where report is not null
      on conflict ("Process", "TransactionID", "ReplayID", "StepName") do update set
        "Report" = excluded."Report"
    )`
