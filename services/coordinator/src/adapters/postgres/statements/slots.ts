/**
 * The statements on `"Order_Slot"`. A group is a set of rows whose slots depend on each other: the rows of a process with
 * a total, or those of a process and key. Each statement runs in a database transaction that has first locked its groups. A separate statement acquires this lock, so that the next statement sees what was committed
 * during the wait for the lock. The database transaction acquires this lock before it locks any row.
 */
import type postgres from 'postgres'
import { WAITS_FOR_SLOT } from '../../../run/concurrency.ts'
import type { Json } from '../../../run/json-normalization.ts'
import type { RunKey } from '../../../run/run.ts'
import { type Grants, MAX_GRANTS, type ProcessLimit, SLOT_RECHECK_MS } from '../../../run/slots.ts'
import type { ClaimRequest, RunState } from '../../../run/transaction-source.ts'
import { stateColumns } from '../rows.ts'
import { areFew, isClaimable, isRunOf } from '../predicates.ts'

type Tx = postgres.TransactionSql

/**
 * One call reads as many waiting rows of a group as the group has free slots, and at most this many additional rows. The
 * additional rows are needed because the run of a row may no longer wait. Such a row is removed and gets no slot.
 */
const MAX_REMOVED = 100
/** A group in which more keys wait has many keys: to find all of them would take longer than to run their steps. */
const MANY_KEYS = 100

/**
 * A claim of a run whose process has a limit. A `key` of `null` means the concurrency key that is stored with the run.
 */
export interface LimitedClaim extends ClaimRequest {
  readonly n: number
  readonly limit: number
  readonly total?: number
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
  readonly Realm: string | null
  readonly Version: number
}

const slotLock = (tx: Tx, process: postgres.Fragment, key: postgres.Fragment) =>
  tx`hashtextextended(json_build_array('Order_Slot', ${process}, ${key})::text, 0)`

