/**
 * The statements on children and their families. The counts of a family are changed by the trigger `Order_Header_joined`
 * and by the statements that insert children.
 *
 * Locks are acquired in the order parent, children, family. A statement that has locked a family skips locked children.
 */
import type postgres from 'postgres'
import {
  CHILDREN_FAILED,
  CHILDREN_PER_PAGE,
  type CancelChildren,
  type ChildRow,
  type ChildrenPage,
  FAMILY_RECHECK_MS,
  FAMILY_RETRY_MS,
  type Families,
  type Family,
  type FamilyKey,
  type FamilyLook,
  type Join,
  MAX_FAILED_IDS,
  MAX_FAMILY_DEPTH,
  NEVER_SWEPT_MS,
  PARENT_ENDED,
  PARENT_ENDED_TEXT,
  type RecordedPage,
  type StoredPage,
  type UndonePage,
  type WhichFamilies,
} from '../../../run/families.ts'
import { itemIdOf } from '../../../run/child-id.ts'
import type { Transition } from '../../../run/progress.ts'
import type { Run, RunKey } from '../../../run/run.ts'
import { WAITS_FOR_CHILDREN, WAITS_FOR_TURN } from '../../../run/status.ts'
import type { Lease, RunState, WebhooksOf } from '../../../run/transaction-source.ts'
import { PARENT_RECHECK_MS, UNDO_CANCELLED } from '../../../run/transitions.ts'
import { areFew, deadlineFromNow, isActive, isRun, isRunOf, leavesDoubt } from '../predicates.ts'
import { endWaits } from './sweep-runs.ts'
import { runOf, type RunRow, stateColumns } from '../rows.ts'
import { movedOn } from './events.ts'
import { recordOutcomes } from './record-outcomes.ts'

type Tx = postgres.TransactionSql
type DueRun = RunState & Pick<Run, 'Realm'>
type Sql = postgres.Sql | Tx

interface Times {
  readonly sweepMs: number
  readonly leaseMs: number
  readonly webhooksOf: WebhooksOf | null
}

/** The maximum number of tries if other programs insert runs with the ids of children at the same time. */
const MAX_TRIES = 3
/** The maximum number of overdue runs among which `takeTurns` looks for children that have got a turn. */
const MAX_OVERDUE = 2_000

const FAMILY = [
  'Process',
  'TransactionID',
  'ReplayID',
  'Place',
  'ChildProcess',
  'OfReplayID',
  'Prefix',
  'Total',
  'Stored',
  'Pending',
  'Waiting',
  'Failed',
  'Tolerated',
  'Concurrent',
  'Cascaded',
]
/** The columns of the family `f`, with the key and the state of the row `g` of the run that waits for it. */
const family = (sql: Sql) =>
  sql.unsafe(
    FAMILY.map((column) =>
      ['ReplayID', 'OfReplayID', 'Cascaded'].includes(column) ? `g."${column}"` : `f."${column}"`,
    ).join(', '),
  )

/** True if the run `h` is a child of the family `f`. */
const isChild = (sql: Sql) => sql`h."ParentProcess" = f."Process"
  and h."ParentTransactionID" = f."TransactionID" and h."ParentReplayID" = f."ReplayID"
  and h."ParentPlace" = f."Place" and h."ParentItem" is not null`

/** True if the rows `one` and `other` name the same family. */
const isFamily = (sql: Sql, one: 'f' | 'g', other: 'r' | 'p') => {
  const [a, b] = [sql(one), sql(other)]
  return sql`${a}."Process" = ${b}."Process" and ${a}."TransactionID" = ${b}."TransactionID"
    and ${a}."ReplayID" = ${b}."ReplayID" and ${a}."Place" = ${b}."Place"`
}

const isKey = (sql: Sql, alias: 'f' | 'g', key: FamilyKey) => {
  const row = sql(alias)
  return sql`${row}."Process" = ${key.Process} and ${row}."TransactionID" = ${key.TransactionID}
    and ${row}."ReplayID" = ${key.ReplayID} and ${row}."Place" = ${key.Place}`
}

/** The families whose row is `f`, read through the row `g` of the run that has started or copied them. */
const familyRows = (sql: Sql) => sql`"Order_Family" g join "Order_Family" f
  on f."Process" = g."Process" and f."TransactionID" = g."TransactionID"
    and f."ReplayID" = g."OfReplayID" and f."Place" = g."Place"`

