/**
 * The statements on `"Order_Slot"`. Each of them runs in a database transaction that has first locked the slots of its
 * processes and keys. A separate statement acquires this lock, so that the next statement sees what was committed
 * during the wait for the lock. The database transaction acquires this lock before it locks any row.
 */
import type postgres from 'postgres'
import { WAITS_FOR_SLOT } from '../../../run/concurrency.ts'
import type { Json } from '../../../run/json-normalization.ts'
import type { RunKey } from '../../../run/run.ts'
import { type Grants, MAX_GRANTS, type ProcessLimit, SLOT_RECHECK_MS } from '../../../run/slots.ts'
import type { ClaimRequest, RunState } from '../../../run/transaction-source.ts'
import { areFew, isClaimable, isRunOf } from '../predicates.ts'

type Tx = postgres.TransactionSql

/**
 * A claim of a run whose process has a limit. A `key` of `null` means the concurrency key that is stored with the run.
 */
export interface LimitedClaim extends ClaimRequest {
  readonly n: number
  readonly limit: number
  readonly key: string | null
}

export interface LockedClaim {
  readonly n: number
  /**
   * `null` if the concurrency key of the run is unknown. In this case `InitialData` is set, because the key is derived
   * from it.
   */
  readonly key: string | null
  /** Whether the run needs no slot, because it is being undone. */
  readonly isExempt: boolean
  readonly InitialData: Json
  readonly Version: number
}

const slotLock = (tx: Tx, process: postgres.Fragment, key: postgres.Fragment) =>
  tx`hashtextextended(json_build_array('Order_Slot', ${process}, ${key})::text, 0)`

const claims = (tx: Tx, wanted: readonly LimitedClaim[]) => tx`
  select * from json_to_recordset(${JSON.stringify(wanted)}::text::json) as w(
    n int, "Process" text, "TransactionID" text, "ReplayID" int, step text, "isFirst" boolean,
    version int, key text, "limit" bigint)
  where ${areFew(tx)}`

const isSameRun = (tx: Tx, alias: 's', other: 'h' | 'r') => {
  const [one, two] = [tx(alias), tx(other)]
  return tx`${one}."Process" = ${two}."Process" and ${one}."TransactionID" = ${two}."TransactionID"
    and ${one}."ReplayID" = ${two}."ReplayID"`
}
/**
 * Returns the value of a condition on the run of the row `s`; false if there is no such run. The scalar subquery makes
 * PostgreSQL read the run by its primary key; with EXISTS, the planner may read all waiting runs first.
 */
const ofRun = (tx: Tx, condition: postgres.Fragment) => tx`coalesce((
  select ${condition} from "Order_Header" h where ${isRunOf(tx, 's')}), false)`
/**
 * True if the run of the row is in progress. A row of `"Order_Slot"` with `Held` occupies a slot only while this is
 * true.
 */
const isInProgress = (tx: Tx) => ofRun(tx, tx`h."Status" = 'Running'`)
const isParked = (tx: Tx) => tx`h."Status" = 'Waiting' and h."WaitingFor" = ${WAITS_FOR_SLOT}`
/**
 * True for the row of a run that a request may claim. IN makes PostgreSQL build one hash table; with EXISTS, it would
 * scan the requests for each row.
 */
const isClaimed = (tx: Tx) => tx`(s."Process", s."TransactionID", s."ReplayID") in (
  select "Process", "TransactionID", "ReplayID" from claimable)`
/** The number of free slots of the group `g`. */
const freeSlots = (tx: Tx) => tx`greatest(0, g."limit" - (
  select count(*) from "Order_Slot" s
  where s."Process" = g."Process" and s."Key" = g.key and s."Held" and ${isInProgress(tx)}))`
/** The first `most` waiting rows of the group, in the order in which they get slots. */
const front = (tx: Tx, group: 'f' | 'g', most: postgres.Fragment) => tx`
  select * from "Order_Slot" s
  where s."Process" = ${tx(group)}."Process" and s."Key" = ${tx(group)}.key and not s."Held"
  order by s."DueAt", s."TransactionID", s."ReplayID" limit ${most}`
