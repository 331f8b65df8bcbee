/** Children and their families in the memory source. */
import {
  CHILDREN_PER_PAGE,
  type ChildRow,
  FAMILY_RECHECK_MS,
  type Families,
  type Family,
  type FamilyKey,
  keyOfFamily,
  MAX_FAILED_IDS,
  MAX_FAMILY_DEPTH,
} from '../../run/families.ts'
import {
  cancelledChild,
  isNotStarted,
  joined,
  newChild,
  resumedChild,
  withTurn,
} from '../../run/family-transitions.ts'
import { itemIdOf } from '../../run/child-id.ts'
import type { Transition } from '../../run/progress.ts'
import { keyText, type Run, type RunKey, runKey } from '../../run/run.ts'
import { isOver } from '../../run/status.ts'
import type { Lease } from '../../run/transaction-source.ts'
import {
  holdsLease,
  recorded,
  resumed,
  type StoredRun,
  type Times,
  undone,
} from '../../run/transitions.ts'
import { familyOfChild } from './family-index.ts'
import { keyOf, type RecordChange, type RecordTables } from './records.ts'
import type { RunTable } from './run-table.ts'
import type { Entry, MemoryStore } from './store.ts'

const FAMILIES = 'Order_Family'

/** A row of `Order_Family`. The counts are kept by the index of the children. */
export type FamilyRow = Omit<Family, 'Stored' | 'Pending' | 'Waiting' | 'Failed'> & {
  readonly DeadlineMs: number | null
  readonly ResumedAt: string | null
  readonly NextSweepAt: string | null
}

const placeOf = ({ Process, TransactionID, ReplayID, Place }: FamilyKey) => ({
  table: FAMILIES,
  // The values of the key may contain slashes.
  key: keyOf([Process, TransactionID, ReplayID, Place].map((value) => encodeURIComponent(value))),
})

const familyRow = (records: RecordTables, key: FamilyKey): FamilyRow | undefined => {
  const place = placeOf(key)
  return records.get(place.table, place.key) as FamilyRow | undefined
}

const changedFamily = (row: FamilyRow): RecordChange => ({ ...placeOf(row), row })

/** Returns the children that get a turn after a change of this run. */
export function turnsAfter(
  tables: { readonly table: RunTable; readonly records: RecordTables },
  run: StoredRun,
  times: Times,
): StoredRun[] {
  const child = isOver(run.header.Status) ? familyOfChild(run) : null
  return child === null ? [] : freeTurns(tables, child.parent, times)
}

function freeTurns(
  { table, records }: { readonly table: RunTable; readonly records: RecordTables },
  key: FamilyKey,
  times: Times,
): StoredRun[] {
  const row = familyRow(records, key)
  if (row?.Cascaded !== false || row.Concurrent === null) return []
  const { Pending, Waiting, Failed } = table.families.counts(key)
  const free = row.Concurrent - (Pending - Waiting)
  if (free <= 0 || Failed > row.Tolerated) return []
  return table.families
    .waiting(key, free)
    .flatMap((text) => table.byText(text) ?? [])
    .map((stored) => withTurn(stored, row.DeadlineMs, times))
}

const base = (row: FamilyRow): FamilyKey => ({ ...row, ReplayID: row.OfReplayID })

function withCounts({ families }: RunTable, row: FamilyRow): Family {
  const { DeadlineMs: _deadline, ResumedAt: _resumed, NextSweepAt: _sweep, ...rest } = row
  return { ...rest, ...families.counts(base(row)) }
}

/** Returns the families of a run: one for each place that has started children. */
export const familiesOfRun = (
  store: Pick<MemoryStore, 'table' | 'records'>,
  run: RunKey,
): readonly Family[] => ownFamilies(store, run).map((row) => withCounts(store.table, row))