/** Another program has inserted a run with the id of a child at the same time. */
class ConflictBehind extends Error {}

export async function recordChildren(
  sql: postgres.Sql,
  lease: Lease,
  page: ChildrenPage,
  choose: (stored: StoredPage) => Transition,
  times: Times,
): Promise<RecordedPage | null> {
  for (let tries = 1; ; tries += 1)
    try {
      return await sql.begin((tx) => storePage(tx, lease, page, choose, times))
    } catch (error) {
      if (!(error instanceof ConflictBehind) || tries === MAX_TRIES) throw error
    }
}

async function storePage(
  tx: Tx,
  lease: Lease,
  page: ChildrenPage,
  choose: (stored: StoredPage) => Transition,
  times: Times,
): Promise<RecordedPage | null> {
  const { children, process, Concurrent } = page
  const key: FamilyKey = { ...lease, Place: page.Place }
  if (!(await lockParent(tx, lease))) return null
  const isTooDeep = (await countAncestors(tx, lease)) >= MAX_FAMILY_DEPTH
  const known = await knownChildren(tx, key, page)
  const conflicts = known.filter(({ isOurs }) => !isOurs).map(({ id }) => id)
  if (isTooDeep || conflicts.length > 0)
    return recordPage(tx, lease, choose({ conflicts, isTooDeep, hasMore: false }), [], times)
  const resumed = await resumeChildren(tx, key, page, times)
  const added = await insertChildren(tx, key, page, times)
  if (added.length + known.length < children.length) throw new ConflictBehind()
  const waiting = Concurrent === null ? 0 : added.length
  await tx`
    insert into "Order_Family" as f ("Process", "TransactionID", "ReplayID", "Place", "ChildProcess",
      "OfReplayID", "Prefix", "Total", "Stored", "Pending", "Waiting", "Tolerated", "Concurrent",
      "DeadlineMs", "NextSweepAt")
    values (${key.Process}, ${key.TransactionID}, ${key.ReplayID}, ${key.Place}, ${process.name},
      ${key.ReplayID}, ${page.Prefix}, ${page.Total}, ${added.length}, ${added.length}, ${waiting},
      ${page.Tolerated}, ${Concurrent}, ${process.deadlineMs ?? null},
      now() + ${FAMILY_RECHECK_MS} * interval '1 ms')
    on conflict ("Process", "TransactionID", "ReplayID", "Place") do update set
      "Total" = excluded."Total", "Tolerated" = excluded."Tolerated", "Concurrent" = excluded."Concurrent",
      "DeadlineMs" = excluded."DeadlineMs", "Cascaded" = false, "NextSweepAt" = excluded."NextSweepAt",
      "Stored" = f."Stored" + excluded."Stored", "Pending" = f."Pending" + excluded."Pending",
      "Waiting" = f."Waiting" + excluded."Waiting",
      "NextItem" = case when ${resumed.length > 0}::boolean then 0 else f."NextItem" end`
  const due = Concurrent === null ? [...resumed, ...added] : await grantTurns(tx, [key], times)
  const hasMore = resumed.length === CHILDREN_PER_PAGE
  return recordPage(tx, lease, choose({ conflicts, isTooDeep, hasMore }), due, times)
}

async function recordPage(
  tx: Tx,
  lease: Lease,
  transition: Transition,
  due: readonly DueRun[],
  times: Times,
): Promise<RecordedPage> {
  const [run] = await recordOutcomes(tx, [{ lease, transition }], times)
  if (run === null || run === undefined) throw new Error('the locked run has changed')
  return { run, due }
}

/** Locks the parent for the rest of the transaction. Returns false if its lease was lost. */
async function lockParent(tx: Tx, { version, owner, ...run }: Lease): Promise<boolean> {
  const rows = await tx`
    select from "Order_Header" h where ${isRun(tx, run)} and h."Version" = ${version}
      and h."LeaseOwner" = ${owner} for update`
  return rows.length > 0
}

