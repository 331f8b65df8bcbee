import {
  type Entries,
  ENTRIES,
  type EntryRow,
  erasedEntry,
  type NewEntry,
  withEntries,
} from '../../entry/book-entry.ts'
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

export function createMemoryEntries(
  { records, commit }: Pick<MemoryStore, 'records' | 'commit'>,
  now: () => number,
): Entries {
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
  }
}
