/** The rows of the tables of `Records` in the memory source. */
import type { RecordKind, Records } from '../../records/records.ts'
import type { MemoryStore } from './store.ts'

/** The row with this key, or `null` if there is none from now on. The values of a key contain no slash. */
export interface RecordChange {
  readonly table: string
  readonly key: string
  readonly row: object | null
}

export interface RecordTables {
  get(table: string, key: string): object | undefined
  /** Applies a change, and returns the change that undoes it. */
  apply(change: RecordChange): RecordChange
  /** Returns the rows of a table in the order of their keys. */
  rows(table: string): readonly (readonly [key: string, row: object])[]
  all(): readonly RecordChange[]
}

export function createRecordTables(): RecordTables {
  const tables = new Map<string, Map<string, object>>()
  const tableOf = (name: string): Map<string, object> => {
    const rows = tables.get(name) ?? new Map<string, object>()
    tables.set(name, rows)
    return rows
  }
  return {
    get: (table, key) => tableOf(table).get(key),
    apply({ table, key, row }) {
      const rows = tableOf(table)
      const before = rows.get(key) ?? null
      if (row === null) rows.delete(key)
      else rows.set(key, row)
      return { table, key, row: before }
    },
    rows: (table) => [...tableOf(table)].toSorted(([a], [b]) => (a < b ? -1 : 1)),
    all: () =>
      [...tables].flatMap(([table, rows]) => [...rows].map(([key, row]) => ({ table, key, row }))),
  }
}

/** Returns the key of a row, or the beginning of the keys of several rows. */
export const keyOf = (values: readonly unknown[]): string =>
  values.map((value) => `${String(value)}/`).join('')

export function memoryRecords<Row extends object>(
  { records, log, commit }: Pick<MemoryStore, 'records' | 'log' | 'commit'>,
  now: () => number,
  { table, key }: RecordKind<Row>,
): Records<Row> {
  return {
    now: async () => now(),
    rows: async (...values) =>
      records
        .rows(table)
        .filter(([stored]) => stored.startsWith(keyOf(values)))
        .map(([, row]) => row as Row),
    async replace(before, after, action) {
      const changed = keyOf(key.map((name) => after[name]))
      if (records.get(table, changed) !== before) return false
      const entry = action && { action: log.next(action) }
      await commit({ record: { table, key: changed, row: after }, ...entry })
      return true
    },
  }
}