/** Returns how many runs stand above a run. */
async function countAncestors(tx: Tx, run: RunKey): Promise<number> {
  const [row] = await tx<[{ count: number }]>`
    with recursive above as (
      select h."ParentProcess" as process, h."ParentTransactionID" as id, h."ParentReplayID" as replay, 0 as depth
      from "Order_Header" h where ${isRun(tx, run)}
      union all
      select h."ParentProcess", h."ParentTransactionID", h."ParentReplayID", a.depth + 1
      from above a join "Order_Header" h on h."Process" = a.process and h."TransactionID" = a.id
        and h."ReplayID" = a.replay
      where a.depth < ${MAX_FAMILY_DEPTH}
    )
    select count(*)::int as count from above where process is not null`
  return row.count
}

const knownChildren = (tx: Tx, key: FamilyKey, { process, children }: ChildrenPage) =>
  tx<{ id: string; isOurs: boolean }[]>`
    select h."TransactionID" as id, h."ParentProcess" is not distinct from ${key.Process}
      and h."ParentTransactionID" is not distinct from ${key.TransactionID}
      and h."ParentReplayID" is not distinct from ${key.ReplayID}
      and h."ParentPlace" is not distinct from ${key.Place} as "isOurs"
    from jsonb_array_elements_text(
      ${JSON.stringify(children.map(({ TransactionID }) => TransactionID))}::text::jsonb) as given (id)
    cross join lateral (
      select * from "Order_Header"
      where "Process" = ${process.name} and "TransactionID" = given.id and "ReplayID" = 0 offset 0) h`

/** How a child begins: it is due, or waits for its turn. */
const beginning = (tx: Tx, { Concurrent, Place, process }: ChildrenPage, { sweepMs }: Times) =>
  Concurrent === null
    ? {
        status: 'Queued',
        waitingFor: null,
        at: tx`now()`,
        deadline: deadlineFromNow(tx, process),
        sweep: tx`now() + ${sweepMs} * interval '1 ms'`,
      }
    : {
        status: 'Waiting',
        waitingFor: WAITS_FOR_TURN + Place,
        at: tx`null::timestamptz`,
        // The time limit counts from the turn.
        deadline: tx`null::timestamptz`,
        sweep: tx`now() + ${NEVER_SWEPT_MS} * interval '1 ms'`,
      }

async function insertChildren(
  tx: Tx,
  key: FamilyKey,
  page: ChildrenPage,
  times: Times,
): Promise<DueRun[]> {
  const { process, children } = page
  const { status, waitingFor, at, deadline, sweep } = beginning(tx, page, times)
  return tx<DueRun[]>`
    insert into "Order_Header" as h ("Process", "TransactionID", "StepName", "InitialData", "Realm",
      "ConcurrencyKey", "DefinitionVersion", "Status", "WaitingFor", "NextAttemptAt", "DeadlineAt",
      "NextSweepAt", "ParentProcess", "ParentTransactionID", "ParentReplayID", "ParentPlace", "ParentItem",
      "Priority")
    select ${process.name}, c."TransactionID", ${process.steps[0]}, coalesce(c."InitialData", 'null'::jsonb),
      c."Realm", c."ConcurrencyKey", ${process.version ?? null}::text, ${status}, ${waitingFor}::text, ${at},
      ${deadline}, ${sweep}, ${key.Process}, ${key.TransactionID}, ${key.ReplayID}::int, ${key.Place},
      c."Item", p."Priority"
    from (select "Priority" from "Order_Header" h where ${isRun(tx, key)}) p,
      jsonb_to_recordset(${JSON.stringify(children)}::text::jsonb)
        as c("TransactionID" text, "Item" int, "InitialData" jsonb, "Realm" text, "ConcurrencyKey" text)
    order by c."TransactionID"
    on conflict do nothing
    returning ${stateColumns(tx)}`
}

