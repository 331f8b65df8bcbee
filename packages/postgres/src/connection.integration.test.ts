import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { edited, startRelay } from '@integration-host/shared/test-support/relay'
import type postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createDatabase, type TestDatabase } from '../test-support/database.ts'
import { watched } from '../test-support/watched-connection.ts'
import { connectPostgres, type PostgresConnection } from './connection.ts'
import { isoTime } from './client.ts'

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

describe('a connection to PostgreSQL', () => {
  // The published driver has a fault that the patch in patches/ fixes. If a cached plan becomes invalid, the driver
  // repeats the query by itself, out of order with the other queries on its connection. Callers then get the results of
  // other callers.
  it('each concurrent query gets its own result while a migration changes the table', async () => {
    await using connection = await connect()
    await database.sql`create table queries (id int primary key)`
    await database.sql`insert into queries select generate_series(1, 500)`
    const isChanging = new AbortController()
    let next = 0
    const asking = Array.from({ length: 40 }, async () => {
      while (!isChanging.signal.aborted) {
        const id = 1 + ((next += 1) % 500)
        const rows = await connection.run((sql) => sql`select * from queries where id = ${id}`)
        expect(rows).toMatchObject([{ id }])
      }
    })
    for (const column of ['a', 'b', 'c']) {
      await database.sql`alter table queries add column ${database.sql(column)} int`
      const seen = next
      await eventually(() => expect(next).toBeGreaterThan(seen + 500))
    }
    isChanging.abort()
    await Promise.all(asking)
  })

  // The published driver has a fault that the patch in patches/ fixes: it mixes the rows of an interrupted statement
  // into the next result on its connection. A successful claim then looked like the claim of an unknown run, and the
  // message of the run was dead-lettered.
  it.each([
    ['fails with an error', '1 / (3 - i)'],
    ['loses its connection', 'case when i = 3 then pg_terminate_backend(pg_backend_pid()) end'],
  ])(
    'a connection returns complete results after a statement that %s in the middle of its rows',
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

  // EPIPE has five capital letters, like an SQLSTATE. If the coordinator mistook EPIPE for an SQLSTATE, it would treat
  // a lost connection as an invalid statement: it would dead-letter step messages and lose the outcomes of steps.
  it.each(['EPIPE', 'ECONNRESET', 'EAI_AGAIN', 'CONNECTION_CLOSED'])(
    'a query fails with store_unavailable if its connection breaks with %s',
    async (code) => {
      await using connection = await connect()
      const broken = connection.run(() => Promise.reject(Object.assign(new Error(code), { code })))
      await expect(broken).rejects.toMatchObject({ code: 'store_unavailable' })
    },
  )

  it('a query fails with store_unavailable if the server rolls it back five times because of deadlocks', async () => {
    await using connection = await connect()
    let tries = 0
    const takenBack = connection.run((sql) => {
      tries += 1
      return sql`do $$ begin raise exception 'deadlock' using errcode = '40P01'; end $$`
    })
    await expect(takenBack).rejects.toMatchObject({ code: 'store_unavailable' })
    expect(tries).toBe(5)
  })

  it('an invalid statement fails with the error of PostgreSQL instead of store_unavailable', async () => {
    await using connection = await connect()
    const wrong = connection.run((sql) => sql`select nothing`)
    await expect(wrong).rejects.toMatchObject({ code: '42703' })
  })

  it('a query returns times as ISO 8601 in UTC, whatever TimeZone and DateStyle the database has', async () => {
    const name = await database.sql<{ name: string }[]>`select current_database() as name`
    await database.sql`alter database ${database.sql(name[0]?.name ?? '')} set datestyle = 'German'`
    await using connection = await connect()
    const rows = await connection.run(
      (sql) => sql`select timestamptz '2026-11-20 09:30:00.25+00' as at`,
    )
    expect(rows).toEqual([{ at: '2026-11-20T09:30:00.250Z' }])
  })
})

describe('the pool of connections to PostgreSQL', () => {
  const CONNECTIONS = 10
  /** Runs one slow query per connection of the pool concurrently, so that each query uses a different connection. */
  const queryAll = (connection: PostgresConnection) =>
    Promise.all(
      Array.from({ length: CONNECTIONS }, () =>
        connection.run(async (sql) => {
          const [row] = await sql<{ pid: number }[]>`select pg_backend_pid() as pid, pg_sleep(0.3)`
          return row?.pid
        }),
      ),
    )
  const expectAllRespond = (connection: PostgresConnection): Promise<void> =>
    eventually(async () => expect(new Set(await queryAll(connection)).size).toBe(CONNECTIONS))

  // The published driver has a fault that the patch in patches/ fixes: if a query is sent between the reset and the
  // close of a connection, the driver expects the result of this query on the next connection, and waits for ever.
  it.each([
    ['reset', 'reset'],
    ['closed', 'end'],
  ] as const)(
    'the pool replaces every connection that the server %s in the middle of a database transaction',
    async (_, how) => {
      await using relay = await startRelay(database.url, 5_432)
      await using connection = await connect(relay.url)
      let begun = 0
      const works = Array.from({ length: CONNECTIONS }, () =>
        connection.run((sql) =>
          sql.begin(async (tx) => {
            await tx`select 1`
            begun += 1
            await tx`select pg_sleep(10)`
          }),
        ),
      )
      const ended = Promise.allSettled(works)
      await eventually(() => expect(begun).toBe(CONNECTIONS))
      relay.cut(how)
      for (const work of await ended)
        expect(work).toMatchObject({ status: 'rejected', reason: { code: 'store_unavailable' } })
      // Two queries are checked, because the unpatched driver fails only on the second query of the new connection.
      await expectAllRespond(connection)
      await expectAllRespond(connection)
    },
  )

  it('the pool closes connections whose server stops responding, and opens new connections', async () => {
    await using relay = await startRelay(database.url, 5_432)
    await using connection = await connect(relay.url, { statementTimeoutMs: 500 })
    await queryAll(connection)
    relay.silence()
    await expectAllRespond(connection)
  })

  it('the pool keeps its connections if only the connection that checks the server every second is lost', async () => {
    await using connection = await connect()
    const pids = new Set(await queryAll(connection))
    const isMonitor = database.sql`datname = current_database() and query like '%pg_is_in_recovery%'
      and pid <> pg_backend_pid()`
    let lost: number | undefined
    await eventually(async () => {
      const [row] = await database.sql<{ pid: number }[]>`
        select pid, pg_terminate_backend(pid) from pg_stat_activity where ${isMonitor}`
      lost = row?.pid
      expect(lost).toBeDefined()
    })
    await eventually(async () => {
      const [row] = await database.sql<{ pid: number }[]>`
        select pid from pg_stat_activity where ${isMonitor}`
      expect(row?.pid).toBeDefined()
      expect(row?.pid).not.toBe(lost)
    })
    expect(new Set(await queryAll(connection))).toEqual(pids)
  })

  it('a query does not time out if its response arrived while the coordinator was frozen', async () => {
    await using connection = await connect(database.url, { statementTimeoutMs: 500 })
    await queryAll(connection)
    const queries = queryAll(connection)
    // The test blocks the event loop directly after the phase that reads sockets. Therefore the timers run before the
    // responses are read.
    await new Promise((resolve) => setImmediate(() => setImmediate(resolve)))
    const frozenUntil = performance.now() + 2_500
    while (performance.now() < frozenUntil);
    expect(new Set(await queries).size).toBe(CONNECTIONS)
  })

  it('the pool waits before it reconnects to a server that immediately closes each connection', async () => {
    await using relay = await startRelay(database.url, 5_432)
    await using connection = await connect(relay.url)
    relay.away('end')
    const before = relay.connections
    const startedAt = performance.now()
    for (let queries = 0; queries < 5; queries += 1)
      await expect(connection.run((sql) => sql`select 1`)).rejects.toMatchObject({
        code: 'store_unavailable',
      })
    // Each connection of the pool may make one attempt to connect. The check of the server runs once per second, and
    // each check may make one more attempt.
    const checks = Math.ceil((performance.now() - startedAt) / 1_000)
    expect(relay.connections - before).toBeLessThan(5 + checks + 4)
    relay.restore()
    await expectAllRespond(connection)
  })

  it('a query succeeds even if a connection pooler has dropped its prepared statement', async () => {
    await using connection = await connect()
    const lock = 7
    /** Runs a query on each connection of the pool. The queries wait for the lock until all of them have begun. */
    const onEach = async <Result>(query: (sql: postgres.Sql) => Promise<Result>) => {
      let results: readonly Promise<Result>[] = []
      await database.sql.begin(async (tx) => {
        await tx`select pg_advisory_xact_lock(${lock})`
        results = Array.from({ length: CONNECTIONS }, () => connection.run(query))
        await eventually(async () => {
          const [row] = await tx<[{ waiting: number }]>`
            select count(*)::int as waiting from pg_locks
            where locktype = 'advisory' and objid = ${lock} and not granted and database =
              (select oid from pg_database where datname = current_database())`
          expect(row.waiting).toBe(CONNECTIONS)
        })
      })
      return Promise.all(results)
    }
    const prepared = async (sql: postgres.Sql) => {
      const [row] = await sql<[{ pid: number }]>`
        select pg_backend_pid() as pid, pg_advisory_xact_lock_shared(${lock})`
      return row.pid
    }
    const pids = new Set(await onEach(prepared))
    expect(pids.size).toBe(CONNECTIONS)
    await onEach(async (sql) => {
      await sql.unsafe(`deallocate all; select pg_advisory_xact_lock_shared(${lock})`).simple()
    })
    expect(new Set(await onEach(prepared))).toEqual(pids)
  })

  it('a query fails with store_unavailable if the server rejects the connection', async () => {
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
    await expectAllRespond(connection)
  })
})

describe('the checks of a PostgreSQL server', () => {
  const watch = (url: string) => watched((about) => connectPostgres(new Secret(url), about))

  it('a PostgreSQL server of an unsupported old version is reported in one log line', async () => {
    await using relay = await startRelay(database.url, 5_432)
    relay.edit = (response) => edited(response, /\b1\d(\.\d+ \(|\.\d+$)/g, '11$1')
    await using connection = watch(relay.url)
    expect(await connection.reason()).toMatch(/^version: 11\.\d+.* Upgrade to 14\.0 or newer\.$/)
  })

  it('the coordinator uses a PostgreSQL server whose clock is minutes off, and reports the difference in one log line', async () => {
    await using relay = await startRelay(database.url, 5_432)
    // The response contains the version and then the server's time in ms. Changing the first digits of the time moves
    // it by a day.
    relay.edit = (response) =>
      edited(
        response,
        /(\b\d\d\.\d+[^]{0,80}?)(\d{5})(?=\d{8})/,
        (_, before, days) => `${before}${Number(days) + 1}`,
      )
    await using connection = watch(relay.url)
    await connection.ready()
    const remarks = connection.lines.filter(({ msg }) => msg === 'dependency is degraded')
    expect(remarks).toEqual([
      expect.objectContaining({
        check: 'clock',
        found: expect.stringMatching(/^\d+\.\d s ahead of this machine$/),
        remedy: expect.stringContaining('NTP'),
      }),
    ])
  })
})

describe('parsing a time of PostgreSQL', () => {
  it.each([
    ['2026-11-20 09:30:00+00', '2026-11-20T09:30:00.000Z'],
    ['2026-11-20 09:30:00.2+00', '2026-11-20T09:30:00.200Z'],
    ['2026-11-20 09:30:00.256789+00', '2026-11-20T09:30:00.256Z'],
    ['2026-11-20T09:30:00+00:00', '2026-11-20T09:30:00.000Z'],
    ['2026-11-20T09:30:00.999999+00:00', '2026-11-20T09:30:00.999Z'],
    ['0001-01-02 00:00:00.001+00', '0001-01-02T00:00:00.001Z'],
    ['9999-12-30 00:00:00+00', '9999-12-30T00:00:00.000Z'],
  ])('the PostgreSQL time %s is returned as %s', (time, expected) => {
    expect(isoTime(time)).toBe(expected)
  })
})
