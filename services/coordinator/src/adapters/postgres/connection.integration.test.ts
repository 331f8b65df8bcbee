import { createHealth } from '@integration-host/shared/health'
import { createLogger } from '@integration-host/shared/logger'
import { Secret } from '@integration-host/shared/secret'
import { edited, startRelay } from '@integration-host/shared/test-support/relay'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { createDatabase, type TestDatabase } from '../../../test-support/database.ts'
import { connectPostgres, isoTime } from './connection.ts'

const logger = createLogger('test', 'silent')

let database: TestDatabase
beforeAll(async () => {
  database = await createDatabase()
})
afterAll(() => database[Symbol.asyncDispose]())

async function connect() {
  const health = createHealth(logger)
  const dependency = health.dependency('postgres')
  const connection = connectPostgres(new Secret(database.url), { name: 'test', dependency, logger })
  await vi.waitFor(() => expect(health.report().status).toBe('ready'), { timeout: 20_000 })
  return connection
}

describe('a connection to Postgres', () => {
  it('finds rows by key, however the tables have grown since a statement was planned', async () => {
    await using connection = await connect()
    const [row] = await connection.run(
      (sql) => sql`select current_setting('enable_seqscan') as reads_whole_tables`,
    )
    expect(row).toEqual({ reads_whole_tables: 'off' })
  })

  // The driver as published asks again by itself then, out of step with what else is on its line (patches/).
  it('gives everyone his own answer while a migration changes a table under load', async () => {
    await using connection = await connect()
    await database.sql`create table asked (id int primary key)`
    await database.sql`insert into asked select generate_series(1, 500)`
    const isChanging = new AbortController()
    let next = 0
    const asking = Array.from({ length: 40 }, async () => {
      while (!isChanging.signal.aborted) {
        const id = 1 + ((next += 1) % 500)
        const rows = await connection.run((sql) => sql`select * from asked where id = ${id}`)
        expect(rows).toMatchObject([{ id }])
      }
    })
    for (const column of ['a', 'b', 'c']) {
      await database.sql`alter table asked add column ${database.sql(column)} int`
      const seen = next
      await vi.waitFor(() => expect(next).toBeGreaterThan(seen + 500), { timeout: 10_000 })
    }
    isChanging.abort()
    await Promise.all(asking)
  })

  it('tells times alike, whatever the database prints by itself', async () => {
    const name = await database.sql<{ name: string }[]>`select current_database() as name`
    await database.sql`alter database ${database.sql(name[0]?.name ?? '')} set datestyle = 'German'`
    await using connection = await connect()
    const rows = await connection.run(
      (sql) => sql`select timestamptz '2026-11-20 09:30:00.25+00' as at`,
    )
    expect(rows).toEqual([{ at: '2026-11-20T09:30:00.250Z' }])
  })
})