/** The columns of a {@link RunState}. */
const state = (tx: Tx) => tx`
  h."Process", h."TransactionID", h."ReplayID", h."Status", h."StepName", h."Version", h."Attempt",
  h."InDoubt", case when h."Priority" > 0 then 'high' else 'normal' end as "Priority",
  h."NextAttemptAt", h."WaitingFor", h."LastError", h."ErrorClass", h."UpdatedAt",
  h."CompletedAt"`

/** Locks the slots of the runs that the requests may claim, and returns these requests with the keys of their runs. */
export async function lockSlotsOfClaims(
  tx: Tx,
  wanted: readonly LimitedClaim[],
): Promise<LockedClaim[]> {
  return tx<LockedClaim[]>`
    select n, key, "InitialData", "Version", "isExempt",
      case when key is not null then pg_advisory_xact_lock(lock) end
    from (
      select w.n, k.key, h."Version", h."Status" = 'Undoing' as "isExempt", case when k.key is null then h."InitialData" end as "InitialData",
        ${slotLock(tx, tx`w."Process"`, tx`k.key`)} as lock
      from (${claims(tx, wanted)}) w join "Order_Header" h on ${isClaimable(tx)}
        cross join lateral (
          select case when w.key = '' then '' else coalesce(h."ConcurrencyKey", w.key) end as key) k
      order by lock) locked -- all database transactions lock in the same order`
}

/**
 * Decides which runs may be claimed. A run that has a slot may be claimed. A run without a slot gets one if enough
 * slots are free for this run and for all runs that have waited longer. All other runs are stored as waiting.
 * `isLeased` is true for a run of a lost worker.
 */
export async function assignSlots(
  tx: Tx,
  wanted: readonly LimitedClaim[],
): Promise<{ n: number; hasSlot: boolean; isLeased: boolean }[]> {
  return tx<{ n: number; hasSlot: boolean; isLeased: boolean }[]>`
    with claimable as (
      select distinct on (h."Process", h."TransactionID", h."ReplayID") w.n, w.key, w."limit",
        h."Process", h."TransactionID", h."ReplayID", coalesce(h."NextAttemptAt", now()) as due,
        h."LeaseUntil" is not null as "isLeased",
        coalesce(s."Held" and s."Key" = w.key and h."Status" = 'Running', false) as holds
      from (${claims(tx, wanted)}) w join "Order_Header" h on ${isClaimable(tx)}
        left join "Order_Slot" s on ${isSameRun(tx, 's', 'h')}
      order by h."Process", h."TransactionID", h."ReplayID", w.n
    ), keyed as (
      update "Order_Header" h set "ConcurrencyKey" = r.key from claimable r
      where ${isRunOf(tx, 'r')} and r.key <> '' and h."ConcurrencyKey" is null
    ), g as (
      select "Process", key, max("limit") as "limit" from claimable group by 1, 2
    ), gone as (
      delete from "Order_Slot" s using g
      where s."Process" = g."Process" and s."Key" = g.key and s."Held" and not ${isInProgress(tx)}
        and not ${isClaimed(tx)}
    ), f as materialized (
      select g.*, ${freeSlots(tx)} as free from g
    ), candidates as (
      select r.n, f."Process", f.key, f.free, r.due, r."TransactionID", r."ReplayID"
      from claimable r join f on f."Process" = r."Process" and f.key = r.key
      where not r.holds
      union all
      select null, f."Process", f.key, f.free, s."DueAt", s."TransactionID", s."ReplayID"
      from f cross join lateral (${front(tx, 'f', tx`f.free`)}) s
      where ${ofRun(tx, isParked(tx))} and not ${isClaimed(tx)}
    ), ranked as (
      select n, free, row_number() over (
        partition by "Process", key order by due, "TransactionID", "ReplayID") as rank
      from candidates
    ), decided as (
      select r.*, r.holds or r.n in (
        select n from ranked where rank <= free and n is not null) as "hasSlot"
      from claimable r
    ), stored as (
      insert into "Order_Slot" as s ("Process", "TransactionID", "ReplayID", "Key", "Held", "DueAt")
      select "Process", "TransactionID", "ReplayID", key, "hasSlot", due
      from decided where "hasSlot" or not "isLeased"
      on conflict ("Process", "TransactionID", "ReplayID") do update set
        "Key" = excluded."Key", "Held" = excluded."Held", "DueAt" = excluded."DueAt"
        where s."Key" <> excluded."Key" or s."Held" <> excluded."Held"
          or (not s."Held" and s."DueAt" <> excluded."DueAt")
    )
    select n, "hasSlot", "isLeased" from decided`
}

