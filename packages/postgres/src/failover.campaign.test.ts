/** Runs the adapter against a PostgreSQL primary and a synchronous standby that only this test file uses. */
import { setTimeout as delay } from 'node:timers/promises'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { startRelay } from '@integration-host/shared/test-support/relay'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  type PostgresNode,
  startPrimary,
  startStandby,
} from '../../../tests/support/backends/postgres-nodes.ts'
import { connectPostgres } from './connection.ts'

const POOL = 10
/**
 * The maximum number of connections: those of the pool, and the monitor's connection, on which the server is checked
 * every second.
 */
const AT_MOST = POOL + 1
const CHANNEL = 'Test_Channel'

let primary: PostgresNode
let standby: PostgresNode

beforeEach(async () => {
  primary = await startPrimary()
  standby = await startStandby(primary, 'standby')
})
afterEach(async () => {
  await standby[Symbol.asyncDispose]()
  await primary[Symbol.asyncDispose]()
})

/** Makes every commit wait until the standby has acknowledged it. */
async function makeSynchronous(): Promise<void> {
  await primary.sql`alter system set synchronous_standby_names = 'standby'`
  await primary.sql`select pg_reload_conf()`
  await eventually(async () => {
    const rows = await primary.sql`select sync_state from pg_stat_replication`
    expect(rows).toEqual([{ sync_state: 'sync' }])
  })
}

/** Returns a URL in libpq's form that contains every node. */
function urlOf(...nodes: readonly PostgresNode[]): string {
  const { username, password } = new URL(primary.url)
  const hosts = nodes.map(({ port }) => `127.0.0.1:${port}`).join(',')
  return `postgresql://${username}:${password}@${hosts}/postgres`
}

function connect(url: string, statementTimeoutMs = 1_000) {
  const lines: Record<string, unknown>[] = []
  const logger = createLogger('test', 'info', {
    write: (line) => void lines.push(JSON.parse(line) as Record<string, unknown>),
  })
  const health = createHealth(logger)
  const dependency = health.dependency('postgres')
  const connection = connectPostgres(new Secret(url), {
    name: 'under-test',
    dependency,
    logger,
    statementTimeoutMs,
  })
  return {
    ...connection,
    lines,
    state: () => health.report().dependencies['postgres'],
    ready: () => eventually(() => expect(health.report().status).toBe('ready')),
    [Symbol.asyncDispose]: () => connection[Symbol.asyncDispose](),
  }
}

