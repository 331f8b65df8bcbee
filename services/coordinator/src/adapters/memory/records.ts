/** The rows of the tables of `Records` in the memory source. */
import { isDeepStrictEqual } from 'node:util'
import type { RecordKind, Records } from '../../records/records.ts'
import type { MemoryStore } from './store.ts'

/** The table of the values that exist once per installation. */
export const INSTALLATION = 'Order_Installation'

/** The row with this key, or `null` if there is none from now on. The values of a key contain no slash. */
export interface RecordChange {
  readonly table: string
  readonly key: string
  readonly row: object | null
  /** Whether the other columns keep their values. */
  readonly isPartial?: true
}

export type RecordTables = ReturnType<typeof createRecordTables>

/** The columns by which rows are found without a search, for tables that may have many rows. */
const GROUPED: Readonly<Record<string, readonly string[]>> = {
  Book_Entry: ['EntityID', 'Realm', 'Entity'],
}

export function createRecordTables() {
  const tables = new Map<string, Map<string, object>>()
  const groups = new Map<string, Map<string, object>>()
  const groupOf = (table: string, values: readonly unknown[]): Map<string, object> => {
    const name = JSON.stringify([table, ...values])
    const group = groups.get(name) ?? new Map<string, object>()
    groups.set(name, group)
    return group
  }
  const regroup = (table: string, key: string, before: object | null, after: object | null) => {
    const columns = GROUPED[table]
    if (columns === undefined) return
    const groupOfRow = (row: object) =>
      groupOf(
        table,
        columns.map((column) => row[column as keyof object]),
      )
    if (before !== null) groupOfRow(before).delete(key)
    if (after !== null) groupOfRow(after).set(key, after)
  }
  const tableOf = (name: string): Map<string, object> => {
    const rows = tables.get(name) ?? new Map<string, object>()
    tables.set(name, rows)
    return rows
  }
  return {
    get: (table: string, key: string): object | undefined => tableOf(table).get(key),
    /** Returns the rows of a table in no order. */
    values: (table: string): Iterable<object> => tableOf(table).values(),
    /** Applies a change, and returns the change that undoes it. */
    apply({ table, key, row, isPartial }: RecordChange): RecordChange {
      const rows = tableOf(table)
      const before = rows.get(key) ?? null
      if (row === null) rows.delete(key)
      else rows.set(key, isPartial ? { ...before, ...row } : row)
      regroup(table, key, before, rows.get(key) ?? null)
      return { table, key, row: before }
    },
    /** Returns the rows of a table of {@link GROUPED} that have these values in its columns. */
    group: (table: string, values: readonly unknown[]): readonly object[] => [
      ...groupOf(table, values).values(),
    ],
    /** Returns the rows of a table in the order of their keys. */
    rows: (table: string) => [...tableOf(table)].toSorted(([a], [b]) => (a < b ? -1 : 1)),
    all: (): readonly RecordChange[] =>
      [...tables].flatMap(([table, rows]) => [...rows].map(([key, row]) => ({ table, key, row }))),
  }
}

/** Returns the key of a row, or the beginning of the keys of several rows. */
export const keyOf = (values: readonly unknown[]): string =>
  values.map((value) => `${String(value)}/`).join('')

/** Ends the leases of the rows, because a restart ends all of them: no other OS process uses the files. */
export function endLeases(tables: RecordTables): void {
  for (const { table, key, row } of tables.all()) {
    if (row === null) continue
    const { Value } = row as { readonly Value?: unknown }
    if ('LeaseUntil' in row)
      tables.apply({ table, key, row: { LeaseOwner: null, LeaseUntil: null }, isPartial: true })
    if (typeof Value === 'object' && Value !== null && 'Until' in Value) {
      const ended = { ...Value, Until: new Date(0).toISOString() }
      tables.apply({ table, key, row: { Value: ended }, isPartial: true })
    }
  }
}

export function memoryRecords<Row extends object>(
  { records, log, commit }: Pick<MemoryStore, 'records' | 'log' | 'commit'>,
  now: () => number,
  { table, key, prefix = '', short }: RecordKind<Row>,
): Records<Row> {
  /** The stored rows of the rows that `page` has shortened. */
  const stored = new WeakMap<object, object>()
  const shortened = (row: Row): Row => {
    if (short === undefined) return row
    const { [short.list]: list, ...rest } = row[short.column] as Record<string, unknown>
    const count = Array.isArray(list) ? list.length : null
    const copy = { ...row, [short.column]: { ...rest, [short.count]: count } }
    stored.set(copy, row)
    return copy
  }
  return {
    now: async () => now(),
    rows: async (...values) =>
      records
        .rows(table)
        .filter(([known]) => known.startsWith(prefix) && known.startsWith(keyOf(values)))
        .map(([, row]) => row as Row),
    async page({ where = {}, by, isNewestFirst = false, after, limit }) {
      const sign = isNewestFirst ? -1 : 1
      const order = (a: Row, other: (name: keyof Row & string, n: number) => unknown): number => {
        const n = by.findIndex((name, at) => a[name] !== other(name, at))
        const name = by[n]
        return name === undefined
          ? 0
          : (a[name] as string) < (other(name, n) as string)
            ? -sign
            : sign
      }
      return records
        .rows(table)
        .map(([, row]) => row as Row)
        .filter((row) =>
          Object.entries(where).every(([name, value]) => row[name as keyof Row] === value),
        )
        .filter((row) => after === undefined || order(row, (_, n) => after[n]) > 0)
        .toSorted((a, b) => order(a, (name) => b[name]))
        .slice(0, limit)
        .map(shortened)
    },
    async replace(before, after, action) {
      const row = after ?? before
      if (row === undefined) return true
      const changed = keyOf(key.map((name) => row[name]))
      if (records.get(table, changed) !== (before && (stored.get(before) ?? before))) return false
      const entry = action && { action: log.next(action) }
      await commit({ record: { table, key: changed, ...changeOf(before, after) }, ...entry })
      return true
    },
  }
}

/** Returns only the columns that have changed, because the entry of the journal may otherwise be large. */
function changeOf<Row extends object>(
  before: Row | undefined,
  after: Row | undefined,
): Pick<RecordChange, 'row' | 'isPartial'> {
  if (before === undefined || after === undefined) return { row: after ?? null }
  const isChanged = ([name, value]: [string, unknown]): boolean =>
    !isDeepStrictEqual(before[name as keyof Row], value)
  return { row: Object.fromEntries(Object.entries(after).filter(isChanged)), isPartial: true }
}
