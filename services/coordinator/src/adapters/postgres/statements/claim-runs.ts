import type postgres from 'postgres'
import { idempotencyKey } from '../../../run/item.ts'
import type { SlotRequest } from '../../../run/slots.ts'
import { isDueStatus } from '../../../run/status.ts'
import type {
  ClaimRequest,
  ClaimResult,
  Lease,
  LeaseRenewal,
} from '../../../run/transaction-source.ts'
import { WORKER_LOST, WORKER_WAS_LOST } from '../../../run/transitions.ts'
import { areFew, isBeforeDeadline, isClaimable, isRunOf, leavesDoubt } from '../predicates.ts'
import { type ClaimedRow, claimOf, type Numbered, type RunRow } from '../rows.ts'
import { assignSlots, type LimitedClaim, lockSlotsOfClaims, parkRuns } from './slots.ts'

/**
 * Claims many runs in one statement and returns one result per request, in the order of the requests. If some requests
 * were rejected, a second statement reads the reasons.
 *
 * A claim also replaces an expired lease, whose worker never recorded its attempt. That attempt is recorded as
 * `in_doubt`, because it may have taken effect.
 */
export async function claimRuns(
  sql: postgres.Sql | postgres.TransactionSql,
  requests: readonly ClaimRequest[],
  { leaseMs }: { readonly leaseMs: number },
): Promise<ClaimResult[]> {
  const wanted = requests.map((request, n) => ({ ...request, n }))
  const claimed = await sql<ClaimedRow[]>`
    with moved as (
      update "Order_Header" h set
        "Status" = case h."Status" when 'Undoing' then h."Status" else 'Running' end, "StepName" = w.step, "Version" = h."Version" + 1,
        "LeaseOwner" = w.owner, "LeaseUntil" = now() + ${leaseMs} * interval '1 ms',
        "NextSweepAt" = least(h."NextSweepAt", now() + ${leaseMs} * interval '1 ms'), -- usually unchanged, so that its index is not written
        "SweepCount" = 0, "StartedAt" = now(), "Attempt" = h."Attempt" + 1, "WaitingFor" = null,
        "InDoubt" = h."InDoubt" or ${leavesDoubt(sql)}, "UpdatedAt" = now(),
        "ErrorClass" = case when h."LeaseUntil" is null then h."ErrorClass" else ${WORKER_LOST} end,
        "LastError" = case when h."LeaseUntil" is null then h."LastError" else ${WORKER_WAS_LOST} end
      from (
        select * from json_to_recordset(${JSON.stringify(wanted)}::text::json) as w(
          n int, "Process" text, "TransactionID" text, "ReplayID" int, step text, "isFirst" boolean,
          version int, owner text)
        where ${areFew(sql)}
        order by "Process", "TransactionID", "ReplayID") w
      where ${isClaimable(sql)}
      returning w.n, w."isFirst", h.*
    ), lost as (
      insert into "Order_Attempt"
        ("Process", "TransactionID", "ReplayID", "StepName", "Attempt", "Outcome", "StartedAt")
      select h."Process", h."TransactionID", h."ReplayID", h."StepName", h."Attempt", 'in_doubt',
        coalesce(h."StartedAt", now())
      from moved m, "Order_Header" h -- reads the row as it was before this statement
      where (m."InDoubt" or m."Status" = 'Undoing') and ${isRunOf(sql, 'm')} and h."LeaseUntil" is not null
    )
    select n, "Status", "Version", "Attempt", "InDoubt", "Priority", "InitialData", "Realm", "NextAttemptAt", "LastError",
      "ErrorClass", "DefinitionVersion", "DeadlineAt", "CreatedAt", "UpdatedAt", case when not "isFirst" or "Version" > 1 then (
      select json_agg(f) from (
        select "StepName", "Status", "ResponseStatus", "ResponseBody", "Data", "Error", "State", "Round"
        from "Order_Item" i
        where (i."Process", i."TransactionID", i."ReplayID")
          = (m."Process", m."TransactionID", m."ReplayID")
          and (i."Status" in ('Completed', 'Copied', 'Skipped') or i."Round" is not null)) f) end as items
    from moved m`
  const byNumber = new Map(claimed.map((row) => [row.n, row]))
  const rejected = wanted.filter(({ n }) => !byNumber.has(n))
  const reasons = rejected.length === 0 ? NO_REASONS : await rejectionReasons(sql, rejected)
  return wanted.map(({ n, ...request }): ClaimResult => {
    const row = byNumber.get(n)
    return row === undefined
      ? (reasons.get(n) ?? { kind: 'unknown' })
      : { kind: 'claimed', claim: claimOf(request, row) }
  })
}

