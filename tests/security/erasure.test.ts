/**
 * Puts a marker into all data that a run stores, erases the runs, and searches for the marker in all data that the
 * coordinator wrote. The same search must find the marker before the erasure, which proves that the search works.
 */
import { randomBytes } from 'node:crypto'
import { until } from '@integration-host/shared/test-support/eventually'
import { startProcess } from '@integration-host/shared/test-support/start-process'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { describe, expect, it } from 'vitest'
import { startStepTarget } from '../support/fakes/step-target.ts'
import { openDatabase } from '../support/faults/database-assertions.ts'
import { knownSecret, search, type WrittenData } from '../support/secrets/secret-search.ts'
import { readFolder, readPostgres, recordMessages } from '../support/secrets/written-data.ts'
import { backend, startSystem, type System } from '../support/system.ts'

const REALM = '9341453908059889'
const transactions = '/processes/OrderProcess/transactions'

const post = (system: System, path: string, body: unknown): Promise<Response> =>
  system.call(system.url('coordinator') + path, postJson(body))

async function reached(system: System, id: string, status: string): Promise<void> {
  const url = `${system.url('coordinator')}${transactions}/${id}`
  await until(async () => {
    const run = (await (await system.call(url)).json()) as { Status?: string }
    return run.Status === status
  })
}

/** Returns the dump of a database as pg_dump writes it. */
async function dump(url: string): Promise<WrittenData> {
  const { code, stdout, stderr } = await startProcess(['--dbname', url], { program: 'pg_dump' })
    .ended
  if (code !== 0) throw new Error(`pg_dump failed: ${stderr}`)
  return { place: 'pg_dump', bytes: Buffer.from(stdout) }
}

describe('the data of erased runs', () => {
  it.each(['postgres', 'memory'] as const)(
    'data of erased runs is in no table, dump, journal, file, log or message (source: %s)',
    { timeout: 120_000 },
    async (kind) => {
      const MARKER = `marker-${randomBytes(24).toString('hex')}`
      await using target = await startStepTarget()
      target.intercept = ({ path, order }, response) => {
        if (path === '/order' && order.startsWith('O-bad')) {
          response.writeHead(400, { 'content-type': 'application/json' })
          response.end(JSON.stringify({ Fault: { Error: [{ Message: MARKER }] } }))
          return true
        }
        if (path !== '/report') return false
        response.writeHead(200, { 'content-type': 'application/json' })
        response.end(
          JSON.stringify({ Order: order, CreatedAt: '2026-11-20T21:24:19Z', Status: MARKER }),
        )
        return true
      }
      await using system = await startSystem([])
      const coordinator = system.start('coordinator', {
        LOG_LEVEL: 'trace',
        DEMO_API_URL: target.url,
        TRANSACTION_SOURCE: kind,
      })
      await system.ready('coordinator')
      await using messages = await recordMessages(backend('TEST_AMQP_URL'), system.amqpPrefix)
      const queue = (TransactionID: string, InitialData: string) =>
        post(system, transactions, {
          TransactionID,
          InitialData,
          Realm: REALM,
          Tags: { note: MARKER },
        })
      expect((await queue('good', MARKER)).status).toBe(202)
      expect((await queue('bad', `bad ${MARKER}`)).status).toBe(202)
      await reached(system, 'good', 'Completed')
      await reached(system, 'bad', 'Failed')
      if (kind === 'postgres') {
        // The author of a step may put data into the messages of its errors, so the stored errors get the marker as
        // well.
        await using database = await openDatabase(system)
        await database.sql`update "Order_Header" set "LastError" = ${MARKER} where "TransactionID" = 'bad'`
        await database.sql`update "Order_Item" set "Error" = ${MARKER} where "TransactionID" = 'bad'`
        await database.sql`update "Order_Attempt" set "Error" = ${MARKER}, "Url" = ${MARKER}
          where "TransactionID" = 'bad'`
      }
      const stored = async (): Promise<WrittenData[]> => [
        ...(await readFolder(system.dataDir)),
        ...(kind === 'postgres'
          ? [...(await readPostgres(system.databaseUrl)), await dump(system.databaseUrl)]
          : []),
      ]
      const found = async (): Promise<Set<string>> => {
        const lines = search([knownSecret('marker', MARKER)], await stored())
        return new Set(lines.map((line) => /^marker in (.*) \(/.exec(line)?.[1] ?? line))
      }
      const tables = ['Order_Header', 'Order_Item', 'Order_Attempt', 'Order_Tag']
      const places =
        kind === 'postgres'
          ? [...tables.map((name) => `Postgres ${name}`), 'pg_dump', 'file Order_good.0.csv']
          : ['file ITSourceMemory.journal', 'file Order_good.0.csv']
      expect(await found()).toEqual(new Set(places))

      const response = await post(system, '/erasures', { Realm: REALM, Reason: 'a request' })
      expect(await response.json()).toMatchObject({ erased: 2, files: 1, more: false, notEnded: 0 })
      expect(await found()).toEqual(new Set())
      await coordinator.stop('SIGTERM')
      const written: WrittenData[] = [
        ...(await stored()),
        ...(await messages.read()),
        { place: 'log', bytes: Buffer.from(coordinator.output()) },
      ]
      expect(search([knownSecret('marker', MARKER)], written)).toEqual([])
      expect(written.some(({ place }) => place.startsWith('RabbitMQ'))).toBe(true)
    },
  )
})
