import {
  type Entries,
  type EntryCount,
  ENTRIES,
  type EntryRow,
  erasedEntry,
  isOutside,
  type NewEntry,
  withEntries,
} from '../../entry/book-entry.ts'
import { MARKS, type MarkRow } from '../../entry/marks.ts'
import { type RunKey, runKey } from '../../run/run.ts'
import { keyOf, type RecordChange, type RecordTables } from './records.ts'
import type { MemoryStore } from './store.ts'

const changeOf = (row: EntryRow): RecordChange => ({
  table: ENTRIES.table,
  key: keyOf([row.EntryID]),
  row,
})

const objectOf = ({ Realm, Entity, EntityID }: NewEntry): string =>
  JSON.stringify([Realm, Entity, EntityID])

/** Returns what changes in the book when the attempt of a step is recorded. `at` is the time, in ISO 8601. */
export function recordedEntries(
  records: RecordTables,
  { step, ...run }: RunKey & { readonly step: string },
  entries: readonly NewEntry[],
  at: string,
): RecordChange[] {
  const added = entries.map((entry): EntryRow => ({
    ...entry,
    ...runKey(run),
    StepName: step,
    RecordedAt: at,
    State: 'Recorded',
    CheckedAt: null,
    Changed: null,
  }))
  return [...Map.groupBy(added, objectOf).values()].flatMap((group) => {
    const [{ Realm, Entity, EntityID }] = group as [EntryRow, ...EntryRow[]]
    const known = records.group(ENTRIES.table, [EntityID, Realm, Entity]) as EntryRow[]
    return withEntries(known, group).map(changeOf)
  })
}

/** Returns what changes in the book when a run is erased. */
export const erasedEntries = (records: RecordTables, run: RunKey): RecordChange[] =>
  allOf(records)
    .filter(
      ({ Process, TransactionID, ReplayID }) =>
        TransactionID === run.TransactionID && ReplayID === run.ReplayID && Process === run.Process,
    )
    .map((entry) => changeOf(erasedEntry(entry)))

const allOf = (records: RecordTables): EntryRow[] =>
  records.rows(ENTRIES.table).map(([, row]) => row as EntryRow)

/** Counts entries by state and entity, in this order. */
const countsOf = (entries: readonly EntryRow[]): EntryCount[] =>
  [...Map.groupBy(entries, ({ State, Entity }) => `${State} ${Entity}`)]
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .flatMap(([, [first, ...others]]) =>
      first === undefined
        ? []
        : [{ State: first.State, Entity: first.Entity, Count: others.length + 1 }],
    )

export function createMemoryEntries(
  { records, commit }: Pick<MemoryStore, 'records' | 'commit'>,
  now: () => number,
): Entries {
  /** Removes rows of the two tables. Resolves with their number. */
  async function remove(
    isOld: (row: EntryRow | MarkRow, at: string) => boolean,
    limit = Infinity,
  ): Promise<number> {
    const timesOf = (table: string, column: 'RecordedAt' | 'SentAt') =>
      records
        .rows(table)
        .map(([key, row]) => ({ table, key, row, at: (row as EntryRow & MarkRow)[column] }))
        .filter(({ row, at }) => isOld(row as EntryRow, at))
        .toSorted((a, b) => (a.at < b.at ? -1 : 1))
        .slice(0, limit)
    const old = [...timesOf(ENTRIES.table, 'RecordedAt'), ...timesOf(MARKS.table, 'SentAt')]
    if (old.length > 0)
      await commit({ records: old.map(({ table, key }) => ({ table, key, row: null })) })
    return old.length
  }
  return {
    newestEntries: async (realm, objects) =>
      objects.flatMap(({ entity, id }) =>
        (records.group(ENTRIES.table, [id, realm, entity]) as EntryRow[]).filter(
          ({ State }) => State !== 'Superseded',
        ),
      ),
    async checkEntries(checks) {
      const CheckedAt = new Date(now()).toISOString()
      const changes = checks.flatMap(({ EntryID, State, Changed }) => {
        const entry = records.get(ENTRIES.table, keyOf([EntryID])) as EntryRow | undefined
        return entry === undefined || ['Superseded', 'Unproven'].includes(entry.State)
          ? []
          : [
              changeOf({
                ...entry,
                State,
                Changed: Changed === null ? null : [...Changed],
                CheckedAt,
              }),
            ]
      })
      if (changes.length > 0) await commit({ records: changes })
    },
    async countEntries(which) {
      const isCounted =
        'realm' in which
          ? ({ Realm, State, RecordedAt }: EntryRow) =>
              Realm === which.realm &&
              State !== 'Superseded' &&
              Date.parse(RecordedAt) >=
                (which.since === undefined ? -Infinity : Date.parse(which.since)) &&
              (which.until === undefined || Date.parse(RecordedAt) < Date.parse(which.until))
          : ({ State, CheckedAt }: EntryRow) =>
              isOutside(State) &&
              CheckedAt !== null &&
              Date.parse(CheckedAt) >= now() - which.checkedSinceMs
      return countsOf(allOf(records).filter(isCounted))
    },
    deleteEntries: (which) =>
      'realm' in which
        ? remove(({ Realm }) => Realm === which.realm)
        : remove((_, at) => Date.parse(at) < now() - which.olderThanMs, which.limit),
  }
}
