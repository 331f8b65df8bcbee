import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { edited, startRelay } from '@integration-host/shared/test-support/relay'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createDatabase, type TestDatabase } from '../../../test-support/database.ts'
import { MIGRATION_LOCK } from './migrate.ts'
import { connectPostgres, isoTime, type PostgresConnection } from './connection.ts'

const logger = createLogger('test', 'silent')

let database: TestDatabase
beforeAll(async () => {
  database = await createDatabase()
})
afterAll(() => database[Symbol.asyncDispose]())

async function connect(url = database.url, options: { statementTimeoutMs?: number } = {}) {
  const health = createHealth(logger)
  const dependency = health.dependency('postgres')
  const about = { name: 'test', dependency, logger, ...options }
  const connection = connectPostgres(new Secret(url), about)
  await eventually(() => expect(health.report().status).toBe('ready'))
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

  // The published driver then repeats the query by itself, out of order with the others on its connection (see patches/).
  it('returns to each caller its own result while a migration changes a table under load', async () => {
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
      await eventually(() => expect(next).toBeGreaterThan(seen + 500))
    }
    isChanging.abort()
    await Promise.all(asking)
  })

  // The published driver mixes the rows of an interrupted statement into the next result on its connection: a result
  // with holes, and a dead-lettered message whose claim had been granted (see patches/).
  it.each([
    ['fails', '1 / (3 - i)'],
    ['loses its line', 'case when i = 3 then pg_terminate_backend(pg_backend_pid()) end'],
  ])(
    'returns complete results after a statement that %s in the middle of its rows',
    async (_, third) => {
      await using connection = await connect()
      const onEachLine = Array.from({ length: 20 }, (__, n) => n)
      await Promise.allSettled(
        onEachLine.map(() =>
          connection.run((sql) => sql`select i, ${sql.unsafe(third)} from generate_series(1, 5) i`),
        ),
      )
      const answers = await Promise.all(
        onEachLine.map((n) => connection.run((sql) => sql`select ${n}::int as n`)),
      )
      expect(answers.map((rows) => [...rows])).toEqual(onEachLine.map((n) => [{ n }]))
    },
  )

  // EPIPE has five capital letters like an SQLSTATE. Mistaken for one, it dead-lettered the message of a claim and lost
  // the outcome of a record.
  it.each(['EPIPE', 'ECONNRESET', 'EAI_AGAIN', 'CONNECTION_CLOSED'])(
    'is unavailable when its connection breaks with %s',
    async (code) => {
      await using connection = await connect()
      const broken = connection.run(() => Promise.reject(Object.assign(new Error(code), { code })))
      await expect(broken).rejects.toMatchObject({ code: 'store_unavailable' })
    },
  )

  it('is unavailable when its server rolls a statement back again and again', async () => {
    await using connection = await connect()
    let tries = 0
    const takenBack = connection.run((sql) => {
      tries += 1
      return sql`do $$ begin raise exception 'deadlock' using errcode = '40P01'; end $$`
    })
    await expect(takenBack).rejects.toMatchObject({ code: 'store_unavailable' })
    expect(tries).toBe(5)
  })

  it('is not unavailable when a statement is invalid', async () => {
    await using connection = await connect()
    const wrong = connection.run((sql) => sql`select nothing`)
    await expect(wrong).rejects.toMatchObject({ code: '42703' })
  })

  it('returns times in one format, whatever the settings of the database', async () => {
    const name = await database.sql<{ name: string }[]>`select current_database() as name`
    await database.sql`alter database ${database.sql(name[0]?.name ?? '')} set datestyle = 'German'`
    await using connection = await connect()
    const rows = await connection.run(
      (sql) => sql`select timestamptz '2026-11-20 09:30:00.25+00' as at`,
    )
    expect(rows).toEqual([{ at: '2026-11-20T09:30:00.250Z' }])
  })
})

