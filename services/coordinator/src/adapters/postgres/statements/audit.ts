import {
  isOfProvider,
  PROVIDER_ERROR,
} from '@integration-host/shared/provider-profile/provider-fault'
import type postgres from 'postgres'
import {
  type Audit,
  auditOf,
  type AuditCounts,
  type EndedGroup,
  type RunGroup,
  type UnfinishedGroup,
} from '../../../run/audit.ts'
import { pausesOf, type ProcessRow } from '../../../run/pause.ts'
import { STUCK_MS } from '../../../run/transaction-source.ts'
import { isActive, isUnleased } from '../predicates.ts'
import { endedRanges, type EndedRange, processNames } from './process-names.ts'

/** The maximum number of unfinished runs that are counted. */
const MAX_UNFINISHED = 1_000_000
/** The maximum number of groups of unfinished runs. Runs that wait for different credentials are in different groups. */
const MAX_UNFINISHED_GROUPS = 10_000
/** The maximum number of failed and cancelled runs that are counted from the index alone. */
const MAX_ENDED = 200_000
/** The maximum number of failed and cancelled runs whose rows are read to find their steps. */
const MAX_ENDED_READ = 20_000
/** Completed runs are counted exactly up to this number. A larger number is estimated. */
const MAX_COMPLETED = 100_000
/** The maximum number of rows that each consistency check of runs and items reads. */
const MAX_COMPARED = 50_000

/**
 * Counts runs and checks the tables. Finished runs accumulate, so each statement reads only an index that contains the
 * relevant rows, and at most a fixed number of these rows.
 */
export async function auditTables(
  tx: postgres.TransactionSql,
  processes: readonly string[],
): Promise<Audit> {
  const [clock] = await tx<[{ at: string }]>`select now() as at`
  const paused = pausesOf(await tx<ProcessRow[]>`select * from "Order_Process"`)
  const unfinished = await unfinishedGroups(tx)
  const orphanItems = await countOrphanItems(tx)
  // Bitmap scans are disabled for the following statements, because a bitmap scan reads the whole index before it
  // returns its first row, even with a small LIMIT. The preceding statements need bitmap scans, which are cheap there:
  // the indexes of these statements contain only unfinished or recent rows.
  await tx`set local enable_bitmapscan = off`
  const { groups: endedBadly, isLowerBound } = await endedBadlyGroups(tx)
  const completed = await countCompleted(tx, { count: sumOf(endedBadly), isLowerBound })
  const counts: AuditCounts = {
    at: clock.at,
    unfinished,
    endedBadly,
    completed: completed.count,
    inexact: {
      unfinished:
        sumOf(unfinished) >= MAX_UNFINISHED || unfinished.length === MAX_UNFINISHED_GROUPS,
      endedBadly: isLowerBound,
      completed: completed.isEstimated,
    },
    itemViolations: { ...(await compareItems(tx)), orphanItems },
  }
  return auditOf(counts, { processes, paused })
}

const sumOf = (groups: readonly RunGroup[]): number =>
  groups.reduce((total, { Count }) => total + Count, 0)

function unfinishedGroups(tx: postgres.TransactionSql): Promise<UnfinishedGroup[]> {
  const isDue = tx`("Status" <> 'Waiting' and "WaitingFor" is null
    and coalesce("NextAttemptAt", now()) <= now() and ${isUnleased(tx)})`
  return tx<UnfinishedGroup[]>`
    select "Process", "Status", "StepName", "ErrorClass", "WaitingFor", "DefinitionVersion",
      count(*)::int as "Count",
      count(*) filter (where "InDoubt")::int as "InDoubt", min("CreatedAt") as "OldestCreatedAt",
      count(*) filter (where ${isDue})::int as due,
      coalesce(extract(epoch from now()
        - min(greatest(coalesce("NextAttemptAt", "CreatedAt"), "LeaseUntil")) filter (where ${isDue}))
        * 1000, 0)::float8 as "oldestDueMs",
      count(*) filter (where greatest("NextSweepAt", "LeaseUntil")
        < now() - ${STUCK_MS} * interval '1 ms')::int as stuck
    from (
      select * from "Order_Header" h where "CompletedAt" is null and ${isActive(tx)}
      limit ${MAX_UNFINISHED}) h
    group by 1, 2, 3, 4, 5, 6 order by count(*) desc limit ${MAX_UNFINISHED_GROUPS}`
}

