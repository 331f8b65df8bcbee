import { promisify } from 'node:util'
import { randomBytes } from 'node:crypto'
import { Readable } from 'node:stream'
import { gzipSync } from 'node:zlib'
import QuickBooks from 'node-quickbooks'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  bodyOf,
  KEY,
  startFakeServer,
  tokenOf,
  startFakeTokenService,
} from '../test-support/fake-servers.ts'
import { startGateway } from '../test-support/harness.ts'

const REALM = '9341453908059889'

let opened: AsyncDisposableStack
let tokens: Awaited<ReturnType<typeof startFakeTokenService>>
beforeEach(async () => {
  opened = new AsyncDisposableStack()
  tokens = opened.use(await startFakeTokenService([REALM]))
})
afterEach(() => opened.disposeAsync())

interface Client {
  endpoint: string
  readonly [method: string]: unknown
}

// The type declarations of node-quickbooks describe an ES module with a default export. At run time Node returns the
// class itself, because the package is a CommonJS module.
const Client = QuickBooks as unknown as new (...args: readonly unknown[]) => Client

/**
 * Creates the node-quickbooks client with the gateway's address instead of Intuit's. `token` is the value that the
 * client sends as its access token.
 */
function quickBooks(origin: string, token: string) {
  const client = new Client('id', 'secret', token, false, REALM, true, false, 75, '2.0', '')
  client.endpoint = `${origin}/v3/company/`
  return <T>(method: string, ...args: readonly unknown[]): Promise<T> => {
    const run = client[method] as (...all: readonly unknown[]) => unknown
    return promisify((done: (error: unknown, result: T) => void) =>
      run.call(client, ...args, done),
    )()
  }
}
type Call = ReturnType<typeof quickBooks>

describe('requests of node-quickbooks', () => {
  const pdf = randomBytes(100_000)
  const answers: readonly (readonly [RegExp, string, object | Buffer])[] = [
    [/\/pdf$/, 'application/pdf', pdf],
    [/\/query$/, 'application/json', { QueryResponse: { Customer: [{ Id: '1' }], maxResults: 1 } }],
    [/\/batch$/, 'application/json', { BatchItemResponse: [{ bId: '1' }, { bId: '2' }] }],
    [/\/upload$/, 'application/json', { AttachableResponse: [{ Attachable: { Id: '7' } }] }],
    [/\/attachable$/, 'application/json', { Attachable: { Id: '7', SyncToken: '1' } }],
    [/\/invoice$/, 'application/json', { Invoice: { Id: '5', SyncToken: '1', Memo: 'ü' } }],
  ]

  /** A recorded request, without the values that differ in every run. */
  interface Arrived {
    readonly method: string
    readonly url: string
    readonly headers: Readonly<Record<string, unknown>>
    readonly body: string
  }

  async function recorder(arrived: Arrived[], bearers: (string | undefined)[]) {
    return startFakeServer(async (request, response) => {
      const body = await bodyOf(request)
      const { method = '', url = '', headers } = request
      const { host: _h, connection: _c, via: _v, authorization, ...kept } = headers
      bearers.push(authorization)
      const boundary = /boundary=(\S+)/.exec(headers['content-type'] ?? '')?.[1] ?? 'none'
      const same = (text: string): string => text.replaceAll(boundary, 'BOUNDARY')
      arrived.push({
        method,
        url: url.replace(/&requestid=[0-9a-f-]{36}$/, ''),
        headers: {
          ...kept,
          'request-id': 'unique',
          'content-type': same(headers['content-type'] ?? ''),
        },
        body: same(body.toString('latin1')),
      })
      const [, type = '', answer = {}] =
        answers.find(([path]) => path.test(url.split('?')[0] ?? '')) ?? []
      const bytes = gzipSync(Buffer.isBuffer(answer) ? answer : JSON.stringify(answer))
      response.writeHead(200, { 'Content-Type': type, 'Content-Encoding': 'gzip' }).end(bytes)
    })
  }

  const file = randomBytes(300_000)
  const operations: readonly (readonly [string, number, (call: Call) => Promise<unknown>])[] = [
    [
      'a query with quotes, signs and Unicode',
      1,
      (call) =>
        call('findCustomers', [
          { field: 'DisplayName', value: "O'Hara & Söhne + 100%", operator: 'LIKE' },
          { field: 'limit', value: 5 },
        ]),
    ],
    ['a query as text', 1, (call) => call('findCustomers', "where Id in ('1','2') and x > '#\\'")],
    ['the reading of an invoice', 1, (call) => call('getInvoice', '5')],
    [
      'a request for a report',
      1,
      (call) => call('reportBalanceSheet', { start_date: '2026-01-01' }),
    ],
    [
      'the creation of an invoice',
      1,
      (call) => call('createInvoice', { Memo: 'ü', allowDuplicateDocNum: true }),
    ],
    [
      'the update of an invoice',
      1,
      (call) => call('updateInvoice', { Id: '5', SyncToken: '0', Memo: 'ü' }),
    ],
    ['the deletion of an invoice', 1, (call) => call('deleteInvoice', { Id: '5', SyncToken: '0' })],
    [
      'a batch',
      1,
      (call) =>
        call('batch', [
          { bId: '1', operation: 'create', Customer: { DisplayName: 'Ü' } },
          { bId: '2', Query: "select * from Customer where Id = '1'" },
        ]),
    ],
    ['a request for a PDF', 1, (call) => call('getInvoicePdf', '5')],
    [
      'an upload that is linked to an invoice',
      2,
      (call) => call('upload', 'ü.bin', 'image/png', Readable.from([file]), 'Invoice', '5'),
    ],
  ]

  it.each(operations)(
    'the gateway forwards %s and its response unchanged',
    async (_what, requests, operate) => {
      const arrived: Arrived[] = []
      const bearers: (string | undefined)[] = []
      const upstream = opened.use(await recorder(arrived, bearers))
      const proxy = opened.use(await startGateway(upstream.url, tokens.url))

      const direct = await operate(quickBooks(upstream.url, 'direct'))
      const through = await operate(quickBooks(proxy.url, KEY))

      expect(arrived).toHaveLength(2 * requests)
      expect(arrived.slice(requests)).toEqual(arrived.slice(0, requests))
      expect(through).toEqual(direct)
      // Upstream must receive the access token of the realm instead of the service key that the client sent to the
      // gateway.
      expect(bearers.slice(requests)).toEqual(Array(requests).fill(`Bearer ${tokenOf(REALM, 1)}`))
    },
  )

  it('the gateway relays the bytes of a PDF unchanged', async () => {
    const upstream = opened.use(await recorder([], []))
    const proxy = opened.use(await startGateway(upstream.url, tokens.url))
    expect(pdf.equals(await quickBooks(proxy.url, KEY)<Buffer>('getInvoicePdf', '5'))).toBe(true)
  })
})
