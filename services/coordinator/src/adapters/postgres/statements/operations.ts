/** The statements of bulk operations. */
import type postgres from 'postgres'
import type { OperationStatus } from '@integration-host/shared/contracts/operation'
import {
  type Operation,
  MAX_OPEN_OPERATIONS,
  type OperationEnd,
  type OperationLease,
  type OperationPosition,
  type OperationProgress,
  type OperationRequest,
  type OperationSummary,
  noProgress,
} from '../../../transaction/bulk-operation.ts'
import type { AuditContext } from '../../../transaction/action.ts'
import {
  operationNotFound,
  operationNotPaused,
  operationNotRunning,
  tooManyOperations,
} from '../../../transaction/errors.ts'
import { recordOnChanged } from './actions.ts'

type Sql = postgres.Sql | postgres.TransactionSql

const MEMBERS = [
  'ID',
  'Action',
  'Process',
  'DryRun',
  'Status',
  'StatusReason',
  'KeyID',
  'Person',
  'Reason',
  'Progress',
  'CreatedAt',
  'UpdatedAt',
  'FinishedAt',
] as const
const columns = (sql: Sql) => sql.unsafe(MEMBERS.map((name) => `o."${name}"`).join(', '))
/** The request of an operation. It contains the number of ids instead of the ids, because there may be many ids. */
const shortRequest = (sql: Sql) => sql`
  ("Request" - 'Ids') || jsonb_build_object('IdCount', jsonb_array_length("Request"->'Ids')) as "Request"`

/** The columns of an entry in the action log that concerns an operation as a whole. */
const ofOperation = (sql: Sql) => sql`
  "Process", null::text as "TransactionID", null::int as "ReplayID", null::text as "Realm"`

export async function startOperation(
  sql: postgres.TransactionSql,
  id: string,
  { Action, Process, DryRun, Request }: OperationRequest,
  act: AuditContext,
): Promise<Operation> {
  // The lock lets only one operation of a service key start at a time. Therefore the count contains every operation
  // that was started before this one.
  await sql`select pg_advisory_xact_lock(hashtextextended(${`operations of ${act.by.keyId}`}, 0))`
  const open = await sql`
    select from "Order_Operation" where "FinishedAt" is null and "KeyID" = ${act.by.keyId}
    limit ${MAX_OPEN_OPERATIONS}`
  if (open.length >= MAX_OPEN_OPERATIONS) throw tooManyOperations(MAX_OPEN_OPERATIONS)
  const [row] = await sql<Operation[]>`
    with inserted as (
      insert into "Order_Operation" ("ID", "Action", "Process", "Request", "DryRun", "Status", "KeyID",
        "Person", "Reason", "Progress")
      values (${id}, ${Action}, ${Process}, ${JSON.stringify(Request)}::text::jsonb, ${DryRun}, 'Running',
        ${act.by.keyId}, ${act.by.person}, ${act.reason}, ${JSON.stringify(noProgress)}::text::jsonb)
      returning *),
    changed as (select ${ofOperation(sql)} from inserted),
    recorded as (${recordOnChanged(sql, 'start_operation', { ...act, operation: { id, replayId: null } })})
    select ${columns(sql)}, "Request" from inserted o`
  if (row === undefined) throw new Error('the operation was not inserted')
  return row
}

export async function getOperation(sql: Sql, id: string): Promise<OperationSummary | null> {
  const [row] = await sql<OperationSummary[]>`
    select ${columns(sql)}, ${shortRequest(sql)} from "Order_Operation" o where "ID" = ${id}`
  return row ?? null
}

/** Reads a page of operations, newest first. */
export async function listOperations(
  sql: postgres.Sql,
  { after, limit }: { readonly after?: OperationPosition | undefined; readonly limit: number },
): Promise<{ operations: OperationSummary[]; next: OperationPosition | null }> {
  const rows = await sql<(OperationSummary & { position: string })[]>`
    select ${columns(sql)}, ${shortRequest(sql)}, o."CreatedAt"::text as position
    from "Order_Operation" o
    where true ${
      after === undefined
        ? sql``
        : sql`and (o."CreatedAt", o."ID") < ((${after.createdAt}::text)::timestamptz, ${after.id}::text)`
    }
    order by o."CreatedAt" desc, o."ID" desc limit ${limit + 1}`
  const last = rows.length > limit ? rows[limit - 1] : undefined
  return {
    operations: rows.slice(0, limit).map(({ position: _position, ...row }) => row),
    next: last === undefined ? null : { createdAt: last.position, id: last.ID },
  }
}

/**
 * The changes that a person can request for an operation. `status` is the new status of the operation. `rejection` is
 * the error if its present status does not allow the change.
 */
const CHANGES = {
  stop_operation: { status: 'Stopped', rejection: operationNotRunning },
  continue_operation: { status: 'Running', rejection: operationNotPaused },
} as const