export function createMemoryFamilies(
  store: Pick<MemoryStore, 'table' | 'records' | 'commit'>,
  {
    commitRuns,
    withWebhooks,
    times,
  }: {
    readonly commitRuns: (runs: readonly StoredRun[]) => Promise<Run[]>
    readonly withWebhooks: (run: StoredRun) => Entry
    readonly times: () => Times
  },
): Families {
  const { table, records, commit } = store
  const familyOf = (row: FamilyRow): Family => withCounts(table, row)
  const childrenOf = (key: FamilyKey, after?: number): StoredRun[] =>
    table.families.children(key, after).flatMap((text) => table.byText(text) ?? [])
  const isLatest = ({ header }: StoredRun): boolean =>
    table.find(header.Process, header.TransactionID, null)?.header.ReplayID === header.ReplayID
  const hasData = ({ header }: StoredRun): boolean =>
    header.ErasedAt === null && header.PurgedAt === null
  const countAncestors = (run: StoredRun): number => {
    let count = 0
    for (let above: StoredRun | undefined = run; above?.header.Parent !== undefined; count += 1)
      above = table.get(above.header.Parent)
    return count
  }
  const recheckAt = (now: number): string => new Date(now + FAMILY_RECHECK_MS).toISOString()
  /** Commits the transition of the parent last, so that a crash in between leaves the parent at its place. */
  async function commitPage(
    parent: StoredRun,
    lease: Lease,
    transition: Transition,
    at: Times,
    before: { readonly row?: FamilyRow; readonly children?: readonly StoredRun[] } = {},
  ) {
    const run = recorded(parent, lease, transition, at)
    if (run === null) return null
    const { row, children = [] } = before
    // A resumed child resumes its own children.
    const own = children.flatMap(({ header }) =>
      table.get(header) === undefined ? [] : resumedFamilies(store, header, at.now),
    )
    const families = row === undefined ? own : [...own, changedFamily(row)]
    await commit(
      ...families.map((record) => ({ record })),
      ...children.map(withWebhooks),
      withWebhooks(run),
    )
    const changed = children.map(({ header }) => table.get(header) ?? ({ header } as StoredRun))
    const due = changed.filter(({ header }) => header.WaitingFor === null && !isOver(header.Status))
    return { run: run.header, due: due.map(({ header }) => header) }
  }

  return {
    async recordChildren(lease, page, choose) {
      const parent = table.get(lease)
      if (parent === undefined || !holdsLease(parent, lease)) return null
      const at = times()
      const key: FamilyKey = { ...runKey(lease), Place: page.Place }
      const isTooDeep = countAncestors(parent) >= MAX_FAMILY_DEPTH
      const known = (id: string) =>
        table.get({ Process: page.process.name, TransactionID: id, ReplayID: 0 })
      const isOurs = ({ header: { Parent } }: StoredRun): boolean =>
        Parent !== undefined && keyOfFamily(Parent) === keyOfFamily(key)
      const conflicts = page.children
        .map(({ TransactionID }) => TransactionID)
        .filter((id) => {
          const other = known(id)
          return other !== undefined && !isOurs(other)
        })
      if (isTooDeep || conflicts.length > 0)
        return commitPage(parent, lease, choose({ conflicts, isTooDeep, hasMore: false }), at)
      const row = familyRow(records, key)
      const resumable = childrenOf(key).filter(
        (child) =>
          (child.header.Status === 'Failed' || child.header.Status === 'Cancelled') &&
          (child.header.CompletedAt ?? '') <= (row?.ResumedAt ?? '') &&
          hasData(child) &&
          isLatest(child),
      )
      const children = [
        ...resumable.slice(0, CHILDREN_PER_PAGE).map((child) => resumedChild(child, page, at)),
        ...page.children
          .filter(({ TransactionID }) => known(TransactionID) === undefined)
          .map((child) => newChild(parent.header, page, child, at)),
      ]
      const { process, Place, Prefix, Total, Tolerated, Concurrent } = page
      const family: FamilyRow = {
        ...key,
        Place,
        ChildProcess: process.name,
        OfReplayID: key.ReplayID,
        Prefix,
        Total,
        Tolerated,
        Concurrent,
        DeadlineMs: process.deadlineMs ?? null,
        Cascaded: false,
        ResumedAt: row?.ResumedAt ?? null,
        NextSweepAt: recheckAt(at.now),
      }
      const hasMore = resumable.length >= CHILDREN_PER_PAGE
      const transition = choose({ conflicts, isTooDeep, hasMore })
      const result = await commitPage(parent, lease, transition, at, { row: family, children })
      return result === null || Concurrent === null
        ? result
        : { ...result, due: await takeTurns([key]) }
    },

    async recordUndoOfChildren(lease, choose) {
      const parent = table.get(lease)
      if (parent === undefined || !holdsLease(parent, lease)) return null
      const at = times()
      const row = familyRow(records, { ...runKey(lease), Place: lease.step })
      if (row === undefined)
        return commitPage(
          parent,
          lease,
          choose({ family: null, hasMore: false, undoFailed: 0 }),
          at,
        )
      const all = childrenOf(base(row))
      const isUndoable = (child: StoredRun): boolean =>
        (child.header.Status === 'Completed' ||
          (child.header.Status === 'UndoFailed' &&
            (child.header.CompletedAt ?? '') <= (row.ResumedAt ?? ''))) &&
        hasData(child) &&
        isLatest(child)
      const picked = all.filter(isUndoable).slice(0, CHILDREN_PER_PAGE)
      const children = picked.map((child) =>
        child.header.Status === 'Completed' ? undone(child, at) : resumed(child, at, {}),
      )
      const family = familyOf(row)
      const result = {
        family: { ...family, Pending: family.Pending + children.length },
        hasMore: picked.length === CHILDREN_PER_PAGE,
        undoFailed: all.filter(
          (child) => child.header.Status === 'UndoFailed' && !picked.includes(child),
        ).length,
      }
      const changed = { ...row, Cascaded: false, NextSweepAt: recheckAt(at.now) }
      return commitPage(parent, lease, choose(result), at, { row: changed, children })
    },

    async lookAtFamilies(which) {
      const { now } = times()
      let chosen: FamilyRow[]
      if ('limit' in which) {
        const isDue = (row: FamilyRow): boolean => {
          if (row.NextSweepAt === null) return false
          if (isOver(table.get(row)?.header.Status ?? 'Completed')) return true
          const { Pending, Failed } = table.families.counts(base(row))
          return Pending === 0 || Failed > row.Tolerated || Date.parse(row.NextSweepAt) <= now
        }
        chosen = [...records.values(FAMILIES)]
          .map((row) => row as FamilyRow)
          .filter(isDue)
          .slice(0, which.limit)
        // The time of a look is not written to the journal, because the intervals may start again after a restart.
        for (const row of chosen)
          records.apply(changedFamily({ ...row, NextSweepAt: recheckAt(now) }))
      } else {
        const found = new Map<string, FamilyRow>()
        const add = (row: FamilyRow): void => void found.set(keyOfFamily(row), row)
        for (const run of which.ended) {
          const stored = table.get(run)
          const child = stored === undefined ? null : familyOfChild(stored)
          if (child !== null) for (const row of waitingRows(child.parent)) add(row)
          for (const row of ownRows(run)) add(row)
        }
        chosen = [...found.values()]
      }
      return chosen.map((row) => {
        const family = familyOf(row)
        const parent = table.get(row)?.header ?? null
        const failed =
          family.Pending > 0 || family.Failed === 0
            ? []
            : childrenOf(base(row))
                .filter(({ header: { Status } }) => isOver(Status) && Status !== 'Completed')
                .slice(0, MAX_FAILED_IDS)
                .map(({ header }) => itemIdOf(row.Prefix, header.TransactionID))
        return { family, parent, failed }
      })
    },

    takeTurns,

    async cancelChildren(families, limit) {
      const at = times()
      const picked = families
        .flatMap((one) =>
          childrenOf(one).filter(
            (child) =>
              !isOver(child.header.Status) && (one.which === 'active' || isNotStarted(child)),
          ),
        )
        .slice(0, limit)
      const cancelled = await commitRuns(picked.map((child) => cancelledChild(child, at)))
      if (picked.length < limit) {
        const closed = families
          .filter(({ isCascade }) => isCascade)
          .flatMap((one) => waitingRows(one))
          .filter((row) => isOver(table.get(row)?.header.Status ?? 'Completed'))
          .map((row) => ({ record: changedFamily({ ...row, Cascaded: true, NextSweepAt: null }) }))
        await commit(...closed)
      }
      return cancelled
    },

    async joinFamilies(joins) {
      const at = times()
      const moved = joins.flatMap((join) => {
        const row = familyRow(records, join)
        const parent = table.get(join)
        if (row === undefined || parent === undefined || familyOf(row).Pending > 0) return []
        const run = joined(parent, join, at)
        return run === null ? [] : [{ run, row: { ...row, Cascaded: true, NextSweepAt: null } }]
      })
      await commit(
        ...moved.flatMap(({ run, row }) => [withWebhooks(run), { record: changedFamily(row) }]),
      )
      return moved.map(({ run }) => run.header)
    },

    async children(key, { after, limit, statuses, withData = false }) {
      const row = familyRow(records, key)
      if (row === undefined) return []
      return childrenOf(base(row), after)
        .filter(({ header }) => statuses?.includes(header.Status) ?? true)
        .slice(0, limit)
        .map((child) => childRow(child, row.Prefix, withData))
    },
  }

  /** Returns the rows of the runs that have started or copied this family. */
  function waitingRows(key: FamilyKey): FamilyRow[] {
    return table
      .runsOf(key.Process, key.TransactionID)
      .flatMap(({ header }) => familyRow(records, { ...runKey(header), Place: key.Place }) ?? [])
      .filter((row) => row.OfReplayID === key.ReplayID)
  }
  function ownRows(run: RunKey): FamilyRow[] {
    return ownFamilies(store, run)
  }
  /** Gives free turns, and returns the children that have got one and whose message was not published yet. */
  async function takeTurns(families: readonly FamilyKey[]): Promise<Run[]> {
    const at = times()
    await commitRuns(families.flatMap((key) => freeTurns(store, key, at)))
    const taken: Run[] = []
    for (const text of families.flatMap((key) => table.families.takeGranted(key))) {
      const stored = table.byText(text)
      if (stored?.header.Status !== 'Queued') continue
      table.put({ ...stored, nextSweepAt: at.now + at.sweepMs })
      taken.push(stored.header)
    }
    return taken
  }
}

