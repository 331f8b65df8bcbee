import { isDeepStrictEqual } from 'node:util'
import type { NewAction, RecordKind, Records } from '../../records/records.ts'
import { ACTIONS } from '../../run/action.ts'
import type { PostgresConnection } from '@integration-host/postgres/connection'

/** Returns a list of quoted names of columns. The names come from this code, never from a request. */
const listOf = (names: readonly string[], row = ''): string =>
  names.map((name) => `${row}"${name}"`).join(', ')

/** The columns of an entry of the action log. The database adds `ID` and `At`. */
const ACTION = listOf(ACTIONS.columns.filter((name) => name !== 'ID' && name !== 'At'))

/** 640 MB on the disk. */
const CAPACITY = 10_000

/** The parameters of a statement. */
type Values = (string | number)[]

/** Adds a parameter, and returns its name. */
const given = (values: Values, value: unknown): string => `$${values.push(value as string)}`

/** Returns the condition that a filter of the rows `t` stands for. */
function conditionOf(where: object, values: Values): string {
  const conditions = Object.entries(where).map(([name, value]: [string, unknown]) => {
    const column = `t."${name}"`
    if (value === undefined) return 'true'
    if (value === null) return `${column} is null`
    if (typeof value !== 'object') return `${column} = ${given(values, value)}`
    if ('in' in value) {
      const list = (value.in as readonly unknown[]).map((one) => given(values, one))
      return list.length === 0 ? 'false' : `${column} in (${list.join(', ')})`
    }
    const { from = '-infinity', until = 'infinity' } = value as { from?: string; until?: string }
    return `${column} >= ${given(values, from)} and ${column} < ${given(values, until)}`
  })
  return ['true', ...conditions].join(' and ')
}

/** Returns a row as JSON. PostgreSQL reads bytes in hexadecimal. */
const jsonOf = (row: object): string =>
  JSON.stringify(
    Object.fromEntries(
      Object.entries(row).map(([name, value]: [string, unknown]) => [
        name,
        Buffer.isBuffer(value) ? `\\x${value.toString('hex')}` : value,
      ]),
    ),
  )

/**
 * The rows of a table in PostgreSQL. The version of a row is its `xmin`, the id of the database transaction that has
 * written it (PostgreSQL manual, section 5.5). Therefore a change by any program counts, also by a replica of an
 * earlier release. A statement that had to wait for the lock of a row compares the version again.
 */
