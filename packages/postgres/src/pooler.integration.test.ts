/** Connects through PgBouncer to a PostgreSQL server that only this test file uses. */
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startPgBouncer } from '../../../tests/support/backends/pgbouncer.ts'
import { type PostgresNode, startPrimary } from '../../../tests/support/backends/postgres-nodes.ts'
import { pgBouncerFolder } from '../../../tests/support/backends/server-binaries.ts'
import { connectPostgres } from './connection.ts'

const programs = await pgBouncerFolder()

const STATEMENT_TIMEOUT_MS = 10_000
const SESSION = { enable_seqscan: 'off', jit: 'off' }
const CHANNEL = 'Test_Channel'

function connect(url: string, listenUrl?: string) {
  const logger = createLogger('test', 'silent')
  const health = createHealth(logger)
  const connection = connectPostgres(new Secret(url), {
    name: 'under-test',
    dependency: health.dependency('postgres'),
    logger,
    statementTimeoutMs: STATEMENT_TIMEOUT_MS,
    session: SESSION,
    listenUrl: listenUrl === undefined ? undefined : new Secret(listenUrl),
  })
  const notes = () =>
    health.report().dependencies['postgres']?.notes?.filter((note) => /pooler/.test(note)) ?? []
  return {
    ...connection,
    notes,
    ready: () => eventually(() => expect(health.report().status).toBe('ready')),
    /** Runs prepared statements on all connections at the same time. Fails if one of the statements fails. */
    async runMany(): Promise<void> {
      const results = await Promise.all(
        Array.from({ length: 200 }, async (_, n) => {
          const rows = await connection.run((sql) => sql`select ${n}::int as n`)
          return rows[0]?.['n']
        }),
      )
      expect(results).toEqual(Array.from({ length: 200 }, (_, n) => n))
    },
    [Symbol.asyncDispose]: () => connection[Symbol.asyncDispose](),
  }
}

describe.skipIf(programs === null)('PgBouncer without ignore_startup_parameters', () => {
  let server: PostgresNode
  beforeAll(async () => {
    server = await startPrimary()
  })
  afterAll(() => server[Symbol.asyncDispose]())

  it('the coordinator works through PgBouncer in session mode with its session settings and LISTEN, and reports no warning', async () => {
    await using pooler = await startPgBouncer(programs ?? '', server.url, 'session')
    await using connection = connect(pooler.url)
    await connection.ready()
    await connection.runMany()
    const rows = await connection.run(
      (sql) => sql`
        select current_setting('statement_timeout') as timeout, current_setting('enable_seqscan') as scan`,
    )
    expect(rows).toEqual([{ timeout: '10s', scan: 'off' }])
    let notices = 0
    connection.listen(CHANNEL, () => (notices += 1))
    await eventually(() => expect(notices).toBe(1))
    await server.sql.notify(CHANNEL, '')
    await eventually(() => expect(notices).toBe(2))
    expect(connection.notes()).toEqual([])
  })

  it('the coordinator works through PgBouncer in transaction mode, and reports the missing settings until they are set', async () => {
    await using pooler = await startPgBouncer(programs ?? '', server.url, 'transaction')
    {
      await using connection = connect(pooler.url)
      await connection.ready()
      await connection.runMany()
      await connection.runMany()
      await eventually(() =>
        expect(connection.notes()).toEqual([
          expect.stringMatching(
            /pools transactions.* ALTER ROLE .*statement_timeout = 10000.*DATABASE_LISTEN_URL/,
          ),
        ]),
      )
    }
    const settings = { statement_timeout: STATEMENT_TIMEOUT_MS, ...SESSION }
    for (const [name, value] of Object.entries(settings))
      await server.sql.unsafe(`alter role postgres set ${name} = '${value}'`)
    await server.sql`
      select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()`

    await using connection = connect(pooler.url, server.url)
    await connection.ready()
    let notices = 0
    connection.listen(CHANNEL, () => (notices += 1))
    await eventually(() => expect(notices).toBe(1))
    await connection.runMany()
    await server.sql.notify(CHANNEL, '')
    await eventually(() => expect(notices).toBe(2))
    expect(connection.notes()).toEqual([])
  })
})