/** Reads why claims were rejected, from the current state of the rows. */
async function rejectionReasons(
  sql: postgres.Sql | postgres.TransactionSql,
  rejected: readonly (ClaimRequest & { readonly n: number })[],
): Promise<ReadonlyMap<number, ClaimResult>> {
  const rows = await sql<
    (Numbered<RunRow> & {
      requestedVersion: number
      step: string
      delayMs: number | null
      isBeforeDeadline: boolean
    })[]
  >`
    select w.n, w.version as "requestedVersion", w.step, h.*,
      (extract(epoch from h."NextAttemptAt" - now()) * 1000)::float8 as "delayMs",
      ${isBeforeDeadline(sql)} as "isBeforeDeadline"
    from jsonb_to_recordset(${JSON.stringify(rejected)}::text::jsonb)
      as w(n int, "Process" text, "TransactionID" text, "ReplayID" int, version int, step text)
      join "Order_Header" h using ("Process", "TransactionID", "ReplayID")`
  return new Map(
    rows.map((row): [number, ClaimResult] => {
      const isDueLater =
        row.Version === row.requestedVersion &&
        (row.StepName === row.step || row.StepName === '') &&
        row.LeaseUntil === null &&
        row.isBeforeDeadline &&
        row.delayMs !== null &&
        isDueStatus(row.Status) &&
        row.WaitingFor === null
      return [
        row.n,
        isDueLater
          ? { kind: 'early', delayMs: Math.max(0, row.delayMs ?? 0), version: row.Version }
          : { kind: 'stale' },
      ]
    }),
  )
}

const NO_REASONS: ReadonlyMap<number, ClaimResult> = new Map()

/**
 * Claims runs of processes that limit the number of runs in progress. Runs with a slot are claimed by the same
 * statement as the runs of processes without a limit. Runs without a slot become `Waiting`.
 */
export async function claimWithSlots(
  tx: postgres.TransactionSql,
  requests: readonly (ClaimRequest & { readonly slot: SlotRequest })[],
  times: { readonly leaseMs: number },
): Promise<ClaimResult[]> {
  const wanted = requests.map(({ slot, ...request }, n): LimitedClaim => ({
    ...request,
    ...slot,
    n,
  }))
  const results = new Map<number, ClaimResult>()
  const withKey: LimitedClaim[] = []
  const exempt: LimitedClaim[] = []
  for (const locked of await lockSlotsOfClaims(tx, wanted)) {
    const { n, key, isExempt, InitialData: initialData, Realm: realm, Version: version } = locked
    if (isExempt) exempt.push(wanted[n] as LimitedClaim)
    else if (key === null)
      results.set(n, { kind: 'unkeyed', initialData, version, ...(realm !== null && { realm }) })
    else withKey.push({ ...(wanted[n] as LimitedClaim), key })
  }
  const assigned = withKey.length === 0 ? [] : await assignSlots(tx, withKey)
  const isAssigned = (test: (slot: (typeof assigned)[number]) => boolean) => {
    const chosen = new Set(assigned.filter(test).map(({ n }) => n))
    return withKey.filter(({ n }) => chosen.has(n))
  }
  const toClaim = [...exempt, ...isAssigned(({ hasSlot }) => hasSlot)]
  const claimed = toClaim.length === 0 ? [] : await claimRuns(tx, toClaim, times)
  for (const [index, { n }] of toClaim.entries())
    results.set(n, claimed[index] ?? { kind: 'unknown' })
  // A run that still has the lease of a lost worker does not become `Waiting` here, because lease recovery must first
  // record the attempt of that worker.
  const toPark = isAssigned(({ hasSlot, isLeased }) => !hasSlot && !isLeased)
  const parked = toPark.length === 0 ? [] : await parkRuns(tx, toPark)
  for (const { n, isNew, ...run } of parked)
    results.set(n, isNew ? { kind: 'no_slot', run } : { kind: 'stale' })
  const rejected = wanted.filter(({ n }) => !results.has(n))
  const reasons = rejected.length === 0 ? results : await rejectionReasons(tx, rejected)
  return wanted.map(({ n }) => results.get(n) ?? reasons.get(n) ?? { kind: 'unknown' })
}

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