/**
 * Counts failed and cancelled runs. The runs are counted in an index. The index does not contain their steps, so the
 * steps of the oldest runs are read from their rows.
 */
async function endedBadlyGroups(
  tx: postgres.TransactionSql,
): Promise<{ readonly groups: EndedGroup[]; readonly isLowerBound: boolean }> {
  const ranges = await endedRanges(tx, null)
  if (ranges === null) return { groups: [], isLowerBound: true }
  const share = (max: number): number => Math.floor(max / Math.max(1, ranges.length))
  const isInRange = tx`h."Process" = r.process and h."EndedAs" = r.ended
    and h."EndedClass" = r.class and h."EndedInDoubt" = r.doubt and h."PurgedAt" is null`
  const rows = await tx<EndedRow[]>`
    select r.n, counted.count as "inRange", step.*
    from json_to_recordset(${JSON.stringify(ranges.map((range, n) => ({ ...range, n })))}::text::json)
        as r(n int, process text, ended text, class text, doubt boolean)
      cross join lateral (
        select count(*)::int from (
          select from "Order_Header" h where ${isInRange} limit ${share(MAX_ENDED)}) h) counted
      cross join lateral (
        select "StepName" as step, "providerError", count(*)::int, min("CreatedAt") as oldest,
          max("CreatedAt") as newest, min("CompletedAt") as ended
        from (
          select "StepName", "CreatedAt", "CompletedAt",
            substring("LastError" from ${PROVIDER_ERROR}) as "providerError"
          from "Order_Header" h where ${isInRange}
          order by "CreatedAt", "TransactionID", "ReplayID" limit ${share(MAX_ENDED_READ)}) h
        group by 1, 2 order by count(*) desc) step`
  const isLowerBound = rows.some(({ inRange }) => inRange >= share(MAX_ENDED))
  return { groups: endedGroups(ranges, rows), isLowerBound }
}

/**
 * The counts for one step in one index range. `inRange` is the number of all runs in the range. `count` is the number
 * of runs at the step, among those runs of the range whose rows were read.
 */
interface EndedRow {
  readonly n: number
  readonly inRange: number
  readonly step: string
  readonly providerError: string | null
  readonly count: number
  readonly oldest: string
  readonly newest: string
  /** The time at which the first of the runs at this step ended. */
  readonly ended: string
}

/** Returns the earlier one of two times; `null` if neither is known. */
const earlier = (one: string | null, other: string | null): string | null =>
  one !== null && (other === null || one < other) ? one : other

/** The maximum number of different messages of providers that are distinguished. */
const MAX_PROVIDER_ERRORS = 100

/**
 * Returns one group for each process, status, error class, step and message of a provider. A group contains both the runs in doubt and the
 * runs that are not in doubt.
 */
function endedGroups(ranges: readonly EndedRange[], rows: readonly EndedRow[]): EndedGroup[] {
  const groups = new Map<string, EndedGroup>()
  const messages = new Set<string>()
  const add = (
    range: EndedRange,
    StepName: string | null,
    message: string | null,
    count: number,
    oldest: string,
    ended: string | null,
  ): void => {
    const { process: Process, ended: Status, doubt } = range
    const ErrorClass = range.class === '' ? null : range.class
    if (message !== null && messages.size < MAX_PROVIDER_ERRORS) messages.add(message)
    const ProviderError =
      message !== null && messages.has(message) && isOfProvider(ErrorClass) ? message : null
    const key = JSON.stringify([Process, Status, ErrorClass, StepName, ProviderError])
    const known = groups.get(key)
    groups.set(key, {
      Process,
      Status,
      ErrorClass,
      StepName,
      WaitingFor: null,
      Count: (known?.Count ?? 0) + count,
      InDoubt: (known?.InDoubt ?? 0) + (doubt ? count : 0),
      OldestCreatedAt:
        known !== undefined && known.OldestCreatedAt < oldest ? known.OldestCreatedAt : oldest,
      FirstEndedAt: earlier(known?.FirstEndedAt ?? null, ended),
      ProviderError,
    })
  }
  for (const [n, range] of ranges.entries()) {
    const read = rows.filter((row) => row.n === n)
    for (const { step, providerError, count, oldest, ended } of read)
      add(range, step, providerError, count, oldest, ended)
    const rest = (read[0]?.inRange ?? 0) - read.reduce((total, { count }) => total + count, 0)
    const newest = read.map((row) => row.newest).toSorted()
    if (rest > 0) add(range, null, null, rest, newest.at(-1) ?? '', null)
  }
  return [...groups.values()].toSorted((a, b) => b.Count - a.Count)
}

