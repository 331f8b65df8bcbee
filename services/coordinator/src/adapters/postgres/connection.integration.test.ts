import { createHealth } from '@integration-host/shared/health'
import { createLogger } from '@integration-host/shared/logger'
import { Secret } from '@integration-host/shared/secret'
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
