import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createServer, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { readEmbeddedConfig } from '@integration-host/coordinator/config'
import { createMemoryTransactionSource } from '@integration-host/coordinator/memory-transaction-source'
import { startCoordinator } from '@integration-host/coordinator/service'
import type { TransactionView } from '@integration-host/shared/contracts/transaction'
import { createHealth } from '@integration-host/shared/observability/health'
import { createInProcessBus } from '@integration-host/shared/messaging/in-process/message-bus'
import { createLogger } from '@integration-host/shared/observability/logger'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import invoiceProcess from './invoice-process.ts'

const key = 'k'.repeat(40)

interface Call {
  readonly name: string
  readonly query: Readonly<Record<string, string>>
  readonly headers: IncomingMessage['headers']
  readonly body: unknown
}

describe('the invoice process of docs/processes.md', () => {
  let stack: AsyncDisposableStack
  let calls: Call[]
  /**
   * If true, the fake message service closes the connection after it has sent a message, instead of responding to the
   * call.
   */
  let hangsUp: boolean
  let outside: string
  let coordinator: string

  beforeEach(async () => {
    stack = new AsyncDisposableStack()
    calls = []
    hangsUp = false
    const server = createServer((request, response) => {
      void respond(request).then((reply) => {
        if (reply === null) return response.destroy()
        response.writeHead(reply.status, { 'content-type': 'application/json' })
        return response.end(JSON.stringify(reply.body))
      })
    })
    outside = await listening(server)
    const dataDir = await mkdtemp(join(tmpdir(), 'example-'))
    stack.defer(() => rm(dataDir, { recursive: true }))
    const logger = createLogger('example', 'silent')
    const config = readEmbeddedConfig({
      PORT: '0',
      SERVICE_API_KEY: key,
      DATA_DIR: dataDir,
      GATEWAY_URL: outside,
    })
    const service = stack.use(
      await startCoordinator(config, {
        logger,
        health: createHealth(logger),
        source: stack.use(await createMemoryTransactionSource(dataDir)),
        bus: stack.use(createInProcessBus(logger)),
        processes: [invoiceProcess],
      }),
    )
    coordinator = `${service.url}/processes/InvoiceProcess/transactions`
  })
  afterEach(() => stack.disposeAsync())

  async function listening(server: Server): Promise<string> {
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    stack.defer(async () => {
      server.close()
      server.closeAllConnections()
    })
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  }

  /**
   * Returns the response of the accounting API behind the gateway or of the message service; `null` means that
   * the connection is closed without a response.
   */
  async function respond(request: IncomingMessage) {
    const url = new URL(request.url ?? '', outside)
    const body = await text(request)
    const name = `${request.method} ${url.pathname}`
    const query = Object.fromEntries(url.searchParams)
    calls.push({ name, query, headers: request.headers, body: body && JSON.parse(body) })
    switch (name) {
      case 'POST /v3/company/42/customer':
        return { status: 200, body: { Customer: { Id: '7' } } }
      case 'POST /v3/company/42/invoice':
        return { status: 200, body: { Invoice: { Id: '130' } } }
      case 'POST /messages':
        return hangsUp ? null : { status: 202, body: {} }
      case 'GET /messages':
        return { status: hangsUp ? 200 : 404, body: {} }
      default:
        return { status: 404, body: {} }
    }
  }

  const headers = { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' }
  const queue = (initialData: unknown) =>
    fetch(coordinator, {
      method: 'POST',
      headers,
      body: JSON.stringify({ TransactionID: 'sale-1', InitialData: initialData, Realm: '42' }),
    })
  const reached = (status: string) =>
    eventually(async () => {
      const run = (await (
        await fetch(`${coordinator}/sale-1`, { headers })
      ).json()) as TransactionView
      expect(run.Status).toBe(status)
      return run
    })
  const sale = () => ({ customer: 'Rosewood', amount: 66, notify: `${outside}/messages` })

  it('the invoice process creates the customer and the invoice at the accounting API, and sends the message', async () => {
    expect((await queue(sale())).status).toBe(202)
    const run = await reached('Completed')
    expect(run.Items.map(({ StepName, Data }) => [StepName, Data])).toEqual([
      ['customer', '7'],
      ['invoice', '130'],
      ['notice', null],
    ])
    expect(calls.map(({ name }) => name)).toEqual([
      'POST /v3/company/42/customer',
      'POST /v3/company/42/invoice',
      'POST /messages',
    ])
    expect(calls[1]).toMatchObject({
      query: { requestid: expect.stringMatching(/^[0-9a-f]{32}$/) },
      headers: { authorization: `Bearer ${key}` },
      body: { CustomerRef: { value: '7' }, Line: [{ Amount: 66 }] },
    })
    expect(calls[2]?.body).toEqual({ text: 'Invoice 130 for Rosewood' })
  })

  it('if the connection is lost after the message was sent, the invoice process finds the message with `confirm` and does not send it again', async () => {
    hangsUp = true
    await queue(sale())
    const run = await reached('Completed')
    expect(run.Attempts.map(({ Outcome }) => Outcome)).toEqual([
      'completed',
      'completed',
      'no_answer',
      'completed',
    ])
    expect(calls.slice(2).map(({ name }) => name)).toEqual(['POST /messages', 'GET /messages'])
    expect(calls[3]?.query['key']).toBe(calls[2]?.headers['idempotency-key'])
  })

  it('the coordinator rejects a transaction whose data is not a sale, and lists the invalid fields', async () => {
    const response = await queue({ customer: 'Rosewood', amount: 0, notify: 'nowhere' })
    expect(response.status).toBe(400)
    expect(await response.json()).toMatchObject({
      code: 'input_invalid',
      errors: [
        expect.stringContaining('InitialData.amount'),
        expect.stringContaining('InitialData.notify'),
      ],
    })
    expect(calls).toEqual([])
  })

  it('the invoice process file is identical to the file that docs/processes.md shows', async () => {
    const read = (path: string) => readFile(new URL(path, import.meta.url), 'utf8')
    const [, shown] = /^```ts\n(import [^]*?)^```$/m.exec(await read('../docs/processes.md')) ?? []
    expect(shown).toBe(await read('./invoice-process.ts'))
  })
})