describe('connections to Postgres', () => {
  const LINES = 10
  /** Queries over all of them at once, slowly enough that each connection gets its own query. */
  const askAll = (connection: PostgresConnection) =>
    Promise.all(
      Array.from({ length: LINES }, () =>
        connection.run(async (sql) => {
          const [row] = await sql<{ pid: number }[]>`select pg_backend_pid() as pid, pg_sleep(0.3)`
          return row?.pid
        }),
      ),
    )
  const expectAllAnswer = (connection: PostgresConnection): Promise<void> =>
    eventually(async () => expect(new Set(await askAll(connection)).size).toBe(LINES))

  // The published driver keeps a query that was sent between the reset and the close of a connection, and waits for it
  // for ever on the next one (see patches/).
  it.each([
    ['a reset', 'reset'],
    ['an end', 'end'],
  ] as const)('all answer again after %s in the middle of transactions', async (_, how) => {
    await using relay = await startRelay(database.url, 5_432)
    await using connection = await connect(relay.url)
    let begun = 0
    const works = Array.from({ length: LINES }, () =>
      connection.run((sql) =>
        sql.begin(async (tx) => {
          await tx`select 1`
          begun += 1
          await tx`select pg_sleep(10)`
        }),
      ),
    )
    const ended = Promise.allSettled(works)
    await eventually(() => expect(begun).toBe(LINES))
    relay.cut(how)
    for (const work of await ended)
      expect(work).toMatchObject({ status: 'rejected', reason: { code: 'store_unavailable' } })
    // Twice, because the driver waits for the kept query only after the first response.
    await expectAllAnswer(connection)
    await expectAllAnswer(connection)
  })

  it('that become unresponsive are closed, and new ones respond', async () => {
    await using relay = await startRelay(database.url, 5_432)
    await using connection = await connect(relay.url, { statementTimeoutMs: 500 })
    await askAll(connection)
    relay.silence()
    await expectAllAnswer(connection)
  })

  it('have their responses read after a freeze of the process, before they count as unresponsive', async () => {
    await using connection = await connect(database.url, { statementTimeoutMs: 500 })
    await askAll(connection)
    const asked = askAll(connection)
    // After the phase of the event loop in which sockets are read, so that timers fire first.
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)))
    const frozenUntil = performance.now() + 2_500
    while (performance.now() < frozenUntil);
    expect(new Set(await asked).size).toBe(LINES)
  })

  it('are closed without waiting for the migration of another replica', async () => {
    await using own = await createDatabase()
    const replica = await own.sql.reserve()
    await replica`select pg_advisory_lock(${MIGRATION_LOCK})`
    const about = { name: 'test', dependency: createHealth(logger).dependency('postgres'), logger }
    const connection = connectPostgres(new Secret(own.url), about)
    await eventually(async () => {
      const waiting =
        await own.sql`select from pg_locks where locktype = 'advisory' and not granted`
      expect(waiting).toHaveLength(1)
    })
    await connection[Symbol.asyncDispose]()
    await replica`select pg_advisory_unlock(${MIGRATION_LOCK})`
    replica.release()
  })

  it('are not reopened in a tight loop to a server that closes each at once', async () => {
    await using relay = await startRelay(database.url, 5_432)
    await using connection = await connect(relay.url)
    relay.away('end')
    const before = relay.connections
    const startedAt = performance.now()
    for (let asked = 0; asked < 5; asked += 1)
      await expect(connection.run((sql) => sql`select 1`)).rejects.toMatchObject({
        code: 'store_unavailable',
      })
    // One each, and one for the check every second.
    const looks = Math.ceil((performance.now() - startedAt) / 1_000)
    expect(relay.connections - before).toBeLessThan(5 + looks + 4)
    relay.restore()
    await expectAllAnswer(connection)
  })

  it('whose prepared statements a pooler has dropped are used again', async () => {
    await using connection = await connect()
    await expectAllAnswer(connection)
    await Promise.all(
      Array.from({ length: LINES }, () =>
        connection.run((sql) => sql`deallocate all`.simple().then(() => sql`select pg_sleep(0.3)`)),
      ),
    )
    expect(new Set(await askAll(connection)).size).toBe(LINES)
  })

  it('that the server rejects count as an unavailable database', async () => {
    await using own = await createDatabase()
    await using connection = await connect(own.url)
    const name = new URL(own.url).pathname.slice(1)
    const { sql } = database
    const allow = (isAllowed: boolean) =>
      sql.unsafe(`alter database "${name}" with allow_connections ${isAllowed}`)
    await allow(false)
    await sql`select pg_terminate_backend(pid) from pg_stat_activity where datname = ${name}`
    const refused = eventually(async () => {
      const error: unknown = await connection.run((own_) => own_`select 1`).catch((e: unknown) => e)
      expect(error).toMatchObject({ code: 'store_unavailable', cause: { code: '55000' } })
    })
    await refused
    await allow(true)
    await expectAllAnswer(connection)
  })
})

describe('an unsupported database', () => {
  /** Connects as a coordinator does; returns what it waits for, and each line of its log. */
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
      ready: () => eventually(() => expect(health.report().status).toBe('ready')),
      reason: () =>
        eventually(() => {
          expect(waiting()).toHaveLength(1)
          return String(waiting()[0]?.['reason'])
        }),
      [Symbol.asyncDispose]: () => connection[Symbol.asyncDispose](),
    }
  }
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
      'exists before its migration',
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
      'with a trigger that its record does not include',
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
    '%s is not changed until it is fixed, and is reported in one line',
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

  it('whose server is too old is reported in one line', async () => {
    await using relay = await startRelay(database.url, 5_432)
    relay.edit = (answer) => edited(answer, /\b1\d(\.\d+ \(|\.\d+$)/g, '11$1')
    await using connection = watch(relay.url)
    expect(await connection.reason()).toMatch(/^version: 11\.\d+.* Upgrade to 14\.0 or newer\.$/)
  })

  it('whose clock is minutes off is used, and reported in one line', async () => {
    await using relay = await startRelay(database.url, 5_432)
    // Changes the first digits of the time in ms, which follows the version: a day later.
    relay.edit = (answer) =>
      edited(
        answer,
        /(\b\d\d\.\d+[^]{0,80}?)(\d{5})(?=\d{8})/,
        (_, before, days) => `${before}${Number(days) + 1}`,
      )
    await using connection = watch(relay.url)
    await connection.ready()
    const remarks = connection.lines.filter(({ msg }) => msg === 'dependency degraded')
    expect(remarks).toEqual([
      expect.objectContaining({
        check: 'clock',
        found: expect.stringMatching(/^\d+\.\d s ahead of this machine$/),
        remediation: expect.stringContaining('NTP'),
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
  ])('%s is returned as %s', (time, told) => {
    expect(isoTime(time)).toBe(told)
  })
})