/** Resumes children that have failed or were cancelled before the parent was resumed last. */
async function resumeChildren(
  tx: Tx,
  key: FamilyKey,
  page: ChildrenPage,
  times: Times,
): Promise<DueRun[]> {
  const { status, waitingFor, at, deadline, sweep } = beginning(tx, page, times)
  return tx<DueRun[]>`
    with picked as (
      select h."Process", h."TransactionID", h."ReplayID"
      from "Order_Family" f join "Order_Header" h on ${isChild(tx)}
      where ${isKey(tx, 'f', key)} and f."ResumedAt" is not null
        and h."Status" in ('Failed', 'Cancelled') and h."CompletedAt" <= f."ResumedAt"
        and h."ErasedAt" is null and h."PurgedAt" is null and ${hasNoReplay(tx)}
      order by h."ParentItem" limit ${CHILDREN_PER_PAGE} for update of h
    )
    , own as (
      -- A resumed child resumes its own children.
      update "Order_Family" h set "ResumedAt" = now() from picked where ${isRunOf(tx, 'picked')}
    )
    update "Order_Header" h set "Status" = ${status}, "Version" = h."Version" + 1, "Attempt" = 0,
      "WaitingFor" = ${waitingFor}::text, "NextAttemptAt" = ${at}, "DeadlineAt" = ${deadline},
      "NextSweepAt" = ${sweep}, "SweepCount" = 0, "NotBefore" = null, "LastError" = null,
      "ErrorClass" = null, "CompletedAt" = null, "UpdatedAt" = now()
    from picked where ${isRunOf(tx, 'picked')}
    returning ${stateColumns(tx)}`
}

/** True if the run `h` is the latest run of its transaction. */
const hasNoReplay = (tx: Tx) => tx`not exists (
  select from "Order_Header" o where o."Process" = h."Process" and o."TransactionID" = h."TransactionID"
    and o."ReplayID" > h."ReplayID")`

export const recordUndoOfChildren = (
  sql: postgres.Sql,
  lease: Lease,
  choose: (undone: UndonePage) => Transition,
  times: Times,
): Promise<RecordedPage | null> =>
  sql.begin(async (tx) => {
    if (!(await lockParent(tx, lease))) return null
    const key: FamilyKey = { ...lease, Place: lease.step }
    const due = await tx<DueRun[]>`
      with picked as (
        select h."Process", h."TransactionID", h."ReplayID"
        from ${familyRows(tx)} join "Order_Header" h on ${isChild(tx)}
        where ${isKey(tx, 'g', key)}
          and (h."Status" = 'Completed' or (h."Status" = 'UndoFailed' and h."CompletedAt" <= g."ResumedAt"))
          and h."ErasedAt" is null and h."PurgedAt" is null and ${hasNoReplay(tx)}
        order by h."ParentItem" limit ${CHILDREN_PER_PAGE} for update of h
      ), own as (
        update "Order_Family" h set "ResumedAt" = now() from picked where ${isRunOf(tx, 'picked')}
      )
      update "Order_Header" h set "Status" = 'Undoing', "Version" = h."Version" + 1, "Attempt" = 0,
        "NextAttemptAt" = now(), "NextSweepAt" = now() + ${times.sweepMs} * interval '1 ms',
        "SweepCount" = 0, "WaitingFor" = null, "CompletedAt" = null, "UpdatedAt" = now()
      from picked where ${isRunOf(tx, 'picked')}
      returning ${stateColumns(tx)}`
    await tx`
      update "Order_Family" g set "Cascaded" = false,
        "NextSweepAt" = now() + ${FAMILY_RECHECK_MS} * interval '1 ms' where ${isKey(tx, 'g', key)}`
    const [row] = await tx<(Family & { undoFailed: number })[]>`
      select ${family(tx)}, (select count(*)::int from "Order_Header" h
        where ${isChild(tx)} and h."Status" = 'UndoFailed') as "undoFailed"
      from ${familyRows(tx)} where ${isKey(tx, 'g', key)}`
    const { undoFailed = 0, ...known } = row ?? {}
    const hasMore = due.length === CHILDREN_PER_PAGE
    const undone = { family: row === undefined ? null : (known as Family), hasMore, undoFailed }
    return recordPage(tx, lease, choose(undone), due, times)
  })