/** Makes runs wait for a slot. If a run already waits, only its next sweep is postponed, and `isNew` is false. */
export async function parkRuns(
  tx: Tx,
  wanted: readonly LimitedClaim[],
): Promise<(RunState & { readonly n: number; readonly isNew: boolean })[]> {
  return tx<(RunState & { readonly n: number; readonly isNew: boolean })[]>`
    update "Order_Header" h set
      "Version" = h."Version" + case when ${isParked(tx)} then 0 else 1 end,
      "UpdatedAt" = case when ${isParked(tx)} then h."UpdatedAt" else now() end,
      "Status" = 'Waiting', "WaitingFor" = ${WAITS_FOR_SLOT}, "StepName" = w.step,
      "NextSweepAt" = now() + ${SLOT_RECHECK_MS} * interval '1 ms', "SweepCount" = 0
    from (${claims(tx, wanted)} order by "Process", "TransactionID", "ReplayID") w
    where ${isClaimable(tx)} and h."LeaseUntil" is null
    returning w.n, h."Version" > w.version as "isNew", ${state(tx)}`
}

/**
 * One call reads as many waiting rows of a group as the group has free slots, and at most this many additional rows.
 * The additional rows are needed because the run of a row may no longer wait. Such a row is removed and gets no slot.
 */
const MAX_REMOVED = 100
/** The maximum number of groups whose slots one call assigns. */
const MAX_GROUPS = 100

/** Assigns free slots to the runs that have waited longest for them. */
export async function grantSlots(
  sql: postgres.Sql,
  limits: readonly ProcessLimit[],
  released: readonly RunKey[] | null,
  { sweepMs }: { readonly sweepMs: number },
): Promise<Grants> {
  const groups = released === null ? await groupsToGrant(sql, limits) : null
  if (groups?.length === 0) return { runs: [], hasMore: false }
  return sql.begin(async (tx) => {
    const locked = await lockGroups(tx, groups, released ?? [])
    if (locked.length === 0) return { runs: [], hasMore: false }
    const limited = locked.flatMap((group) => {
      const known = limits.find(({ process }) => process === group.Process)
      return known === undefined ? [] : [{ ...group, limit: known.limit ?? NO_LIMIT }]
    })
    const { runs, removed } = await grant(tx, limited, sweepMs)
    const isFull = runs.length === MAX_GRANTS || groups?.length === MAX_GROUPS
    return { runs, hasMore: isFull || removed > 0 }
  })
}

const NO_LIMIT = 2_147_483_647

export interface Group {
  readonly Process: string
  readonly Key: string
}

/**
 * Returns the groups in which a run waits although a slot is free. Also returns the groups in which a run that is not
 * in progress still has a slot.
 */
async function groupsToGrant(
  sql: postgres.Sql,
  limits: readonly ProcessLimit[],
): Promise<readonly Group[]> {
  const tx = sql as unknown as Tx // the two types differ only in the type of their fragments
  const rows = limits.map(({ process, limit }) => ({ process, limit: limit ?? NO_LIMIT }))
  return sql<Group[]>`
    with g as (
      select s."Process", s."Key" as key, l."limit", bool_or(not s."Held") as waits,
        bool_or(s."Held" and not ${isInProgress(tx)}) as gone
      from json_to_recordset(${JSON.stringify(rows)}::text::json) as l(process text, "limit" bigint)
        join "Order_Slot" s on s."Process" = l.process
      group by 1, 2, 3)
    select "Process", key as "Key" from g
    where gone or (waits and ${freeSlots(tx)} > 0) limit ${MAX_GROUPS}`
}