/** Returns the changes of the families of a run that is to be purged: their children are purged next. */
export const purgedFamilies = (
  store: Pick<MemoryStore, 'table' | 'records'>,
  run: RunKey,
  now: number,
): RecordChange[] =>
  ownFamilies(store, run)
    .filter((row) => row.OfReplayID === row.ReplayID)
    .map((row) => changedFamily({ ...row, NextSweepAt: new Date(now).toISOString() }))

/** Returns the changes that delete the families of runs that are deleted. */
export const forgottenFamilies = (
  { records }: Pick<MemoryStore, 'records'>,
  runs: ReadonlySet<string>,
): RecordChange[] =>
  [...records.values(FAMILIES)]
    .map((row) => row as FamilyRow)
    .filter((row) => runs.has(keyText(row)))
    .map((row) => ({ ...placeOf(row), row: null }))

/** Returns the changes of the families of a run that is resumed. */
export const resumedFamilies = (
  store: Pick<MemoryStore, 'table' | 'records'>,
  run: RunKey,
  now: number,
): RecordChange[] =>
  ownFamilies(store, run).map((row) =>
    changedFamily({ ...row, ResumedAt: new Date(now).toISOString() }),
  )

/** Returns the families of a run for a replay that copies these places: they name the children of the run. */
export const copiedFamilies = (
  store: Pick<MemoryStore, 'table' | 'records'>,
  run: RunKey,
  places: readonly string[],
  ReplayID: number,
): RecordChange[] =>
  ownFamilies(store, run)
    .filter(({ Place }) => places.includes(Place))
    .map((row) => changedFamily({ ...row, ReplayID, Cascaded: true, NextSweepAt: null }))

/** Returns the families that a run has started or copied. */
function ownFamilies(
  { table, records }: Pick<MemoryStore, 'table' | 'records'>,
  run: RunKey,
): FamilyRow[] {
  const stored = table.get(run)
  if (stored === undefined) return []
  const places = new Set([...stored.items.map((item) => item.StepName), stored.header.StepName])
  return [...places].flatMap((Place) => familyRow(records, { ...runKey(run), Place }) ?? [])
}

function childRow(
  { header, items, item = 0 }: StoredRun,
  prefix: string,
  withData: boolean,
): ChildRow {
  const { Status, StepName, Realm, ErrorClass, LastError } = header
  const last = items.find((one) => one.StepName === StepName)
  const Data = withData && Status === 'Completed' ? (last?.Data ?? null) : null
  const ItemID = itemIdOf(prefix, header.TransactionID)
  const row = { ...runKey(header), Status, StepName, Realm, Item: item, ErrorClass, LastError }
  return { ...row, ItemID, Data }
}