const claims = (tx: Tx, wanted: readonly LimitedClaim[]) => tx`
  select * from json_to_recordset(${JSON.stringify(wanted)}::text::json) as w(
    n int, "Process" text, "TransactionID" text, "ReplayID" int, step text, "isFirst" boolean,
    version int, key text, "limit" bigint, total bigint)
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
/** The key of the group of a request: empty if the process has a total. */
const groupKey = (tx: Tx) => tx`case when w.total is null then w.key else '' end`
/**
 * True for the rows of the group. It is a range of keys, so that an index finds the rows of both kinds of groups. The last
 * key is behind all others, which are compared by their bytes and have at most 255 characters.
 */
const isOf = (tx: Tx, group: 'f' | 'g') => tx`s."Process" = ${tx(group)}."Process"
  and s."Key" >= ${tx(group)}.key
  and s."Key" <= case when ${tx(group)}.total is null then ${tx(group)}.key else repeat(chr(1114111), 256) end`
/** Deletes the rows of the groups `g` with a slot whose runs are not in progress. */
const gone = (tx: Tx, condition: postgres.Fragment) => tx`
  gone as (
    delete from "Order_Slot" s using g cross join lateral (
      select s."Process", s."TransactionID", s."ReplayID" from "Order_Slot" s
      where ${isOf(tx, 'g')} and s."Held" and not ${isInProgress(tx)} and ${condition} offset 0) r
    where ${isSameRun(tx, 's', 'r')}
  )`
/** The groups `g` with the number of slots that each of their keys has, as an object, and the number of free slots. */
const withFreeSlots = (tx: Tx) => tx`
  f as materialized (
    select g.*, coalesce(h.slots, '{}') as slots, greatest(0, coalesce(g.total, ${NO_LIMIT}) - coalesce(h.all, 0)) as free
    from g cross join lateral (
      select jsonb_object_agg(key, count) as slots, sum(count) as all from (
        select s."Key" as key, count(*) from "Order_Slot" s
        where ${isOf(tx, 'g')} and s."Held" and ${isInProgress(tx)} group by 1) s) h
  )`
const slotsOfKey = (tx: Tx, key: postgres.Fragment) => tx`coalesce((f.slots ->> ${key})::int, 0)`
/**
 * The waiting rows of each group `f` that come first by the order of their keys, and `spare` rows more. The keys are found
 * one after the other, because a group may have many rows. If it has many keys, only those are chosen that have slots or
 * have waited longest, and fewer rows of each key are read than could get slots: `isCut`.
 */
const fronts = (tx: Tx, spare = 0) => tx`
  select f."Process", f.key as "group", f."limit", f.total, f.free, s."Key", s."TransactionID", s."ReplayID",
    s."Priority", s."DueAt", k.slots, k."isCut"
  from f cross join lateral (
    with recursive every as (
      (select s."Key" as key from "Order_Slot" s where ${isOf(tx, 'f')} and not s."Held"
        order by s."Key" limit 1)
      union all
      select (select s."Key" from "Order_Slot" s
        where ${isOf(tx, 'f')} and s."Key" > k.key and not s."Held" order by s."Key" limit 1)
      from every k where k.key is not null
    ), found as materialized (
      select key from every where key is not null limit ${MANY_KEYS + 1}
    ), size as (select count(*) > ${MANY_KEYS} as "isMany" from found), k as (
      select key, false as "isMany" from found where not (select "isMany" from size)
      union all
      select key, true from (
        select jsonb_object_keys(f.slots) union
        select "Key" from (
          select s."Key" from "Order_Slot" s
          where s."Process" = f."Process" and not s."Held" and not jsonb_exists(f.slots, s."Key")
          order by s."Priority" desc, s."DueAt", s."TransactionID", s."ReplayID"
          limit least(f.free, ${MAX_GRANTS}) + ${MAX_REMOVED}) s) many (key)
      where (select "isMany" from size)
    ), sized as (
      select k.*, ${slotsOfKey(tx, tx`k.key`)} as slots, f."limit" - ${slotsOfKey(tx, tx`k.key`)} as room,
        greatest(1, ${MAX_GRANTS} / count(*) over ()) as most, ${spare}::int / count(*) over () as spare
      from k
    )
    select *, "isMany" or most < least(f.free, room) as "isCut" from sized
  ) k cross join lateral (
    select * from "Order_Slot" s
    where s."Process" = f."Process" and s."Key" = k.key and not s."Held"
    order by s."Priority" desc, s."DueAt", s."TransactionID", s."ReplayID"
    limit case when k.room > 0 then least(f.free, k.room, k.most) + k.spare else 0 end) s
  where f.free > 0`
/**
 * Ranks the candidates of each group by the order in which they get slots (`assigned` in run/slots.ts). If rows or keys
 * are left out, only the first rank is sure, and the ranks with the same priority and number of slots: what is left out
 * follows behind these.
 */
const ranked = (tx: Tx, candidates: postgres.Fragment, spare = 0) => tx`
  select l.*, row_number() over w as rank, not bool_or("isCut") over (partition by "Process", "group")
    or ("Priority", level) = (first_value("Priority") over w, first_value(level) over w) as "isSure"
  from (
    select c.*, slots + row_number() over (partition by "Process", "group", "Key"
      order by "Priority" desc, "DueAt", "TransactionID", "ReplayID") as level
    from ${candidates} c) l
  where level <= "limit" + case when total is null then ${spare}::int else 0 end
  window w as (partition by "Process", "group"
    order by "Priority" desc, level, "DueAt", "TransactionID", "ReplayID")`

/** Locks the slots of the runs that the requests may claim, and returns these requests with the keys of their runs. */
export async function lockSlotsOfClaims(
  tx: Tx,
  wanted: readonly LimitedClaim[],
): Promise<LockedClaim[]> {
  return tx<LockedClaim[]>`
    select n, key, "InitialData", "Realm", "Version", "isExempt",
      case when key is not null then pg_advisory_xact_lock(lock) end
    from (
      select w.n, k.key, h."Version", h."Realm", h."Status" = 'Undoing' as "isExempt", case when k.key is null then h."InitialData" end as "InitialData",
        ${slotLock(tx, tx`w."Process"`, tx`case when w.total is null then k.key else '' end`)} as lock
      from (${claims(tx, wanted)}) w join "Order_Header" h on ${isClaimable(tx)}
        cross join lateral (
          select case when w.key = '' then '' else coalesce(h."ConcurrencyKey", w.key) end as key) k
      order by lock) locked -- all database transactions lock in the same order`
}

/**
 * Decides which runs may be claimed. A run that has a slot may be claimed. A run without a slot gets one if enough
 * slots are free for this run and for all waiting runs that come first. All other runs are stored as waiting.
 * `isLeased` is true for a run of a lost worker.
 */
export async function assignSlots(
  tx: Tx,
  wanted: readonly LimitedClaim[],
): Promise<{ n: number; hasSlot: boolean; isLeased: boolean }[]> {
  return tx<{ n: number; hasSlot: boolean; isLeased: boolean }[]>`
    with claimable as (
      select distinct on (h."Process", h."TransactionID", h."ReplayID") w.n, w.key, w."limit", w.total,
        ${groupKey(tx)} as "group", (h."Priority" > 0)::int as "Priority", h."Process", h."TransactionID", h."ReplayID", coalesce(h."NextAttemptAt", now()) as due,
        h."LeaseUntil" is not null as "isLeased",
        coalesce(s."Held" and s."Key" = w.key and h."Status" = 'Running', false) as holds
      from (${claims(tx, wanted)}) w join "Order_Header" h on ${isClaimable(tx)}
        left join "Order_Slot" s on ${isSameRun(tx, 's', 'h')}
      order by h."Process", h."TransactionID", h."ReplayID", w.n
    ), keyed as (
      update "Order_Header" h set "ConcurrencyKey" = r.key from claimable r
      where ${isRunOf(tx, 'r')} and r.key <> '' and h."ConcurrencyKey" is null
    ), g as (
      select "Process", "group" as key, max("limit") as "limit", max(total) as total from claimable group by 1, 2
    ), ${gone(tx, tx`not ${isClaimed(tx)}`)}, ${withFreeSlots(tx)}, candidates as (
      select r.n, r."Process", r."group", f."limit", f.total, f.free, r.key as "Key", r."TransactionID", r."ReplayID",
        r."Priority", r.due as "DueAt", ${slotsOfKey(tx, tx`r.key`)} as slots, false as "isCut"
      from claimable r join f on f."Process" = r."Process" and f.key = r."group"
      where not r.holds
      union all
      select null, s.* from (${fronts(tx)}) s
      where ${ofRun(tx, isParked(tx))} and not ${isClaimed(tx)}
    ), decided as (
      select r.*, r.holds or r.n in (
        select n from (${ranked(tx, tx`candidates`)}) c where rank <= free and "isSure" and n is not null) as "hasSlot"
      from claimable r
    ), stored as (
      insert into "Order_Slot" as s ("Process", "TransactionID", "ReplayID", "Key", "Held", "Priority", "DueAt")
      select "Process", "TransactionID", "ReplayID", key, "hasSlot", "Priority", due
      from decided where "hasSlot" or not "isLeased"
      on conflict ("Process", "TransactionID", "ReplayID") do update set
        "Key" = excluded."Key", "Held" = excluded."Held", "Priority" = excluded."Priority", "DueAt" = excluded."DueAt"
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
    returning w.n, h."Version" > w.version as "isNew", ${stateColumns(tx)}`
}

/** The maximum number of groups whose slots one call assigns. */
const MAX_GROUPS = 100

/** Assigns free slots to the waiting runs that come first. */
export async function grantSlots(
  sql: postgres.Sql,
  limits: readonly ProcessLimit[],
  released: readonly RunKey[] | null,
  { sweepMs }: { readonly sweepMs: number },
): Promise<Grants> {
  const groups = released === null ? await groupsToGrant(sql, limits) : null
  if (groups?.length === 0) return { runs: [], hasMore: false }
  return sql.begin(async (tx) => {
    const locked = await lockGroups(tx, groups, released ?? [], limits)
    if (locked.length === 0) return { runs: [], hasMore: false }
    const limited = locked.flatMap((group) => {
      const known = limits.find(({ process }) => process === group.Process)
      return known === undefined
        ? []
        : [{ ...group, limit: known.limit ?? NO_LIMIT, total: known.total }]
    })
    const { runs, hasMore } = await grant(tx, limited, sweepMs)
    const isFull = runs.length === MAX_GRANTS || groups?.length === MAX_GROUPS
    return { runs, hasMore: isFull || hasMore }
  })
}

const NO_LIMIT = 2_147_483_647

export interface Group {
  readonly Process: string
  /** Empty for a process with a total. */
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
  return sql<Group[]>`
    with s as (
      select s."Process", s."Key", s."Held", l."limit", l.total, s."Held" and ${isInProgress(tx)} as runs
      from ${limitRows(tx, limits)} join "Order_Slot" s on s."Process" = l."Process"
    ), k as (
      select "Process", "Key", "limit", total, bool_or(not "Held") as waits, bool_or("Held" and not runs) as gone,
        count(*) filter (where runs) as slots
      from s group by 1, 2, 3, 4
    ), p as (
      select *, sum(slots) over (partition by "Process") as all from k)
    select distinct "Process", case when total is null then "Key" else '' end as "Key" from p
    where gone or (waits and slots < "limit" and p.all < coalesce(total, ${NO_LIMIT})) limit ${MAX_GROUPS}`
}

const limitRows = (tx: Tx, limits: readonly ProcessLimit[]) => {
  const rows = limits.map(({ process: Process, limit, total }) => ({
    Process,
    limit: limit ?? NO_LIMIT,
    total,
  }))
  return tx`json_to_recordset(${JSON.stringify(rows)}::text::json)
    as l("Process" text, "limit" bigint, total bigint)`
}

/** Locks the slots of the groups, or of the groups to which the released runs belong, and returns these groups. */
export function lockGroups(
  tx: Tx,
  groups: readonly Group[] | null,
  released: readonly RunKey[] = [],
  limits: readonly ProcessLimit[] = [],
): Promise<readonly Group[]> {
  const chosen =
    groups === null
      ? // The row of a released run may already be removed, so the key is read from the run as well.
        tx`
          with r as (
            select * from json_to_recordset(${JSON.stringify(released)}::text::json)
              as r("Process" text, "TransactionID" text, "ReplayID" int)
          )
          select distinct k."Process", case when l.total is null then k."Key" else '' end as "Key"
          from (
            select s."Process", s."Key" from r join "Order_Slot" s on ${isSameRun(tx, 's', 'r')}
            union
            select h."Process", coalesce(h."ConcurrencyKey", '')
            from r join "Order_Header" h on ${isRunOf(tx, 'r')}) k
          left join ${limitRows(tx, limits)} on l."Process" = k."Process"`
      : tx`select * from json_to_recordset(${JSON.stringify(groups)}::text::json)
          as s("Process" text, "Key" text)`
  return tx<Group[]>`
    select "Process", "Key", pg_advisory_xact_lock(lock) from (
      select s.*, ${slotLock(tx, tx`s."Process"`, tx`s."Key"`)} as lock from (${chosen}) s
      order by lock) locked`
}

/**
 * Removes the rows of runs that are not in progress, and assigns the free slots to the first waiting runs. If the run
 * of a row no longer waits, the row is removed and gets no slot. `hasMore` is true after such a removal, and if slots of a
 * group with many keys are left.
 */
async function grant(
  tx: Tx,
  groups: readonly (Group & { readonly limit: number; readonly total: number | undefined })[],
  sweepMs: number,
): Promise<{ readonly runs: RunState[]; readonly hasMore: boolean }> {
  const rows = await tx<(RunState & { readonly hasMore: boolean })[]>`
    with g as (
      select s."Process", s."Key" as key, s."limit", s.total
      from json_to_recordset(${JSON.stringify(groups)}::text::json)
        as s("Process" text, "Key" text, "limit" bigint, total bigint)
    ), ${gone(tx, tx`true`)}, ${withFreeSlots(tx)}, first as materialized (
      select s."Process", s."group", s."limit", s.total, s.free, s."Key", s."TransactionID", s."ReplayID", s."Priority",
        s."DueAt", s.slots, s."isCut", s."isSure" as "wasSure", ${ofRun(tx, isParked(tx))} as waits
      from (${ranked(tx, tx`(${fronts(tx, MAX_REMOVED)})`, MAX_REMOVED)}) s
      where rank <= least(free + ${MAX_REMOVED}, ${MAX_GRANTS})
    ), next as materialized (
      select c.*, "isSure" and "wasSure" as "isFirst"
      from (${ranked(tx, tx`(select * from first where waits)`)}) c where rank <= free
    ), chosen as (
      select * from next where "isFirst" order by rank limit ${MAX_GRANTS}
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
      returning ${stateColumns(tx)}
    )
    select moved.*, rest."hasMore"
    from (select exists (select from removed) or exists (select from next where not "isFirst") as "hasMore") rest
      left join moved on true`
  const runs = rows.filter(({ Process }) => Process !== null)
  return {
    runs: runs.map(({ hasMore: _hasMore, ...run }) => run),
    hasMore: rows[0]?.hasMore ?? false,
  }
}