/** Stops an operation that has not ended, or continues a paused operation. */
export async function changeOperation(
  sql: postgres.Sql,
  kind: keyof typeof CHANGES,
  id: string,
  act: AuditContext,
  reason: string | null = null,
): Promise<OperationSummary> {
  const { status, rejection } = CHANGES[kind]
  const isStop = status === 'Stopped'
  const [row] = await sql<OperationSummary[]>`
    with updated as (
      update "Order_Operation" set "Status" = ${status}, "StatusReason" = ${reason}::text, "UpdatedAt" = now(),
        "FinishedAt" = case when ${isStop}::boolean then now() end
      where "ID" = ${id} and "FinishedAt" is null and (${isStop}::boolean or "Status" = 'Paused')
      returning *),
    changed as (select ${ofOperation(sql)} from updated),
    recorded as (${recordOnChanged(sql, kind, { ...act, operation: { id, replayId: null } })})
    select ${columns(sql)}, ${shortRequest(sql)} from updated o`
  if (row !== undefined) return row
  throw (await getOperation(sql, id)) === null ? operationNotFound() : rejection()
}

/** Returns the ids of the operations of a key that have not ended. */
export async function openOperations(sql: postgres.Sql, keyId: string): Promise<readonly string[]> {
  const rows = await sql<{ ID: string }[]>`
    select "ID" from "Order_Operation" where "FinishedAt" is null and "KeyID" = ${keyId}`
  return rows.map(({ ID }) => ID)
}

export async function keepOperation(sql: postgres.Sql, id: string): Promise<void> {
  await sql`
    update "Order_Operation" set "Request" = "Request" || '{"IsKept":true}' where "ID" = ${id}`
}

/**
 * Claims a running operation whose lease has expired or is missing. Chooses the operation that was changed least
 * recently.
 */
export async function claimOperation(
  sql: postgres.Sql,
  processes: readonly string[],
  owner: string,
  { leaseMs }: { readonly leaseMs: number },
): Promise<Operation | null> {
  const [row] = await sql<Operation[]>`
    with free as (
      select "ID" from "Order_Operation"
      where "FinishedAt" is null and "Status" = 'Running'
        and ("Action" = 'cancel' or ${JSON.stringify(processes)}::text::jsonb ? "Process")
        and ("LeaseUntil" is null or "LeaseUntil" <= now())
      order by "UpdatedAt" limit 1 for update skip locked)
    update "Order_Operation" o set "LeaseOwner" = ${owner},
      "LeaseUntil" = now() + ${leaseMs} * interval '1 ms'
    from free where o."ID" = free."ID"
    returning ${columns(sql)}, o."Request"`
  return row ?? null
}

export async function renewOperation(
  sql: postgres.Sql,
  { id, owner }: OperationLease,
  { leaseMs }: { readonly leaseMs: number },
): Promise<boolean> {
  const { count } = await sql`
    update "Order_Operation" set "LeaseUntil" = now() + ${leaseMs} * interval '1 ms'
    where "ID" = ${id} and "LeaseOwner" = ${owner}`
  return count > 0
}

/** Records the progress of a leased operation. If the operation was stopped in the meantime, it keeps its status. */
export async function recordProgress(
  sql: postgres.Sql,
  { id, owner }: OperationLease,
  progress: OperationProgress,
  end: OperationEnd | undefined,
  { leaseMs }: { readonly leaseMs: number },
): Promise<OperationStatus | null> {
  const status =
    end?.kind === 'completed' ? 'Completed' : end?.kind === 'paused' ? 'Paused' : 'Running'
  const reason = end?.kind === 'paused' ? end.reason : null
  const isKept = end === undefined
  const [row] = await sql<{ Status: OperationStatus }[]>`
    update "Order_Operation" set "Progress" = ${JSON.stringify(progress)}::text::jsonb,
      "Status" = case when "Status" = 'Running' then ${status} else "Status" end,
      "StatusReason" = case when "Status" = 'Running' then ${reason} else "StatusReason" end,
      "FinishedAt" = case when "Status" = 'Running' and ${status} = 'Completed' then now()
        else "FinishedAt" end,
      "LeaseOwner" = case when ${isKept}::boolean then "LeaseOwner" end,
      "LeaseUntil" = case when ${isKept}::boolean then now() + ${leaseMs} * interval '1 ms' end,
      "UpdatedAt" = now()
    where "ID" = ${id} and "LeaseOwner" = ${owner}
    returning "Status"`
  return row?.Status ?? null
}

export async function countOperations(
  sql: postgres.Sql,
): Promise<Record<'Running' | 'Paused', number>> {
  const rows = await sql<{ Status: 'Running' | 'Paused'; n: number }[]>`
    select "Status", count(*)::int as n from "Order_Operation" where "FinishedAt" is null
    group by "Status"`
  return { Running: 0, Paused: 0, ...Object.fromEntries(rows.map(({ Status, n }) => [Status, n])) }
}