export async function lookAtFamilies(
  sql: postgres.Sql,
  which: WhichFamilies,
): Promise<FamilyLook[]> {
  const chosen =
    'limit' in which
      ? sql`
        update "Order_Family" g set "NextSweepAt" = now() + interval '1 ms' * case
          -- If this replica is lost before it has done what is left to do, another one soon looks again.
          when g."Pending" = 0 or g."Failed" > g."Tolerated" or not exists (
            select from "Order_Header" h where ${isRunOf(sql, 'g')} and h."CompletedAt" is null)
          then ${FAMILY_RETRY_MS}::float8 else ${FAMILY_RECHECK_MS}::float8 end
        from (
          select "Process", "TransactionID", "ReplayID", "Place" from "Order_Family"
          where "NextSweepAt" <= now() order by "NextSweepAt" limit ${which.limit}
          for update skip locked) r
        where ${isFamily(sql, 'g', 'r')} returning g.*`
      : sql`
        with w as materialized (
          select * from json_to_recordset(${JSON.stringify(which.ended.map((run, n) => ({ ...run, n })))}::text::json)
            as w(n int, "Process" text, "TransactionID" text, "ReplayID" int) where ${areFew(sql)}
        ), c as materialized (
          -- Most of the runs are children of few families, and a family with many ends has many row versions.
          select distinct h.* from w cross join lateral (
            select h."ParentProcess", h."ParentTransactionID", h."ParentReplayID", h."ParentPlace"
            from "Order_Header" h where ${isRunOf(sql, 'w')} and h."ParentItem" is not null offset 0) h
        )
        select g.* from c cross join lateral (
          select * from "Order_Family" g where g."Process" = c."ParentProcess"
            and g."TransactionID" = c."ParentTransactionID" and g."OfReplayID" = c."ParentReplayID"
            and g."Place" = c."ParentPlace" offset 0) g
        union
        select g.* from w cross join lateral (
          select * from "Order_Family" g where g."Process" = w."Process"
            and g."TransactionID" = w."TransactionID" and g."ReplayID" = w."ReplayID" offset 0) g`
  const rows = await sql<
    (Family & {
      parent: (NonNullable<FamilyLook['parent']> & { NextSweepAt: string }) | null
      failed: readonly string[] | null
    })[]
  >`
    with g as (${chosen})
    select ${family(sql)}, case when h."Process" is not null then jsonb_build_object('Status', h."Status",
        'StepName', h."StepName", 'WaitingFor', h."WaitingFor", 'ErrorClass', h."ErrorClass",
        'ReplayID', h."ReplayID", 'PurgedAt', h."PurgedAt") end as parent,
      case when f."Pending" = 0 and f."Failed" > 0 then (select jsonb_agg(id) from (
        select h."TransactionID" as id from "Order_Header" h
        where ${isChild(sql)} and h."CompletedAt" is not null and h."Status" <> 'Completed'
        order by h."ParentItem" limit ${MAX_FAILED_IDS}) c) end as failed
    from g join "Order_Family" f on f."Process" = g."Process" and f."TransactionID" = g."TransactionID"
        and f."ReplayID" = g."OfReplayID" and f."Place" = g."Place"
      left join "Order_Header" h on ${isRunOf(sql, 'g')}`
  if ('limit' in which && rows.length > 0) await postponeParents(sql, rows)
  return rows.map(({ parent, failed, ...row }) => ({
    family: row,
    parent,
    failed: (failed ?? []).map((id) => itemIdOf(row.Prefix, id)),
  }))
}

/** Postpones the next sweep of waiting parents, so that they do not count as overdue. */
const postponeParents = (sql: postgres.Sql, families: readonly FamilyKey[]) => sql`
  update "Order_Header" h set "NextSweepAt" = now() + ${PARENT_RECHECK_MS} * interval '1 ms'
  from json_to_recordset(${JSON.stringify(families.map(keyOf))}::text::json)
    as r(n int, "Process" text, "TransactionID" text, "ReplayID" int, "Place" text)
  where ${isRunOf(sql, 'r')} and h."CompletedAt" is null and h."NextSweepAt" <= now()
    and h."WaitingFor" = ${WAITS_FOR_CHILDREN} || r."Place"`

const keyOf = ({ Process, TransactionID, ReplayID, Place }: FamilyKey, n: number) => ({
  n,
  Process,
  TransactionID,
  ReplayID,
  Place,
})