export function postgresRecords<Row extends object>(
  { run }: Pick<PostgresConnection, 'run'>,
  { table, key, prefix, short, isNumbered, columns, bytes }: RecordKind<Row>,
): Records<Row> {
  const versions = new WeakMap<object, string>()
  const execute = <Found extends object>(statement: string, values: Values): Promise<Found[]> =>
    run((sql) => sql.unsafe<Found[]>(statement, values, { prepare: true }))

  const columnOf = (name: string): string => {
    if (name === bytes?.column) return `substring(t."${name}" for ${bytes.limit}) as "${name}"`
    return name === 'ID' && isNumbered ? 't."ID"::float8' : `t."${name}"`
  }
  const whole = { list: columns?.map(columnOf).join(', ') ?? 't.*', from: `"${table}" t` }
  /** The rows whose long column is shortened. */
  const shortened =
    short === undefined
      ? whole
      : {
          list: 'r.*',
          from: `"${table}" t
            cross join lateral jsonb_populate_record(t, jsonb_build_object('${short.column}',
              (t."${short.column}" - '${short.list}') || jsonb_build_object('${short.count}',
                jsonb_array_length(t."${short.column}" -> '${short.list}')))) r`,
        }
  async function read({ list, from }: typeof whole, rest: string, values: Values) {
    const statement = `select ${list}, t.xmin::text from ${from} ${rest}`
    const found = await execute<{ xmin: string } & Row>(statement, values)
    return found.map(({ xmin, ...stored }) => {
      const row = stored as unknown as Row
      versions.set(row, xmin)
      return row
    })
  }

  /** Executes a change, and records the action if a row has changed. Returns the number of changed rows. */
  async function commit(change: string, values: Values, action?: NewAction): Promise<number> {
    const entry = given(values, JSON.stringify(action ?? {}))
    const [result] = await execute<{ count: number }>(
      `with changed as (${change}), recorded as (
         insert into "Order_Action" (${ACTION})
         select ${ACTION} from jsonb_populate_record(null::"Order_Action", ${entry}::text::jsonb)
         where "KeyID" is not null and exists (select from changed))
       select count(*)::int as count from changed`,
      values,
    )
    return result?.count ?? 0
  }

  return {
    capacity: CAPACITY,

    async now() {
      const [clock] = await execute<{ ms: number }>(
        'select floor(extract(epoch from clock_timestamp()) * 1000)::float8 as ms',
        [],
      )
      return clock?.ms ?? NaN
    },

    async rows(...wanted) {
      const values: Values = []
      const where = Object.fromEntries(wanted.map((value, n) => [key[n] ?? '', value] as const))
      const begins = prefix === undefined ? '' : `and t."${key[0]}" ^@ ${given(values, prefix)}`
      const isWanted = conditionOf(where, values)
      return read(whole, `where ${isWanted} ${begins} order by ${listOf(key, 't.')}`, values)
    },

    async page({ where = {}, by, isNewestFirst = false, after, limit }) {
      const values: Values = []
      const [sign, order] = isNewestFirst ? ['<', 'desc'] : ['>', 'asc']
      const position = after?.map((value) => given(values, value)).join(', ')
      const isLater =
        position === undefined ? '' : `and (${listOf(by, 't.')}) ${sign} (${position})`
      const ordered = by.map((name) => `t."${name}" ${order}`).join(', ')
      const isWanted = conditionOf(where, values)
      const rest = `where ${isWanted} ${isLater} order by ${ordered} limit ${given(values, limit)}`
      return read(shortened, rest, values)
    },

    async count({ where = {}, by, oldest }) {
      const values: Values = []
      const groups = listOf(by, 't.')
      return execute(
        `select ${groups}, count(*)::int as "Count"
           ${oldest === undefined ? '' : `, min(t."${oldest}") as "Oldest"`}
         from "${table}" t where ${conditionOf(where, values)} group by ${groups} order by ${groups}`,
        values,
      )
    },

    async replace(before, after, action) {
      const row = after ?? before
      if (row === undefined) return (await commit('select', [], action)) > 0
      // The columns that a later release has added keep their values.
      const isChanged = (name: string): boolean =>
        before === undefined ||
        !isDeepStrictEqual(before[name as keyof Row], row[name as keyof Row])
      const changes = Object.keys(row).filter(isChanged)
      const changed = listOf(changes.length === 0 ? key : changes)
      const values: Values = [jsonOf(row)]
      const fromRow = `from jsonb_populate_record(null::"${table}", $1::text::jsonb)`
      if (before !== undefined) values.push(versions.get(before) ?? '0')
      const isSame = `(${listOf(key)}) = (select ${listOf(key)} ${fromRow}) and xmin = $2::text::xid`
      const change =
        before === undefined
          ? `insert into "${table}" (${changed}) select ${changed} ${fromRow} on conflict do nothing`
          : after === undefined
            ? `delete from "${table}" where ${isSame}`
            : `update "${table}" set (${changed}) = (select ${changed} ${fromRow}) where ${isSame}`
      return (await commit(`${change} returning 1`, values, action)) > 0
    },

    async remove({ where, by, limit }, action) {
      const values: Values = []
      const chosen = `where ${conditionOf(where, values)}`
      const some =
        by === undefined || limit === undefined
          ? chosen
          : `where (${listOf(key, 't.')}) in (select ${listOf(key, 't.')} from "${table}" t ${chosen}
               order by ${listOf(by, 't.')} limit ${given(values, limit)})`
      return commit(`delete from "${table}" t ${some} returning 1`, values, action)
    },
  }
}
