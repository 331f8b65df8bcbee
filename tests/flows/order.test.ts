import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { requestDemoApi, waitForRun, transactionUrl } from '../support/clients/user-actions.ts'
import { startSystem, type System } from '../support/system.ts'

describe('an order that runs through RabbitMQ and PostgreSQL', () => {
  let system: System

  beforeAll(async () => {
    system = await startSystem([])
    system.start('demo-api')
    system.start('coordinator', { LOCAL_PULL_SECONDS: '2' })
    await system.ready('coordinator', 'demo-api')
  })
  afterAll(() => system[Symbol.asyncDispose]())

  const file = (name: string): Promise<string> =>
    readFile(join(system.dataDir, 'OrderCSV', name), 'utf8')

  it('an order queued at /queue runs the steps order, report and csv, and writes a CSV file with its row', async () => {
    expect(await requestDemoApi(system, '/queue?number=66')).toEqual({
      status: 200,
      text: 'Enqueued 66',
    })
    const run = await waitForRun(system, '66', 0, 'Completed')
    expect(run.Items.map(({ StepName, Status }) => `${StepName} ${Status}`)).toEqual([
      'order Completed',
      'report Completed',
      'csv Completed',
    ])
    const [order, report] = run.Items.map(({ ResponseStatus, ResponseBody }) => ({
      ResponseStatus,
      body: JSON.parse(ResponseBody ?? 'null'),
    }))
    expect(order).toEqual({
      ResponseStatus: 201,
      body: {
        Order: 'O-66',
        CreatedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)$/),
      },
    })
    expect(report).toEqual({
      ResponseStatus: 200,
      body: { Order: 'O-66', CreatedAt: order?.body.CreatedAt, Status: expect.any(String) },
    })

    const [header, row, ...rest] = (await file('Order_66.0.csv')).trimEnd().split(/\r?\n/)
    expect(header).toContain('Order')
    expect(row).toContain('O-66')
    expect(row).toContain(order?.body.CreatedAt)
    expect(rest).toEqual([])
  })

  it('a request for an order that is already queued starts no second run', async () => {
    expect(await requestDemoApi(system, '/queue?number=66')).toEqual({
      status: 200,
      text: 'Enqueued 66',
    })
    const sql = postgres(system.databaseUrl, { max: 1 })
    const headers = await sql`select "ReplayID" from "Order_Header" where "TransactionID" = '66'`
    await sql.end()
    expect(headers).toEqual([{ ReplayID: 0 }])
  })

  it('the first replay of an order has the run number 1, uses new idempotency keys and writes a second file', async () => {
    expect(await requestDemoApi(system, '/replay?number=66')).toEqual({
      status: 200,
      text: 'Replay started for 66',
    })
    const run = await waitForRun(system, '66', 1, 'Completed')
    expect(run.Items[0]?.IdempotencyKey).toBe('OrderProcess/66/1/order')
    expect((await readdir(join(system.dataDir, 'OrderCSV'))).toSorted()).toEqual([
      'Order_66.0.csv',
      'Order_66.1.csv',
    ])
  })

  it('a replay of an order that was never queued is rejected', async () => {
    const { status, text } = await requestDemoApi(system, '/replay?number=unqueued')
    expect(status).toBe(400)
    expect(text).toMatch(/^Couldn't replay unqueued: /)
  })

  it('a hundred concurrent requests queue the same order once', async () => {
    const responses = await Promise.all(
      Array.from({ length: 100 }, () => requestDemoApi(system, '/queue?number=7')),
    )
    expect(new Set(responses.map(({ text }) => text))).toEqual(new Set(['Enqueued 7']))
    const run = await waitForRun(system, '7', 0, 'Completed')
    expect(run.Attempts.map(({ StepName }) => StepName)).toEqual(['order', 'report', 'csv'])
  })

  it('the file of an order number with special characters is written inside the data folder', async () => {
    const number = '../../=1+1 é;'
    await requestDemoApi(system, `/queue?number=${encodeURIComponent(number)}`)
    await waitForRun(system, number, 0, 'Completed')
    const names = await readdir(join(system.dataDir, 'OrderCSV'))
    expect(names).toHaveLength(4)
    expect(names.every((name) => /^Order_[A-Za-z0-9%._-]+\.\d+\.csv$/.test(name))).toBe(true)
  })

  it('the coordinator runs an order whose row was inserted with SQL', async () => {
    const sql = postgres(system.databaseUrl, { max: 1 })
    await sql`insert into "Order_Header" ("Process", "TransactionID", "InitialData") values ('OrderProcess', 'by-hand', '"by-hand"')`
    await sql.end()
    await waitForRun(system, 'by-hand', 0, 'Completed')
    expect(await file('Order_by-hand.0.csv')).toContain('O-by-hand')
  })

  it('the rows, the items and the RabbitMQ queues are consistent after all orders have run', async () => {
    const response = await system.call(`${system.url('coordinator')}/integrity`)
    expect(await response.json()).toMatchObject({ ok: true })
  })

  it('the coordinator rejects read requests without the service key', async () => {
    expect((await fetch(transactionUrl(system, '66'))).status).toBe(401)
  })
})
