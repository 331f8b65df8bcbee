import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ask, runOf, transactionUrl } from '../support/story-steps.ts'
import { startSystem, type System } from '../support/system.ts'

describe('an order over RabbitMQ and Postgres', () => {
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

  it('goes from /queue through order, report and csv to a file with its row', async () => {
    expect(await ask(system, '/queue?number=66')).toEqual({ status: 200, text: 'Enqueued 66' })
    const run = await runOf(system, '66', 0, 'Completed')
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

  it('starts nothing for a number that was queued before', async () => {
    expect(await ask(system, '/queue?number=66')).toEqual({ status: 200, text: 'Enqueued 66' })
    const sql = postgres(system.databaseUrl, { max: 1 })
    const headers = await sql`select "ReplayID" from "Order_Header" where "TransactionID" = '66'`
    await sql.end()
    expect(headers).toEqual([{ ReplayID: 0 }])
  })

  it('is replayed as run 1, with new keys and a second file', async () => {
    expect(await ask(system, '/replay?number=66')).toEqual({
      status: 200,
      text: 'Replay started for 66',
    })
    const run = await runOf(system, '66', 1, 'Completed')
    expect(run.Items[0]?.IdempotencyKey).toBe('OrderProcess/66/1/order')
    expect((await readdir(join(system.dataDir, 'OrderCSV'))).toSorted()).toEqual([
      'Order_66.0.csv',
      'Order_66.1.csv',
    ])
  })

  it('cannot be replayed when nobody queued it', async () => {
    const { status, text } = await ask(system, '/replay?number=nobody')
    expect(status).toBe(400)
    expect(text).toMatch(/^Couldn't replay nobody: /)
  })

  it('is queued once, however many ask at the same time', async () => {
    const answers = await Promise.all(
      Array.from({ length: 100 }, () => ask(system, '/queue?number=7')),
    )
    expect(new Set(answers.map(({ text }) => text))).toEqual(new Set(['Enqueued 7']))
    const run = await runOf(system, '7', 0, 'Completed')
    expect(run.Attempts.map(({ StepName }) => StepName)).toEqual(['order', 'report', 'csv'])
  })

  it('may have any name: its file stays in its folder', async () => {
    const number = '../../=1+1 é;'
    await ask(system, `/queue?number=${encodeURIComponent(number)}`)
    await runOf(system, number, 0, 'Completed')
    const names = await readdir(join(system.dataDir, 'OrderCSV'))
    expect(names).toHaveLength(4)
    expect(names.every((name) => /^Order_[A-Za-z0-9%._-]+\.\d+\.csv$/.test(name))).toBe(true)
  })

  it('may come as a row that somebody inserted', async () => {
    const sql = postgres(system.databaseUrl, { max: 1 })
    await sql`insert into "Order_Header" ("Process", "TransactionID", "InitialData") values ('OrderProcess', 'by-hand', '"by-hand"')`
    await sql.end()
    await runOf(system, 'by-hand', 0, 'Completed')
    expect(await file('Order_by-hand.0.csv')).toContain('O-by-hand')
  })

  it('leaves the books in balance', async () => {
    const answer = await system.call(`${system.url('coordinator')}/integrity`)
    expect(await answer.json()).toMatchObject({ ok: true })
  })

  it('is closed to callers without the key', async () => {
    expect((await fetch(transactionUrl(system, '66'))).status).toBe(401)
  })
})
