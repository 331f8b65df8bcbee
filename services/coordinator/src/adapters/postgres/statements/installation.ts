/**
 * Leases that exist once per installation. Each lease is a row of `"Order_Installation"` instead of an advisory lock of
 * a session, because behind a pooler in transaction mode a session does not belong to one client.
 *
 * The value of the row has the members `Owner`, `Until` (the end of the lease) and `RenewedAt`, and further members for
 * the task that the lease protects.
 */
import type postgres from 'postgres'

export interface InstallationLease {
  readonly name: string
  readonly owner: string
  readonly leaseMs: number
}

/** The members of a lease that begins when the statement runs. */
export const leaseMembers = (sql: postgres.Sql, { owner, leaseMs }: InstallationLease) => sql`
  jsonb_build_object('Owner', ${owner}::text, 'Until', now() + ${leaseMs} * interval '1 ms',
    'RenewedAt', now())`

/** True for a row `r` whose lease belongs to this owner or has expired. */
export const isAvailable = (sql: postgres.Sql, { owner }: InstallationLease) => sql`
  (r."Value" ->> 'Owner' = ${owner} or (r."Value" ->> 'Until')::timestamptz <= now())`

/**
 * True for a row `r` if the time in this member of its column `Value` is at least `ms` milliseconds ago. Also true if
 * the member is missing.
 */
export const isLongAgo = (sql: postgres.Sql, member: 'RenewedAt', ms: number) => sql`
  coalesce((r."Value" ->> ${member})::timestamptz <= now() - ${ms} * interval '1 ms', true)`

/** Renews a lease and stores the members of `value` with it. Returns false if another owner has the lease. */
export async function renewLease(
  sql: postgres.Sql,
  lease: InstallationLease,
  value: object = {},
): Promise<boolean> {
  const { count } = await sql`
    update "Order_Installation" r
    set "Value" = r."Value" || ${JSON.stringify(value)}::text::jsonb || ${leaseMembers(sql, lease)}
    where r."Name" = ${lease.name} and r."Value" ->> 'Owner' = ${lease.owner}`
  return count > 0
}
