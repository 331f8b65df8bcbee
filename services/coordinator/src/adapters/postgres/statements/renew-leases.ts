import type postgres from 'postgres'
import type { Lease } from '../../../run/transaction-source.ts'
import { isRunOf } from '../predicates.ts'

/** Extends leases to `leaseMs` from now. Resolves with the leases that were lost. */
export async function renewLeases(
  sql: postgres.Sql,
  leases: readonly Lease[],
  { leaseMs }: { readonly leaseMs: number },
): Promise<readonly Lease[]> {
  const rows = await sql<{ n: number }[]>`
    with held as (
      select l.n, h.*
      from (
        select *
        from jsonb_to_recordset(${JSON.stringify(leases.map((lease, n) => ({ ...lease, n })))}::text::jsonb)
          as l(n int, "Process" text, "TransactionID" text, "ReplayID" int, version int, owner text)
        order by "Process", "TransactionID", "ReplayID") l
        cross join lateral (
          select "Process", "TransactionID", "ReplayID" from "Order_Header" h
          where ${isRunOf(sql, 'l')} and h."Version" = l.version and h."LeaseOwner" = l.owner
          for update) h
    )
    update "Order_Header" h set "LeaseUntil" = now() + ${leaseMs} * interval '1 ms'
    from held
    where ${isRunOf(sql, 'held')}
    returning held.n`
  const kept = new Set(rows.map(({ n }) => n))
  return leases.filter((_, n) => !kept.has(n))
}