/** Counts completed runs: runs that have ended and have neither failed nor been cancelled. */
async function countCompleted(
  tx: postgres.TransactionSql,
  endedBadly: { readonly count: number; readonly isLowerBound: boolean },
): Promise<{ readonly count: number; readonly isEstimated: boolean }> {
  const max = endedBadly.count + MAX_COMPLETED
  const [row] = await tx<[{ over: number; overEstimated: number; endedEstimated: number }]>`
    select (select count(*)::int from (
        select from "Order_Header" where "CompletedAt" is not null and "PurgedAt" is null
        order by "Process", "CompletedAt", "TransactionID", "ReplayID" limit ${max + 1}) h) as over,
      ${entriesOf(tx, 'Order_Header_completed')} as "overEstimated",
      ${entriesOf(tx, 'Order_Header_ended')} as "endedEstimated"`
  if (row.over <= max && !endedBadly.isLowerBound)
    return { count: row.over - endedBadly.count, isEstimated: false }
  const ended = endedBadly.isLowerBound
    ? Math.max(endedBadly.count, row.endedEstimated)
    : endedBadly.count
  const count = Math.max(0, Math.round(Math.max(row.over, row.overEstimated) - ended))
  return { count, isEstimated: true }
}

/**
 * Returns PostgreSQL's estimate of how many entries an index has. Each VACUUM or ANALYZE of the table updates the
 * estimate.
 */
const entriesOf = (tx: postgres.TransactionSql, index: string) =>
  tx`(select reltuples::float8 from pg_class where oid = to_regclass(${`"${index}"`}))`

/**
 * Counts contradictions between runs and their items. It checks unfinished runs, and runs that have ended within the
 * last hour.
 */
async function compareItems(tx: postgres.TransactionSql): Promise<ItemViolations> {
  const names = JSON.stringify(await processNames(tx))
  const [violations] = await tx<[ItemViolations]>`
    select
      (select count(*)::int from (
          select h.* from jsonb_array_elements_text(${names}::text::jsonb) as p(name) cross join lateral (
            select "Process", "TransactionID", "ReplayID", "StepName", "Status" from "Order_Header" h
            where h."Process" = p.name and "CompletedAt" > now() - interval '1 hour'
              and "PurgedAt" is null
            order by "CompletedAt" desc, "TransactionID" desc, "ReplayID" desc
            limit ${MAX_COMPARED}) h
          limit ${MAX_COMPARED}) h
        where h."Status" = 'Completed' and not exists (select from "Order_Item" i
          where i."Process" = h."Process" and i."TransactionID" = h."TransactionID"
            and i."ReplayID" = h."ReplayID" and i."StepName" = h."StepName"
            and i."Status" in ('Completed', 'Skipped'))) as "completedWithoutItem",
      (select count(*)::int from (
          select "Process", "TransactionID", "ReplayID", "StepName" from "Order_Header" h
          where h."CompletedAt" is null and ${isActive(tx)} limit ${MAX_COMPARED}) h
        where exists (select from "Order_Item" i where i."Process" = h."Process"
          and i."TransactionID" = h."TransactionID" and i."ReplayID" = h."ReplayID"
          and i."StepName" = h."StepName" and i."Status" in ('Completed', 'Skipped'))) as "itemAhead"`
  return violations
}

type ItemViolations = Pick<AuditCounts['itemViolations'], 'completedWithoutItem' | 'itemAhead'>

/** Counts the items of the last hour that belong to no run. */
async function countOrphanItems(tx: postgres.TransactionSql): Promise<number> {
  const [{ count }] = await tx<[{ count: number }]>`
    select count(*)::int from (
      select * from "Order_Item" where "FinishedAt" > now() - interval '1 hour'
      limit ${MAX_COMPARED}) i
    where not exists (select from "Order_Header" h where h."Process" = i."Process"
      and h."TransactionID" = i."TransactionID" and h."ReplayID" = i."ReplayID")`
  return count
}
