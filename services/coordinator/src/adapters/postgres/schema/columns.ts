/** The column types and conditions that several tables use. */
import { sql } from 'drizzle-orm'
import { customType, timestamp } from 'drizzle-orm/pg-core'

export const time = (name: string) => timestamp(name, { withTimezone: true, mode: 'string' })

/**
 * The type of the columns by which statements look rows up. The values of these columns are compared byte by byte,
 * because a comparison with a linguistic collation costs ten times as much.
 */
export const key = customType<{ data: string }>({ dataType: () => 'text collate "C"' })

export const bytea = customType<{ data: Buffer }>({ dataType: () => 'bytea' })

/**
 * Returns the condition of a CHECK constraint that allows only these values. They must consist of letters, because they
 * are not quoted. They are one constant, because PostgreSQL parses the stored form of the constraints of a table in
 * each statement that inserts or updates rows.
 */
export const oneOf = (column: string, values: readonly string[]) =>
  sql.raw(`"${column}" = any ('{${values.join(',')}}')`)