/** Gives free turns, and returns the children that have got one and whose message is not published yet. */
export async function grantTurns(
  tx: Tx,
  families: readonly FamilyKey[],
  { sweepMs }: Pick<Times, 'sweepMs'>,
): Promise<DueRun[]> {
  const refs = JSON.stringify(families.map(keyOf))
  const given = tx`json_to_recordset(${refs}::text::json)
    as r(n int, "Process" text, "TransactionID" text, "ReplayID" int, "Place" text)`
  // The families are locked in an order of their own, before any child, as the trigger does.
  await tx`
    select "Order_Family_grant"(f) from (
      select f.* from ${given} join "Order_Family" f on ${isFamily(tx, 'f', 'r')}
      where f."Waiting" > 0 and f."Pending" - f."Waiting" < f."Concurrent"
      order by f."Process", f."TransactionID", f."ReplayID", f."Place" for update of f) f`
  return tx<DueRun[]>`
    with picked as (
      select h.* from (
        select * from "Order_Header" where "CompletedAt" is null and "NextSweepAt" <= now()
        order by "NextSweepAt" desc limit ${MAX_OVERDUE} offset 0) h
      join ${given} on h."ParentProcess" = r."Process" and h."ParentTransactionID" = r."TransactionID"
        and h."ParentReplayID" = r."ReplayID" and h."ParentPlace" = r."Place"
      where h."Status" = 'Queued' and h."ParentItem" is not null
    ), taken as (
      select p."Process", p."TransactionID", p."ReplayID" from picked p cross join lateral (
        select from "Order_Header" h where ${isRunOf(tx, 'p')} and h."NextSweepAt" <= now()
          and h."Status" = 'Queued' for update skip locked) h
    )
    update "Order_Header" h set "NextSweepAt" = now() + ${sweepMs} * interval '1 ms'
    from taken t where ${isRunOf(tx, 't')} returning ${stateColumns(tx)}`
}

/** Cancels children, and closes the families of ended parents of which none is left to cancel. */
export async function cancelChildren(
  tx: Tx,
  families: readonly CancelChildren[],
  limit: number,
): Promise<Run[]> {
  const refs = families.map((one, n) => ({
    ...keyOf(one, n),
    all: one.which === 'active',
    cascade: one.isCascade,
  }))
  const given = tx`json_to_recordset(${JSON.stringify(refs)}::text::json)
    as r(n int, "Process" text, "TransactionID" text, "ReplayID" int, "Place" text, "all" boolean, cascade boolean)`
  const rows = await tx<RunRow[]>`
    with picked as (
      select h."Process", h."TransactionID", h."ReplayID"
      from ${given} join "Order_Family" f on ${isFamily(tx, 'f', 'r')}
        join "Order_Header" h on ${isChild(tx)}
      where h."CompletedAt" is null and ${isActive(tx)} and (r."all"
        or h."WaitingFor" = ${WAITS_FOR_TURN} || f."Place" or (h."Status" = 'Queued' and h."Version" <= 1))
      order by h."Process", h."TransactionID" limit ${limit} for update of h
    )
    update "Order_Header" h set
      "Status" = case h."Status" when 'Undoing' then 'UndoFailed' else 'Cancelled' end,
      "ErrorClass" = case h."Status" when 'Undoing' then ${UNDO_CANCELLED} else ${PARENT_ENDED} end,
      "LastError" = case h."Status" when 'Undoing' then null else ${PARENT_ENDED_TEXT} end,
      "Version" = h."Version" + 1, "InDoubt" = h."InDoubt" or ${leavesDoubt(tx)},
      "LeaseOwner" = null, "LeaseUntil" = null, "StartedAt" = null, "NextAttemptAt" = null,
      "WaitingFor" = null, "CompletedAt" = now(), "UpdatedAt" = now()
    from picked where ${isRunOf(tx, 'picked')} returning h.*`
  await endWaits(tx, rows)
  if (rows.length < limit && families.some(({ isCascade }) => isCascade))
    await tx`
      update "Order_Family" f set "Cascaded" = true, "NextSweepAt" = null, "PurgedAt" = (
        select now() from "Order_Header" h where ${isRunOf(tx, 'f')} and h."PurgedAt" is not null)
      from ${given} where r.cascade and f."Process" = r."Process" and f."TransactionID" = r."TransactionID"
        and f."OfReplayID" = r."ReplayID" and f."Place" = r."Place"
        and not exists (select from "Order_Header" h
          where ${isRunOf(tx, 'f')} and ${isActive(tx)})`
  return rows.map(runOf)
}

