/** The rows of the tables of `Records` in the memory source. */
import { isDeepStrictEqual } from 'node:util'
import type { RecordCount, RecordCounting, RecordKind, Records } from '../../records/records.ts'
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

/** The columns by which rows are found without a search, for tables that may have many rows. The first is not `null`. */
const GROUPED: Readonly<Record<string, readonly string[]>> = {
  Book_Entry: ['EntityID', 'Realm', 'Entity'],
  Order_Action: ['OperationID', 'Process', 'TransactionID'],
}

/** 32 MB of memory, and of the snapshot. */
const CAPACITY = 500

/** The row of {@link INSTALLATION} that keeps the last `ID` of a table whose rows are removed. */
const LAST_IDS: Readonly<Record<string, string>> = { Order_DeadLetter: 'LastDeadLetterID' }

/** Returns the change that keeps the last `ID` of a table. */
export const lastIdIs = (table: string, Value: number): RecordChange[] => {
  const Name = LAST_IDS[table]
  return Name === undefined
    ? []
    : [{ table: INSTALLATION, key: keyOf([Name]), row: { Name, Value } }]
}

export function createRecordTables() {
  const tables = new Map<string, Map<string, object>>()
  const groups = new Map<string, Map<string, object>>()
  /** The last `ID` of each table, even if its row was removed, or could not be written. */
  const lastIds = new Map<string, number>()
  const groupName = (table: string, values: readonly unknown[]): string =>
    JSON.stringify([table, ...values])
  const regroup = (table: string, key: string, before: object | null, after: object | null) => {
    const columns = GROUPED[table]
    if (columns === undefined) return
    for (const row of [before, after]) {
      const values = columns.map((column) => row?.[column as keyof object])
      if (row === null || values[0] === null) continue
      const name = groupName(table, values)
      const group = groups.get(name) ?? new Map<string, object>()
      groups.set(name, group)
      if (row === after) group.set(key, row)
      else group.delete(key)
    }
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
      const { ID } = (row ?? {}) as { readonly ID?: unknown }
      if (typeof ID === 'number') lastIds.set(table, Math.max(ID, lastIds.get(table) ?? 0))
      regroup(table, key, before, rows.get(key) ?? null)
      return { table, key, row: before }
    },
    /** Returns the rows of a table of {@link GROUPED} that have these values in its columns. */
    group: (table: string, values: readonly unknown[]): readonly object[] => [
      ...(groups.get(groupName(table, values))?.values() ?? []),
    ],
    /** Returns an `ID` that no row of the table has had. */
    nextId(table: string): number {
      const kept = tableOf(INSTALLATION).get(keyOf([LAST_IDS[table]])) as
        | { readonly Value: number }
        | undefined
      const id = Math.max(kept?.Value ?? 0, lastIds.get(table) ?? 0) + 1
      lastIds.set(table, id)
      return id
    },
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
  { records, log, commit, flush }: Pick<MemoryStore, 'records' | 'log' | 'commit' | 'flush'>,
  now: () => number,
  { table, key, prefix = '', short, isNumbered, bytes }: RecordKind<Row>,
): Records<Row> {
  /** The stored rows of the rows that were read in another form. */
  const stored = new WeakMap<object, object>()
  const copyOf = (row: Row, columns: object): Row => {
    const copy = { ...row, ...columns }
    stored.set(copy, row)
    return copy
  }
  const shortened = (row: Row): Row => {
    if (bytes !== undefined) {
      const content = Buffer.from(row[bytes.column] as string, 'base64')
      return copyOf(row, { [bytes.column]: content.subarray(0, bytes.limit) })
    }
    if (short === undefined) return row
    const { [short.list]: list, ...rest } = row[short.column] as Record<string, unknown>
    const count = Array.isArray(list) ? list.length : null
    return copyOf(row, { [short.column]: { ...rest, [short.count]: count } })
  }
  /** The files contain bytes in Base64. */
  const encoded = (row: Row): object =>
    bytes === undefined
      ? row
      : { ...row, [bytes.column]: (row[bytes.column] as Buffer).toString('base64') }
  const placeOf = (row: Row) => ({ table, key: keyOf(key.map((name) => row[name])) })
  const found = (where: object): Row[] => {
    const conditions = Object.entries(where).map(
      ([name, wanted]) => [name as keyof Row, conditionOf(wanted)] as const,
    )
    return ([...records.values(table)] as Row[]).filter((row) =>
      conditions.every(([name, isWanted]) => isWanted(row[name])),
    )
  }
  return {
    capacity: CAPACITY,
    now: async () => now(),
    rows: async (...values) =>
      records
        .rows(table)
        .filter(([known]) => known.startsWith(prefix) && known.startsWith(keyOf(values)))
        .map(([, row]) => row as Row),
    async page({ where = {}, by, isNewestFirst = false, after, limit }) {
      const compare = comparing<Row>(by)
      const sign = isNewestFirst ? -1 : 1
      const last = after && (Object.fromEntries(by.map((name, n) => [name, after[n]])) as Row)
      return found(where)
        .filter((row) => last === undefined || compare(row, last) * sign > 0)
        .toSorted((a, b) => compare(a, b) * sign)
        .slice(0, limit)
        .map(shortened)
    },
    async count<By extends keyof Row & string>({
      where = {},
      by,
      oldest,
    }: RecordCounting<Row, By>): Promise<RecordCount<Row, By>[]> {
      const groups = Map.groupBy(found(where).toSorted(comparing<Row>(by)), (row) =>
        JSON.stringify(by.map((name) => row[name])),
      )
      return [...groups.values()].map((rows) => {
        const values = Object.fromEntries(by.map((name) => [name, rows[0]?.[name]]))
        const least = oldest && rows.toSorted(comparing<Row>([oldest]))[0]?.[oldest]
        return {
          ...(values as Pick<Row, By>),
          Count: rows.length,
          ...(oldest !== undefined && { Oldest: least as string }),
        }
      })
    },
    async replace(before, after, action) {
      const row = after ?? before
      if (row === undefined) {
        if (action !== undefined) await commit({ action: log.next(action) })
        return true
      }
      const place = placeOf(row)
      if (records.get(table, place.key) !== (before && (stored.get(before) ?? before))) {
        await flush() // another call may still be writing the row to the disk
        return false
      }
      const ID = before === undefined && isNumbered ? records.nextId(table) : null
      const change =
        ID === null
          ? changeOf(before, after)
          : { row: { ...encoded(row), ID, At: new Date(now()).toISOString() } }
      await commit({
        record: { ...place, ...change },
        ...(ID !== null && { records: lastIdIs(table, ID) }),
        ...(action && { action: log.next(action) }),
      })
      return true
    },
    async remove({ where, by = [], limit }, action) {
      const removed = found(where).toSorted(comparing<Row>(by)).slice(0, limit)
      if (removed.length === 0) return 0
      await commit({
        records: removed.map((row) => ({ ...placeOf(row), row: null })),
        ...(action && { action: log.next(action) }),
      })
      return removed.length
    },
  }
}

/** Returns a function that compares rows by columns. */
const comparing =
  <Row>(by: readonly (keyof Row)[]) =>
  (a: Row, b: Row): number => {
    const name = by.find((one) => a[one] !== b[one])
    return name === undefined ? 0 : a[name] < b[name] ? -1 : 1
  }

/** Returns the condition that a member of a filter stands for. */
function conditionOf(wanted: unknown): (value: unknown) => boolean {
  if (wanted === undefined) return () => true
  if (wanted === null || typeof wanted !== 'object') return (value) => value === wanted
  if ('in' in wanted) {
    const several = new Set(wanted.in as readonly unknown[])
    return (value) => several.has(value)
  }
  const { from = '', until = '~' } = wanted as { readonly from?: string; readonly until?: string }
  return (value) => typeof value === 'string' && value >= from && value < until
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