const countConnections = async ({ sql }: PostgresNode): Promise<number> => {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from pg_stat_activity where application_name = 'under-test'`
  return row?.count ?? 0
}

describe('a coordinator with a PostgreSQL primary and a standby', () => {
  it('the coordinator connects to the primary in whatever order the hosts are listed, even if the first host rejects connections', async () => {
    await using afterStandby = connect(urlOf(standby, primary))
    await afterStandby.ready()
    await standby.kill()
    await using afterDead = connect(urlOf(standby, primary))
    await afterDead.ready()
    const rows = await afterDead.run((sql) => sql`select pg_is_in_recovery() as standby`)
    expect(rows).toEqual([{ standby: false }])
  })

  it('if the only host of DATABASE_URL is a standby, the coordinator reports this as the reason why it cannot use the database', async () => {
    await using connection = connect(urlOf(standby))
    await eventually(() =>
      expect(connection.state()).toMatchObject({
        status: 'down',
        reason: 'the server is a standby (read-only)',
      }),
    )
  })

  it('while the only standby of PostgreSQL is asynchronous, the coordinator logs one warning and /health/ready shows a note', async () => {
    await using connection = connect(urlOf(primary))
    await connection.ready()
    await eventually(() =>
      expect(connection.state()).toMatchObject({
        status: 'up',
        notes: [expect.stringMatching(/^standbys: 1, asynchronous: .* accepted orders vanish/)],
      }),
    )
    const warnings = connection.lines.filter(({ check }) => check === 'standbys')
    expect(warnings).toHaveLength(1)
    await makeSynchronous()
    await eventually(() =>
      expect(connection.state()).not.toMatchObject({
        notes: [expect.stringContaining('asynchronous')],
      }),
    )
  })

  it('after a failover to a synchronous standby, no acknowledged row is lost and the coordinator receives notifications again', async () => {
    await makeSynchronous()
    await using connection = connect(urlOf(primary, standby))
    await connection.ready()
    let notices = 0
    connection.listen(CHANNEL, () => (notices += 1))
    await eventually(() => expect(notices).toBe(1))
    await connection.run((sql) => sql`create table kept (id int primary key)`)

    const acknowledged: number[] = []
    const isOver = new AbortController()
    let next = 0
    const writers = Array.from({ length: 4 }, async () => {
      while (!isOver.signal.aborted) {
        const id = (next += 1)
        try {
          await connection.run((sql) => sql`insert into kept values (${id})`)
          acknowledged.push(id)
        } catch (error) {
          expect(error).toMatchObject({ code: 'store_unavailable' })
        }
      }
    })
    await eventually(() => expect(acknowledged.length).toBeGreaterThan(50))
    await primary.kill()
    await eventually(() => expect(connection.state()).toMatchObject({ status: 'down' }))
    await standby.sql`alter system set synchronous_standby_names = ''`
    await standby.promote()
    await connection.ready()
    const before = acknowledged.length
    await eventually(() => expect(acknowledged.length).toBeGreaterThan(before + 50))
    isOver.abort()
    await Promise.all(writers)

    const rows = await standby.sql<{ id: number }[]>`select id from kept`
    const stored = new Set(rows.map(({ id }) => id))
    expect(acknowledged.filter((id) => !stored.has(id))).toEqual([])
    // After the reconnect, the coordinator reports a notification, because some may have been missed while the
    // connection was lost.
    await eventually(() => expect(notices).toBe(2))
    await standby.sql.notify(CHANNEL, '')
    await eventually(() => expect(notices).toBe(3))
  })

  it('after a standby was promoted, the coordinator replaces all connections to the old primary, which no longer responds', async () => {
    await using relay = await startRelay(primary.url, 5_432)
    const { port } = new URL(relay.url)
    await using connection = connect(urlOf({ ...primary, port: Number(port) }, standby))
    await connection.ready()
    let notices = 0
    connection.listen(CHANNEL, () => (notices += 1))
    await eventually(() => expect(notices).toBe(1))
    relay.stall()
    await standby.promote()
    await connection.ready()
    await eventually(async () => {
      const rows = await connection.run((sql) => sql`select inet_server_port() as port`)
      expect(rows).toEqual([{ port: standby.port }])
    })
    await eventually(() => expect(notices).toBe(2))
    await standby.sql.notify(CHANNEL, '')
    await eventually(() => expect(notices).toBe(3))
  })
})

describe('a coordinator whose PostgreSQL waits for a frozen synchronous standby', () => {
  it('while commits wait for a frozen standby, the coordinator opens no connections beyond its pool, and continues afterwards', async () => {
    await makeSynchronous()
    await using connection = connect(urlOf(primary))
    await connection.ready()
    await connection.run((sql) => sql`create table waiting (id int primary key)`)
    await standby.freeze()

    const isOver = new AbortController()
    let next = 0
    const counts: number[] = []
    const writers = Array.from({ length: 2 * POOL }, async () => {
      while (!isOver.signal.aborted) {
        const id = (next += 1)
        await connection.run((sql) => sql`insert into waiting values (${id})`).catch(() => {})
        await delay(10)
      }
    })
    await eventually(() =>
      expect(connection.state()).toMatchObject({
        status: 'down',
        reason: 'no synchronous standby acknowledges commits',
      }),
    )
    // The test counts the connections for 6 s, which is three times as long as a statement waits for its response. If
    // the pool did not limit its connections, it would have 40 of them by then.
    for (let checks = 0; checks < 6; checks += 1) {
      counts.push(await countConnections(primary))
      await primary.sql`select pg_sleep(1)`
    }
    expect(Math.max(...counts)).toBeLessThanOrEqual(AT_MOST)
    expect(connection.state()).toMatchObject({
      reason: 'no synchronous standby acknowledges commits',
    })
    // Every visible row must also be on the standby, because no waiting commit was cancelled.
    expect(await primary.sql`select count(*)::int as count from waiting`).toEqual([{ count: 0 }])

    await standby.thaw()
    await connection.ready()
    isOver.abort()
    await Promise.all(writers)
    await connection.run((sql) => sql`insert into waiting values (0)`)
    expect(await countConnections(primary)).toBeLessThanOrEqual(AT_MOST)
  })
})

describe('a coordinator whose PostgreSQL is frozen', () => {
  it('the coordinator opens no more connections to a frozen PostgreSQL server than its pool allows', async () => {
    await using connection = connect(urlOf(primary))
    await connection.ready()
    await primary.freeze()
    const works = Array.from({ length: 3 * POOL }, () =>
      connection.run((sql) => sql`select 1`).catch(() => {}),
    )
    await Promise.all(works)
    await eventually(() => expect(connection.state()).toMatchObject({ status: 'down' }))
    await primary.thaw()
    await connection.ready()
    await eventually(async () =>
      expect(await countConnections(primary)).toBeLessThanOrEqual(AT_MOST),
    )
  })
})
