import { createDatabase, type TestDatabase } from '@integration-host/postgres/test-support/database'
import postgres from 'postgres'

/** The time of a database, as its statements see it. */
export interface MovableTime {
  /** Moves the time by `ms`: forward, or back if `ms` is negative. */
  readonly advance: (ms: number) => Promise<void>
  /** Sets the time back to that of the server. */
  readonly reset: () => Promise<void>
}

/**
 * Makes a test move the time of a database. Unqualified calls of `now()` and `clock_timestamp()` then find functions in
 * the schema `clock`, which add what the test has advanced. Call this before any other use of the database: a connection
 * reads the search path when it opens, and the default of a column binds its function when the table is created.
 */
export async function withMovableTime({ url, sql }: TestDatabase): Promise<MovableTime> {
  const first = postgres(url, { max: 1, onnotice: () => {} })
  const name = new URL(url).pathname.slice(1)
  // `public` stays in front, so that the migrations create their tables there.
  await first.unsafe(
    `create schema clock; alter database "${name}" set search_path = public, clock, pg_catalog`,
  )
  await first.end()
  let movedMs = 0
  const moveTo = async (ms: number): Promise<void> => {
    movedMs = ms
    const moved = (original: string, volatility: string) => `
      create or replace function clock.${original}() returns timestamptz language sql ${volatility}
      return pg_catalog.${original}() + interval '${ms} ms'`
    await sql.unsafe(`${moved('now', 'stable')}; ${moved('clock_timestamp', 'volatile')}`)
  }
  await moveTo(0)
  return {
    advance: (ms) => moveTo(movedMs + ms),
    async reset() {
      // Every replaced function makes all connections plan their statements again.
      if (movedMs !== 0) await moveTo(0)
    },
  }
}

/** Databases that no test uses at present. Their tables exist and are empty. */
const unused: TestDatabase[] = []

/**
 * A database for one test, in which a coordinator creates the tables if an earlier test of this process has not done so.
 * To create the database, its tables and their indexes takes longer than most tests. Therefore its tables are emptied when
 * the test ends, and a later test of this process uses them. The databases are dropped at the end of the run.
 */
export async function takeDatabase(): Promise<TestDatabase> {
  const database = unused.pop() ?? (await createDatabase())
  return {
    ...database,
    async [Symbol.asyncDispose]() {
      await emptyTables(database.sql)
      unused.push(database)
    },
  }
}

/** Deletes all rows but those that a migration inserts. For small tables, `delete` is much faster than `truncate`. */
export async function emptyTables(sql: postgres.Sql): Promise<void> {
  const tables = await sql<{ name: string }[]>`
    select tablename as name from pg_tables where schemaname = 'public' order by tablename = 'Order_Header'`
  await sql.unsafe(
    tables
      .map(({ name }) =>
        name === 'Order_Installation'
          ? `delete from "${name}" where "Name" <> 'KeepsByDefault'`
          : `delete from "${name}"`,
      )
      .join('; '),
  )
}
