import { isDeepStrictEqual } from 'node:util'
import type { RecordKind, Records } from '../../records/records.ts'
import type { PostgresConnection } from '@integration-host/postgres/connection'

/** Returns a list of quoted names of columns. The names come from this code, never from a request. */
const listOf = (names: readonly string[]): string => names.map((name) => `"${name}"`).join(', ')

/** The columns of an entry of the action log. The database adds `ID` and `At`. */
const ACTION = listOf([
  'KeyID',
  'Person',
  'Action',
  'Process',
  'TransactionID',
  'ReplayID',
  'Realm',
  'Reason',
  'Outcome',
  'OperationID',
])

/**
 * The rows of a table in PostgreSQL. The version of a row is its `xmin`, the id of the database transaction that has
 * written it (PostgreSQL manual, section 5.5). Therefore a change by any program counts, also by a replica of an
 * earlier release. A statement that had to wait for the lock of a row compares the version again.
 */
export function postgresRecords<Row extends object>(
  { run }: Pick<PostgresConnection, 'run'>,
  { table, key, prefix, short }: RecordKind<Row>,
): Records<Row> {
  const versions = new WeakMap<object, string>()
  const withVersions = (found: readonly ({ xmin: string } & Row)[]): readonly Row[] =>
    found.map(({ xmin, ...columns }) => {
      const row = columns as unknown as Row
      versions.set(row, xmin)
      return row
    })
  /** The rows whose long column is shortened. */
  const shortened =
    short === undefined
      ? `(select *, xmin::text as xmin from "${table}") r`
      : `(select r.*, t.xmin::text as xmin from "${table}" t
          cross join lateral jsonb_populate_record(t, jsonb_build_object('${short.column}',
            (t."${short.column}" - '${short.list}') || jsonb_build_object('${short.count}',
              jsonb_array_length(t."${short.column}" -> '${short.list}')))) r) r`
  return {
    now: () =>
      run(async (sql) => {
        const [clock] = await sql<[{ ms: number }]>`
          select floor(extract(epoch from clock_timestamp()) * 1000)::float8 as ms`
        return clock.ms
      }),

    rows: (...values) =>
      run(async (sql) => {
        const wanted = values.map((_, n) => `and "${key[n]}" = $${n + 1}`)
        if (prefix !== undefined) wanted.push(`and "${key[0]}" ^@ $${values.length + 1}`)
        const found = await sql.unsafe<({ xmin: string } & Row)[]>(
          `select *, xmin::text as xmin from "${table}" where true ${wanted.join(' ')} order by ${listOf(key)}`,
          [...values, ...(prefix === undefined ? [] : [prefix])],
          { prepare: true },
        )
        return withVersions(found)
      }),

    page: ({ where = {}, by, isNewestFirst = false, after, limit }) =>
      run(async (sql) => {
        const values: (string | number)[] = []
        const given = (value: unknown): string => `$${values.push(value as string)}`
        const wanted = Object.entries(where).map(([name, value]) =>
          value === null ? `and "${name}" is null` : `and "${name}" = ${given(value)}`,
        )
        if (after !== undefined)
          wanted.push(
            `and (${listOf(by)}) ${isNewestFirst ? '<' : '>'} (${after.map(given).join(', ')})`,
          )
        const order = by.map((name) => `"${name}" ${isNewestFirst ? 'desc' : 'asc'}`).join(', ')
        return withVersions(
          await sql.unsafe<({ xmin: string } & Row)[]>(
            `select * from ${shortened} where true ${wanted.join(' ')} order by ${order} limit ${limit}`,
            values,
            { prepare: true },
          ),
        )
      }),

    replace: (before, after, action) =>
      run(async (sql) => {
        const row = after ?? before
        if (row === undefined) return true
        // The columns that a later release has added keep their values.
        const isChanged = (name: string): boolean =>
          before === undefined ||
          !isDeepStrictEqual(before[name as keyof Row], row[name as keyof Row])
        const changes = Object.keys(row).filter(isChanged)
        const columns = listOf(changes.length === 0 ? key : changes)
        const given = `from jsonb_populate_record(null::"${table}", $1::text::jsonb)`
        const isSame = `(${listOf(key)}) = (select ${listOf(key)} ${given}) and xmin = $3::text::xid`
        const change =
          before === undefined
            ? `insert into "${table}" (${columns}) select ${columns} ${given} on conflict do nothing`
            : after === undefined
              ? `delete from "${table}" where ${isSame}`
              : `update "${table}" set (${columns}) = (select ${columns} ${given}) where ${isSame}`
        const rows = await sql.unsafe(
          `with changed as (${change} returning 1), recorded as (
             insert into "Order_Action" (${ACTION})
             select ${ACTION} from jsonb_populate_record(null::"Order_Action", $2::text::jsonb), changed
             where "KeyID" is not null)
           select 1 from changed`,
          [
            JSON.stringify(row),
            JSON.stringify(action ?? {}),
            ...(before === undefined ? [] : [versions.get(before) ?? '0']),
          ],
          { prepare: true },
        )
        return rows.length > 0
      }),
  }
}
