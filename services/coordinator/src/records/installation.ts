/**
 * Values and leases that exist once per installation. A lease is a row of `"Order_Installation"` instead of an advisory
 * lock of a session, because behind a pooler in transaction mode a session does not belong to one client.
 */
import type { RecordKind } from './records.ts'

export interface InstallationRow<Value = unknown> {
  readonly Name: string
  readonly Value: Value
}

/** The values whose names begin with `prefix`. */
export const installation = <Value>(prefix: string): RecordKind<InstallationRow<Value>> => ({
  table: 'Order_Installation',
  key: ['Name'],
  prefix,
})

/** The members of a value that a lease protects. */
export interface InstallationLease {
  readonly Owner: string
  /** The end of the lease, an ISO 8601 time. */
  readonly Until: string
  readonly RenewedAt: string
}

export const leaseOf = (Owner: string, now: number, leaseMs: number): InstallationLease => ({
  Owner,
  Until: new Date(now + leaseMs).toISOString(),
  RenewedAt: new Date(now).toISOString(),
})

/** Whether the lease belongs to this owner, or has expired. */
export const isAvailable = (
  { Owner, Until }: InstallationLease,
  owner: string,
  now: number,
): boolean => Owner === owner || Date.parse(Until) <= now