describe('a database that is not as it has to be', () => {
  /** Connects a coordinator's connection, and tells what it waits for; each line of its log. */
  function watch(url: string) {
    const lines: Record<string, unknown>[] = []
    const told = createLogger('test', 'info', {
      write: (line) => void lines.push(JSON.parse(line) as Record<string, unknown>),
    })
    const health = createHealth(told)
    const dependency = health.dependency('postgres')
    const connection = connectPostgres(new Secret(url), { name: 'test', dependency, logger: told })
    const waiting = () => lines.filter(({ msg }) => msg === 'waiting for dependency')
    return {
      lines,
      waiting,
      ready: () => vi.waitFor(() => expect(health.report().status).toBe('ready'), PATIENCE),
      reason: () =>
        vi.waitFor(() => {
          expect(waiting()).toHaveLength(1)
          return String(waiting()[0]?.['reason'])
        }, PATIENCE),
      [Symbol.asyncDispose]: () => connection[Symbol.asyncDispose](),
    }
  }
  const PATIENCE = { timeout: 20_000 }
  const RESTORE = /Restore a backup/

  it.each([
    [
      'whose tables lack a column of its migrations',
      'alter table "Order_Item" rename column "Data" to "Lost"',
      'alter table "Order_Item" rename column "Lost" to "Data"',
      'half-migrated: Order_Item.Data is missing',
      RESTORE,
    ],
    [
      'whose tables are ahead of its record of migrations',
      'update drizzle.__drizzle_migrations set created_at = -created_at where id > 1',
      'update drizzle.__drizzle_migrations set created_at = -created_at where id > 1',
      'is there before its migration',
      RESTORE,
    ],
    [
      'without its record of migrations',
      'alter table drizzle.__drizzle_migrations rename to away',
      'alter table drizzle.away rename to __drizzle_migrations',
      'there are tables, but no record of migrations',
      RESTORE,
    ],
    [
      'with a trigger that its record knows nothing of',
      'delete from drizzle.__drizzle_migrations where id >= 3',
      'drop schema public cascade; drop schema drizzle cascade; create schema public',
      'half-migrated: migration 0002 cannot be applied (42723)',
      RESTORE,
    ],
    [
      'of a newer version',
      "insert into drizzle.__drizzle_migrations (id, hash, created_at) values (99, 'x', 4102444800000)",
      'delete from drizzle.__drizzle_migrations where id = 99',
      'the database was migrated by a newer version than this one',
      /Run that version or a newer one/,
    ],
  ])(
    '%s is left alone until it is mended, and told in one line',
    async (_, spoil, mend, what, how) => {
      await using own = await createDatabase()
      {
        await using first = watch(own.url)
        await first.ready()
      }
      await own.sql.unsafe(spoil)
      await using second = watch(own.url)
      const reason = await second.reason()
      expect(reason).toContain(what)
      expect(reason).toMatch(how)
      await own.sql.unsafe(mend)
      await second.ready()
      expect(second.waiting()).toHaveLength(1)
    },
  )

  it('because its server is too old is told in one line', async () => {
    await using relay = await startRelay(database.url, 5_432)
    relay.edit = (answer) => edited(answer, /\b1\d(\.\d+ \(|\.\d+$)/g, '11$1')
    await using connection = watch(relay.url)
    expect(await connection.reason()).toMatch(/^version: 11\.\d+.* Upgrade to 14\.0 or newer\.$/)
  })

  it('because its clock is minutes away is used, and told in one line', async () => {
    await using relay = await startRelay(database.url, 5_432)
    // The first digits of the time in ms, which comes behind the version: a day later.
    relay.edit = (answer) =>
      edited(
        answer,
        /(\b\d\d\.\d+[^]{0,80}?)(\d{5})(?=\d{8})/,
        (_, before, days) => `${before}${Number(days) + 1}`,
      )
    await using connection = watch(relay.url)
    await connection.ready()
    const remarks = connection.lines.filter(({ msg }) => msg === 'dependency is not right')
    expect(remarks).toEqual([
      expect.objectContaining({
        check: 'clock',
        found: expect.stringMatching(/^\d+\.\d s ahead of this machine$/),
        toMend: expect.stringContaining('NTP'),
      }),
    ])
  })
})

describe('a time of Postgres', () => {
  it.each([
    ['2026-11-20 09:30:00+00', '2026-11-20T09:30:00.000Z'],
    ['2026-11-20 09:30:00.2+00', '2026-11-20T09:30:00.200Z'],
    ['2026-11-20 09:30:00.256789+00', '2026-11-20T09:30:00.256Z'],
    ['2026-11-20T09:30:00+00:00', '2026-11-20T09:30:00.000Z'],
    ['2026-11-20T09:30:00.999999+00:00', '2026-11-20T09:30:00.999Z'],
    ['0001-01-02 00:00:00.001+00', '0001-01-02T00:00:00.001Z'],
    ['9999-12-30 00:00:00+00', '9999-12-30T00:00:00.000Z'],
  ])('%s is told as %s', (time, told) => {
    expect(isoTime(time)).toBe(told)
  })
})
