import type postgres from 'postgres'
import type { ClaimRequest, ClaimResult } from '../../../run/transaction-source.ts'
import { isDueStatus } from '../../../run/status.ts'
import { WORKER_LOST, WORKER_WAS_LOST } from '../../../run/transitions.ts'
import { areFew, isBeforeDeadline, isClaimable, isRunOf, leavesDoubt } from '../predicates.ts'
import { type ClaimedRow, claimOf, type Numbered, type RunRow } from '../rows.ts'

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
export async function rejectionReasons(
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
