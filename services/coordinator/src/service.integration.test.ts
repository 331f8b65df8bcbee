import { createDatabase } from '@integration-host/postgres/test-support/database'
import {
  CREDENTIALS_EXCHANGE,
  credentialRoutingKey,
} from '@integration-host/shared/contracts/credential'
import { STEPS_EXCHANGE } from '@integration-host/shared/contracts/topology'
import {
  COORDINATORS_EXCHANGE,
  type TransactionEvent,
  TRANSACTIONS_EXCHANGE,
} from '@integration-host/shared/contracts/events'
import { until } from '@integration-host/shared/test-support/eventually'
import { startRelay } from '@integration-host/shared/test-support/relay'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { connect } from 'amqplib'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { z } from 'zod'
import { anAct } from '../test-support/act.ts'
import { type Backends, openBackends, startFixture, watchEvents } from '../test-support/fixture.ts'
import { createDeadLetterStore } from './dead-letter/dead-letter-store.ts'
import { coordinatorContract } from './service.contract.ts'

coordinatorContract('real', 'message')

const amqpUrl = process.env['TEST_AMQP_URL'] ?? ''

describe('a coordinator on RabbitMQ and PostgreSQL', () => {
  let backends: Backends
  beforeAll(async () => {
    backends = await openBackends('real')
  })
  const stack: AsyncDisposable[] = []
  afterEach(async () => {
    for (const opened of stack.splice(0).toReversed()) await opened[Symbol.asyncDispose]()
  })
  afterAll(() => backends[Symbol.asyncDispose]())
  const use = <Opened extends AsyncDisposable>(opened: Opened): Opened => {
    stack.push(opened)
    return opened
  }
  const fresh = (): string => crypto.randomUUID()
  const channel = async () => {
    const connection = await connect(amqpUrl)
    use({ [Symbol.asyncDispose]: () => connection.close() })
    return connection.createChannel()
  }

  const good = {
    v: 1,
    Process: 'OrderProcess',
    TransactionID: 'x',
    ReplayID: 0,
    Step: 'order',
    Version: 0,
  }
  const poison: [string, string | Buffer][] = [
    ['malformed', 'not json'],
    ['malformed', ''],
    ['malformed', Buffer.from([0xff, 0xfe, 0x00])],
    ['malformed', '[]'],
    ['malformed', 'null'],
    ['malformed', '{}'],
    ['malformed', JSON.stringify({ ...good, v: 2 })],
    ['malformed', JSON.stringify({ ...good, extra: 1 })],
    ['malformed', JSON.stringify({ ...good, TransactionID: '' })],
    ['malformed', JSON.stringify({ ...good, TransactionID: 'x'.repeat(129) })],
    ['malformed', JSON.stringify({ ...good, TransactionID: 'a\nb' })],
    ['malformed', JSON.stringify({ ...good, ReplayID: -1 })],
    ['malformed', JSON.stringify({ ...good, ReplayID: 1.5 })],
    ['malformed', JSON.stringify({ ...good, Version: '0' })],
    ['malformed', JSON.stringify({ ...good, Version: 2_147_483_648 })],
    ['malformed', JSON.stringify({ ...good, Step: '../x' })],
    ['malformed', 'x'.repeat(2_000_000)],
    ['unknown_process', JSON.stringify({ ...good, Process: 'Nobody' })],
    ['unknown_step', JSON.stringify({ ...good, Step: 'nowhere' })],
    ['wrong_queue', JSON.stringify({ ...good, Step: 'csv' })],
    ['unknown_transaction', JSON.stringify({ ...good, TransactionID: 'nobody queued it' })],
  ]

  it('malformed and unknown messages are dead-lettered with the reason, while valid orders complete', async () => {
    const host = use(await startFixture(backends))
    const raw = await channel()
    const exchange = `${backends.prefix}${STEPS_EXCHANGE}`
    for (const [, content] of poison)
      raw.publish(exchange, 'OrderProcess.order', Buffer.from(content))
    const copied = Buffer.from(JSON.stringify(good))
    raw.publish(exchange, 'OrderProcess.order', copied, { messageId: 'cc', CC: 'OrderProcess.csv' })
    raw.publish(exchange, 'none', copied, { messageId: 'bcc', BCC: 'OrderProcess.order' })
    const id = fresh()
    await host.queue(id)
    await host.reached(id, 'Completed')
    const deadLetters = () =>
      createDeadLetterStore(host.source).list('OrderProcess', { limit: 100, contentBytes: 0 })
    // Both copies of the first message have its id, so they are one dead letter.
    const misaddressed = [
      'misaddressed: the headers CC and BCC are not allowed',
      'misaddressed: the message was published with another routing key',
    ]
    const expected = [...poison.map(([reason]) => reason), ...misaddressed]
    await until(async () => (await deadLetters()).length === expected.length)
    const reasons = (await deadLetters()).map(({ Reason }) => Reason)
    expect(reasons.toSorted()).toEqual(expected.toSorted())
    expect(await host.bus.depth('steps.OrderProcess.order')).toMatchObject({ ready: 0 })
  })

  it('a run that was inserted by SQL completes, or fails if its id contains control characters', async () => {
    const host = use(await startFixture(backends))
    const sql = backends.database?.sql
    if (sql === undefined) throw new Error('no database')
    const id = fresh()
    await sql`
      insert into "Order_Header" ("Process", "TransactionID", "InitialData")
      values ('OrderProcess', ${id}, '"by-hand"'), ('OrderProcess', ${`${id}-number`}, '66'),
        ('OrderProcess', ${`${id}\n`}, '1')`
    await sql`
      insert into "Order_Header" ("Process", "TransactionID", "InitialData", "NextAttemptAt")
      values ('OrderProcess', ${`${id}-untimed`}, '"by-hand"', null)`
    await host.reached(id, 'Completed')
    await host.reached(`${id}-number`, 'Completed')
    await host.reached(`${id}-untimed`, 'Completed')
    const orders = host.target.callsTo('/order').map(({ query }) => query['order'])
    expect(new Set(orders)).toEqual(new Set(['O-66', 'O-by-hand']))
    await until(async () => {
      const [row] =
        await sql`select "ErrorClass" from "Order_Header" where "TransactionID" = ${`${id}\n`}`
      return row?.['ErrorClass'] === 'transaction_id_invalid'
    })
  })

  it('if one SQL statement inserts hundreds of runs, they complete after fewer than five polls of PostgreSQL', async () => {
    let polls = 0
    const host = use(
      await startFixture(backends, {
        env: { LOCAL_PULL_SECONDS: '3600', REMOTE_PULL_SECONDS: '3600' },
        wrapSource: (source) => ({
          ...source,
          due: (steps, limit) => ((polls += 1), source.due(steps, limit)),
        }),
      }),
    )
    const sql = backends.database?.sql
    if (sql === undefined) throw new Error('no database')
    const insert = (prefix: string, count: number) => sql`
      insert into "Order_Header" ("Process", "TransactionID", "InitialData")
      select 'OrderProcess', ${prefix} || n, to_jsonb(n::text) from generate_series(1, ${count}) n`
    const [one, many] = [fresh(), fresh()]
    await insert(one, 1)
    await host.reached(`${one}1`, 'Completed')
    const before = polls
    await insert(many, 700)
    await until(async () => {
      const [row] = await sql`select count(*)::int as left from "Order_Header"
        where "TransactionID" like ${`${many}%`} and "Status" <> 'Completed'`
      return row?.['left'] === 0
    })
    // Two polls should suffice for all notifications: one that publishes the runs, and one that finds no further runs.
    expect(polls - before).toBeLessThan(5)
  })

  it('PostgreSQL rejects values in the row of a run that would later make a statement for many runs fail', async () => {
    const host = use(await startFixture(backends))
    const sql = backends.database?.sql
    if (sql === undefined) throw new Error('no database')
    const id = fresh()
    await host.queue(id)
    const times = await sql<{ name: string }[]>`
      select column_name as name from information_schema.columns
      where table_name = 'Order_Header' and data_type like 'timestamp%'`
    expect(times).toHaveLength(11)
    for (const odd of [
      ...times.flatMap(({ name }) =>
        ['infinity', '-infinity', '0044-03-15 BC', '10000-01-01'].map(
          (time) => `"${name}" = '${time}'`,
        ),
      ),
      ...['ReplayID', 'Version', 'Attempt', 'SweepCount'].map((name) => `"${name}" = -1`),
      `"SweepCount" = 1000001`,
    ]) {
      const update = sql.unsafe(`update "Order_Header" set ${odd} where "TransactionID" = '${id}'`)
      await expect(update, odd).rejects.toMatchObject({ code: '23514' })
    }
    for (const time of ['0001-01-02 00:00+00', '9999-12-30 00:00+00']) {
      const values = times.map(({ name }) => `"${name}" = '${time}'`)
      const extreme = sql.begin(async (tx) => {
        await tx.unsafe(`update "Order_Header" set ${values.join(', ')}, "SweepCount" = 1000000
          where "TransactionID" = '${id}'`)
        throw new Error('accepted')
      })
      await expect(extreme).rejects.toThrow('accepted')
    }
    await host.reached(id, 'Completed')
  })

  it('a run that was inserted by SQL at a later step fails, because the items of the earlier steps are missing', async () => {
    const host = use(await startFixture(backends))
    const sql = backends.database?.sql
    if (sql === undefined) throw new Error('no database')
    const id = fresh()
    await sql`
      insert into "Order_Header" ("Process", "TransactionID", "StepName", "InitialData")
      values ('OrderProcess', ${id}, 'csv', '"x"')`
    const run = await host.reached(id, 'Failed')
    expect(run).toMatchObject({ ErrorClass: 'step_before_missing', Attempt: 1 })
  })

  it('concurrent bulk requests that contain the same ids in different orders queue each id once', async () => {
    const host = use(await startFixture(backends))
    const lines = Array.from({ length: 200 }, () => ({ TransactionID: fresh(), InitialData: 1 }))
    const bulk = async (body: readonly unknown[]) => {
      const response = await host.call('/processes/OrderProcess/transactions/bulk', postJson(body))
      expect(response.status).toBe(200)
      return (await response.json()) as { queued: number }
    }
    const shuffled = (n: number) => [...lines.slice(n * 10), ...lines.slice(0, n * 10)].toReversed()
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, n) => bulk(n % 2 === 0 ? shuffled(n) : lines)),
    )
    expect(answers.reduce((sum, { queued }) => sum + queued, 0)).toBe(200)
    for (const { TransactionID } of lines) await host.reached(TransactionID, 'Completed')
  })

  it('transactions are queued while RabbitMQ is unavailable, and run when RabbitMQ is available again', async () => {
    await using line = await startRelay(amqpUrl, 5672)
    line.away()
    const host = use(await startFixture(backends, { amqpUrl: line.url, times: { sweepMs: 100 } }))
    const ids = Array.from({ length: 20 }, fresh)
    const statuses = await Promise.all(ids.map(async (id) => (await host.queue(id)).status))
    expect(new Set(statuses)).toEqual(new Set([202]))
    line.restore()
    for (const id of ids) await host.reached(id, 'Completed')
    expect(host.target.callsTo('/order')).toHaveLength(20)
  })

  it('every order completes although the connection to RabbitMQ is cut during its steps', async () => {
    await using line = await startRelay(amqpUrl, 5672)
    const host = use(await startFixture(backends, { amqpUrl: line.url, times: { sweepMs: 100 } }))
    await host.bus.ready(AbortSignal.timeout(60_000))
    const ids = Array.from({ length: 60 }, fresh)
    const queued = Promise.all(ids.map((id) => host.queue(id)))
    for (let n = 0; n < 3; n += 1) {
      await until(() => host.target.calls.length > n * 20)
      line.cut()
    }
    await queued
    for (const id of ids) {
      const run = await host.reached(id, 'Completed')
      expect(run.Items.map(({ Status }) => Status)).toEqual(Array(3).fill('Completed'))
    }
    const keys = host.target.calls.map(({ headers }) => headers['idempotency-key'])
    expect(new Set(keys).size).toBe(120)
  })

  it('if steps finish while PostgreSQL is unavailable, their outcomes are recorded when it is available again', async () => {
    const database = backends.database?.url ?? ''
    await using line = await startRelay(database, 5432)
    const { connectPostgres } = await import('./adapters/postgres/connection.ts')
    const { createPostgresTransactionSource } =
      await import('./adapters/postgres/transaction-source.ts')
    const { createHealth } = await import('@integration-host/shared/observability/health')
    const { createLogger } = await import('@integration-host/shared/observability/logger')
    const { Secret } = await import('@integration-host/shared/secrets/secret')
    const logger = createLogger('test', 'silent')
    const health = createHealth(logger)
    const dependency = health.dependency('postgres')
    const source = use(
      createPostgresTransactionSource(
        connectPostgres(new Secret(line.url), { name: 'test', dependency, logger }),
        { sweepMs: 100 },
      ),
    )
    const host = use(await startFixture(backends, { source }))
    await until(() => health.report().status === 'ready')
    host.target.on('/order', () => {
      line.away()
      setTimeout(() => line.restore(), 700)
      return true
    })
    const id = fresh()
    await host.queue(id)
    await until(() => host.target.callsTo('/order').length === 1)
    const unavailable = await host.queue(fresh())
    expect([unavailable.status, unavailable.headers.get('Retry-After')]).toEqual([503, '2'])
    await until(() => health.report().status === 'ready')
    await host.reached(id, 'Completed')
    expect(host.target.callsTo('/order')).toHaveLength(1)
  })

  it('coordinator replicas that share the queues run each step once', async () => {
    const hosts = []
    for (let n = 0; n < 3; n += 1) hosts.push(use(await startFixture(backends)))
    const [host] = hosts
    if (host === undefined) throw new Error('no host')
    const ids = Array.from({ length: 150 }, fresh)
    const lines = ids.map((id) => JSON.stringify({ TransactionID: id, InitialData: id })).join('\n')
    const response = await host.call('/processes/OrderProcess/transactions/bulk', {
      method: 'POST',
      headers: { 'Content-Type': 'application/x-ndjson' },
      body: lines,
    })
    expect(await response.json()).toMatchObject({ queued: 150, invalid: 0 })
    for (const id of ids) await host.reached(id, 'Completed')
    const counts = hosts.map(({ target }) => target.calls.length)
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(300)
    expect(Math.min(...counts)).toBeGreaterThan(0)
  })

  it('every transition is published to the exchange integration.transactions, without initial data or responses', async () => {
    const host = use(await startFixture(backends))
    const raw = await channel()
    const { queue } = await raw.assertQueue('', { exclusive: true })
    await raw.bindQueue(
      queue,
      `${backends.prefix}${TRANSACTIONS_EXCHANGE}`,
      'transaction.OrderProcess.*',
    )
    const heard: string[] = []
    let text = ''
    await raw.consume(queue, (message) => {
      heard.push(message?.fields.routingKey ?? '')
      text += message?.content.toString() ?? ''
    })
    await host.queue('events-1', { secret: 'business data' })
    await until(() => heard.includes('transaction.OrderProcess.completed'))
    expect(heard).toContain('transaction.OrderProcess.queued')
    expect(heard).toContain('transaction.OrderProcess.running')
    expect(text).not.toContain('business data')
  })

  it('the cancellation of a run at another replica aborts its call, unless the run was resumed before the event arrives', async () => {
    const host = use(await startFixture(backends))
    const id = fresh()
    const watched = await watchEvents(host, id)
    const isAborted = Promise.withResolvers<void>()
    const mayAnswer = Promise.withResolvers<void>()
    host.target.on('/order', async (_, response) => {
      if (host.target.callsTo('/order').length > 1) {
        await mayAnswer.promise
        return false
      }
      response.on('close', () => isAborted.resolve())
      return undefined
    })
    const act = (action: string) =>
      host.call(`/processes/OrderProcess/transactions/${id}/${action}`, { method: 'POST' })
    /** Publishes a cancellation as a coordinator of the first version would: as a batch of transitions. */
    const raw = await channel()
    const tellOf = ({ Version, UpdatedAt: At }: Awaited<ReturnType<typeof host.run>>): void => {
      const run = { Process: 'OrderProcess', TransactionID: id, ReplayID: 0, StepName: 'order' }
      const Events = [
        { ...run, Status: 'Cancelled', Version, At } satisfies z.input<typeof TransactionEvent>,
      ]
      const content = Buffer.from(JSON.stringify({ Events }))
      const headers = { replica: 'another' }
      raw.publish(`${backends.prefix}${COORDINATORS_EXCHANGE}`, '', content, { headers })
    }
    const cancellationsSeen = () =>
      watched.seen.filter(({ Status }) => Status === 'Cancelled').length

    await host.queue(id)
    await until(() => host.target.callsTo('/order').length === 1)
    await host.source.operate('cancel', { name: 'OrderProcess' }, id, null, anAct) // changes only the rows, as another replica would
    const cancelled = await host.run(id)
    tellOf(cancelled)
    await isAborted.promise
    expect((await act('resume')).status).toBe(202)
    await until(() => host.target.callsTo('/order').length === 2)
    tellOf(cancelled)
    await until(() => cancellationsSeen() === 2)
    mayAnswer.resolve()
    await host.reached(id, 'Completed')
    expect(host.target.callsTo('/order')).toHaveLength(2)
  })

  it('each credential event is delivered to one coordinator replica, and invalid messages are dropped', async () => {
    const host = use(await startFixture(backends))
    use(await startFixture(backends))
    const raw = await channel()
    raw.publish(
      `${backends.prefix}${CREDENTIALS_EXCHANGE}`,
      credentialRoutingKey('stored'),
      Buffer.from('not an event'),
    )
    await until(async () => {
      const depth = await host.bus.depth('coordinator.credentials')
      return depth?.consumers === 2 && depth.ready === 0
    })
    expect(host.log.some(({ msg }) => msg === 'message handler failed')).toBe(false)
  })

  it('one bulk request queues ten thousand transactions, and a repeated request finds them before PostgreSQL has statistics', async () => {
    const empty = use(await openBackends('real', undefined, createDatabase))
    const host = use(await startFixture(empty))
    expect(empty.database).not.toBeNull()
    await empty.database?.sql.unsafe('alter table "Order_Header" set (autovacuum_enabled = false)')
    await host.call('/processes/OrderProcess/pause', { method: 'POST' })
    const body = JSON.stringify(
      Array.from({ length: 10_000 }, (_, n) => ({ TransactionID: `bulk-${n}`, InitialData: n })),
    )
    const send = async () => {
      const response = await host.call('/processes/OrderProcess/transactions/bulk', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body,
      })
      return { status: response.status, report: (await response.json()) as { results: unknown[] } }
    }
    const first = await send()
    expect(first.status).toBe(200)
    expect(first.report).toMatchObject({ queued: 10_000, exists: 0, conflicts: 0, invalid: 0 })
    expect(first.report.results).toHaveLength(10_000)
    expect((await send()).report).toMatchObject({ queued: 0, exists: 10_000 })
  })
})