/** Moves parents on that still wait for children of which none is active. */
export async function joinFamilies(
  tx: Tx,
  joins: readonly Join[],
  { sweepMs }: Pick<Times, 'sweepMs'>,
): Promise<Run[]> {
  const refs = joins.map((join, n) => ({ ...keyOf(join, n), ...join }))
  const rows = await tx<RunRow[]>`
    with picked as (
      select h."Process", h."TransactionID", h."ReplayID", r."Place", r.kind, r.next, r.data, r.error
      from jsonb_to_recordset(${JSON.stringify(refs)}::text::jsonb)
        as r("Process" text, "TransactionID" text, "ReplayID" int, "Place" text, kind text, next text,
          data jsonb, error text)
      join "Order_Header" h on ${isRunOf(tx, 'r')}
      where h."WaitingFor" = ${WAITS_FOR_CHILDREN} || r."Place"
        and h."Status" = case r.kind when 'due' then 'Undoing' else 'Waiting' end
        and exists (select from ${familyRows(tx)} where ${isFamily(tx, 'g', 'r')} and f."Pending" = 0)
      order by h."Process", h."TransactionID", h."ReplayID" for update of h
    ), due as (
      update "Order_Header" h set "Version" = h."Version" + 1, "WaitingFor" = null,
        "NextAttemptAt" = now(), "NextSweepAt" = now() + ${sweepMs} * interval '1 ms',
        "SweepCount" = 0, "UpdatedAt" = now()
      from picked p where ${isRunOf(tx, 'p')} and p.kind = 'due' returning h.*
    ), failed as (
      update "Order_Header" h set "Version" = h."Version" + 1, "WaitingFor" = null,
        "Status" = case p.kind when 'undo' then 'Undoing' else 'Failed' end, "Attempt" = 0,
        "ErrorClass" = ${CHILDREN_FAILED}, "LastError" = p.error,
        "NextAttemptAt" = case p.kind when 'undo' then now() end,
        "NextSweepAt" = now() + ${sweepMs} * interval '1 ms', "SweepCount" = 0, "UpdatedAt" = now(),
        "CompletedAt" = case p.kind when 'failed' then now() end
      from picked p where ${isRunOf(tx, 'p')} and p.kind in ('failed', 'undo') returning h.*
    ), moved as (
      update "Order_Header" h set ${movedOn(tx, tx`p.next`, sweepMs)}
      from picked p where ${isRunOf(tx, 'p')} and p.kind = 'completed' returning h.*
    ), items as (
      update "Order_Item" h set "Status" = case p.kind when 'completed' then 'Completed' else 'Failed' end,
        "Data" = p.data, "Error" = p.error, "FinishedAt" = now()
      from picked p where ${isRunOf(tx, 'p')} and h."StepName" = p."Place" and p.kind <> 'due'
    ), families as (
      update "Order_Family" g set "Cascaded" = true, "NextSweepAt" = null
      from picked p where ${isFamily(tx, 'g', 'p')}
    ), slots as (
      -- The run gets a slot when it is claimed again.
      delete from "Order_Slot" h using picked p where ${isRunOf(tx, 'p')}
    )
    select * from due union all select * from failed union all select * from moved`
  return rows.map(runOf)
}

/** The families of the run `h`, as a JSON array. */
export const familiesOfRun = (sql: postgres.Sql) => sql`
  coalesce((select jsonb_agg(w order by "Place") from (
    select ${family(sql)} from ${familyRows(sql)} where ${isRunOf(sql, 'g')}) w), '[]')`

export async function readChildren(
  sql: postgres.Sql,
  key: FamilyKey,
  { after, limit, statuses, withData = false }: Parameters<Families['children']>[1],
): Promise<ChildRow[]> {
  const rows = await sql<(Omit<ChildRow, 'ItemID'> & Pick<Family, 'Prefix'>)[]>`
    select f."Prefix", h."Process", h."TransactionID", h."ReplayID", h."Status", h."StepName", h."Realm", h."ParentItem" as "Item",
      h."ErrorClass", h."LastError",
      ${
        withData
          ? sql`case when h."Status" = 'Completed' then (select i."Data" from "Order_Item" i
        where ${isRunOf(sql, 'i')} and i."StepName" = h."StepName") end`
          : sql`null::jsonb`
      } as "Data"
    from ${familyRows(sql)} cross join lateral (
      select * from "Order_Header" h where ${isChild(sql)} and h."ParentItem" > ${after}
        ${statuses === undefined ? sql`` : sql`and h."Status" in ${sql([...statuses])}`}
      order by h."ParentItem" limit ${limit}) h
    where ${isKey(sql, 'g', key)}
    order by h."ParentItem"`
  return rows.map(({ Prefix, ...row }) => ({
    ...row,
    ItemID: itemIdOf(Prefix, row.TransactionID),
  }))
}