/** Locks the slots of the groups, or of the groups to which the released runs belong, and returns these groups. */
export function lockGroups(
  tx: Tx,
  groups: readonly Group[] | null,
  released: readonly RunKey[],
): Promise<readonly Group[]> {
  const chosen =
    groups === null
      ? // The row of a released run may already be removed, so the key is read from the run as well.
        tx`
          with r as (
            select * from json_to_recordset(${JSON.stringify(released)}::text::json)
              as r("Process" text, "TransactionID" text, "ReplayID" int)
          )
          select s."Process", s."Key" from r join "Order_Slot" s on ${isSameRun(tx, 's', 'r')}
          union
          select h."Process", coalesce(h."ConcurrencyKey", '')
          from r join "Order_Header" h on ${isRunOf(tx, 'r')}`
      : tx`select * from json_to_recordset(${JSON.stringify(groups)}::text::json)
          as s("Process" text, "Key" text)`
  return tx<Group[]>`
    select "Process", "Key", pg_advisory_xact_lock(lock) from (
      select s.*, ${slotLock(tx, tx`s."Process"`, tx`s."Key"`)} as lock from (${chosen}) s
      order by lock) locked`
}

/**
 * Removes the rows of runs that are not in progress, and assigns the free slots to the first waiting runs. If the run
 * of a row no longer waits, the row is removed and gets no slot; `removed` counts these rows.
 */
async function grant(
  tx: Tx,
  groups: readonly (Group & { readonly limit: number })[],
  sweepMs: number,
): Promise<{ readonly runs: RunState[]; readonly removed: number }> {
  const rows = await tx<(RunState & { readonly removed: number })[]>`
    with g as (
      select s."Process", s."Key" as key, s."limit"
      from json_to_recordset(${JSON.stringify(groups)}::text::json)
        as s("Process" text, "Key" text, "limit" bigint)
    ), gone as (
      delete from "Order_Slot" s using g
      where s."Process" = g."Process" and s."Key" = g.key and s."Held" and not ${isInProgress(tx)}
    ), f as materialized (
      select g.*, ${freeSlots(tx)} as free from g
    ), first as (
      select s.*, f.free, ${ofRun(tx, isParked(tx))} as waits
      from f cross join lateral (
        ${front(tx, 'f', tx`least(f.free + ${MAX_REMOVED}::int, ${MAX_GRANTS}::int)`)}) s
      where f.free > 0
    ), chosen as (
      select * from (
        select *, row_number() over (
          partition by "Process", "Key" order by "DueAt", "TransactionID", "ReplayID") as rank
        from first where waits) ranked
      where rank <= free limit ${MAX_GRANTS}
    ), removed as (
      delete from "Order_Slot" s using first r where not r.waits and ${isSameRun(tx, 's', 'r')}
      returning 1
    ), granted as (
      update "Order_Slot" s set "Held" = true from chosen r where ${isSameRun(tx, 's', 'r')}
    ), moved as (
      update "Order_Header" h set "Status" = 'Running', "Version" = h."Version" + 1,
        "WaitingFor" = null, "NextSweepAt" = now() + ${sweepMs} * interval '1 ms',
        "SweepCount" = 0, "UpdatedAt" = now()
      from (select * from chosen order by "Process", "TransactionID", "ReplayID") r
      where ${isRunOf(tx, 'r')} and ${isParked(tx)}
      returning ${state(tx)}
    )
    select moved.*, count.removed
    from (select count(*)::int as removed from removed) count left join moved on true`
  const removed = rows[0]?.removed ?? 0
  const runs = rows.filter(({ Process }) => Process !== null)
  return { runs: runs.map(({ removed: _removed, ...run }) => run), removed }
}
