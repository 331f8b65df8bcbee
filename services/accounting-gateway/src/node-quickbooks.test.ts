import { promisify } from 'node:util'
import { randomBytes } from 'node:crypto'
import { Readable } from 'node:stream'
import { gzipSync } from 'node:zlib'
import QuickBooks from 'node-quickbooks'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { SANDBOX_MAIN, startMain } from '../test-support/gateway-process.ts'
import {
  bodyOf,
  KEY,
  startFakeServer,
  tokenOf,
  startFakeTokenService,
} from '../test-support/fake-servers.ts'
import { type Gateway, startGateway } from '../test-support/harness.ts'

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

describe('calls of node-quickbooks through the gateway to the sandbox provider', () => {
  let call: Call
  beforeEach(async () => {
    const sandbox = opened.use(
      startMain({ PORT: '0', CLIENT_ID: 'client', CLIENT_SECRET: 'secret' }, SANDBOX_MAIN),
    )
    const url = await sandbox.url()
    const credential = tokens.credentials.get(REALM)
    if (credential !== undefined) credential.token = await authorize(url)
    const proxy: Gateway = opened.use(await startGateway(url, tokens.url))
    call = quickBooks(proxy.url, KEY)
  })

  it('node-quickbooks reads the company of the realm through the gateway', async () => {
    const found = await call<{ QueryResponse: { CompanyInfo: object[] } }>('findCompanyInfos', '')
    expect(found.QueryResponse.CompanyInfo).toHaveLength(1)
    const company = await call<{ CompanyName: string }>('getCompanyInfo', REALM)
    expect(found.QueryResponse.CompanyInfo).toContainEqual(company)
  })

  it('the provider creates only one invoice if node-quickbooks repeats a request with the same requestId', async () => {
    const invoice = { CustomerRef: { value: '1' }, DocNumber: 'Nr. 1 – für Ärzte' }
    const [first, again, other] = [
      await call<{ Id: string }>('createInvoice', { ...invoice, requestId: 'r-1' }),
      await call<{ Id: string }>('createInvoice', { ...invoice, requestId: 'r-1' }),
      await call<{ Id: string }>('createInvoice', invoice),
    ]
    expect(first).toMatchObject(invoice)
    expect(again).toEqual(first)
    expect(other.Id).not.toBe(first.Id)
  })

  it('node-quickbooks receives an error response of the provider unchanged', async () => {
    await expect(call('findCustomers', "where x = 'a' or x = 'b'")).rejects.toMatchObject({
      response: {
        status: 400,
        data: { Fault: { type: 'ValidationFault', Error: [{ code: '4000' }] } },
      },
    })
  })

  it('node-quickbooks creates, updates, voids and deletes objects, and finds them in the change data', async () => {
    const since = new Date(Date.now() - 60_000).toISOString()
    const customer = await call<Stored>('createCustomer', { DisplayName: "O'Hara & Söhne" })
    const invoice = { CustomerRef: { value: customer.Id }, DocNumber: '1', TotalAmt: 66 }
    const [first, second] = [
      await call<Stored>('createInvoice', invoice),
      await call<Stored>('createInvoice', invoice),
    ]
    const updated = await call<Stored>('updateInvoice', { ...idOf(first), PrivateNote: 'ü' })
    expect(updated).toMatchObject({ ...invoice, Id: first.Id, SyncToken: '1', PrivateNote: 'ü' })
    expect(await call('getInvoice', first.Id)).toEqual(updated)
    await expect(call('updateInvoice', { ...idOf(first) })).rejects.toMatchObject({
      response: { data: { Fault: { Error: [{ code: '5010' }] } } },
    })
    expect(await call('updateInvoice', { ...idOf(updated), void: true })).toMatchObject({
      TotalAmt: 0,
      SyncToken: '2',
    })
    await call('deleteInvoice', idOf(second))
    await expect(call('getInvoice', second.Id)).rejects.toMatchObject({
      response: { data: { Fault: { Error: [{ code: '610' }] } } },
    })
    expect(await call('changeDataCapture', ['Customer', 'Invoice'], since)).toMatchObject({
      CDCResponse: [
        {
          QueryResponse: [
            { Customer: [{ Id: customer.Id }] },
            { Invoice: [{ Id: first.Id }, { Id: second.Id, status: 'Deleted' }] },
          ],
        },
      ],
    })
  })

  it('node-quickbooks queries objects by conditions, counts them, and reads all pages', async () => {
    for (const name of ["O'Hara", 'Ohm 100%', 'Zoë'])
      await call('createCustomer', { DisplayName: name, Active: true })
    const found = async (criteria: unknown) => {
      const { QueryResponse } = await call<{ QueryResponse: { Customer?: Named[] } }>(
        'findCustomers',
        criteria,
      )
      return QueryResponse.Customer?.map(({ DisplayName }) => DisplayName) ?? []
    }
    expect(await found([{ field: 'DisplayName', value: 'o%', operator: 'LIKE' }])).toEqual([
      "O'Hara",
      'Ohm 100%',
    ])
    expect(await found([{ field: 'DisplayName', value: 'Zoë' }])).toEqual(['Zoë'])
    expect(await found({ DisplayName: "O'Hara" })).toEqual(["O'Hara"])
    expect(
      await found([
        { field: 'desc', value: 'DisplayName' },
        { field: 'limit', value: 1 },
        { field: 'fetchAll', value: true },
      ]),
    ).toEqual(['Zoë', 'Ohm 100%', "O'Hara"])
    expect(await call('findCustomers', { count: true })).toMatchObject({
      QueryResponse: { totalCount: 3 },
    })
  })

  it('node-quickbooks receives the result of each item of a batch, even if one item fails', async () => {
    const { BatchItemResponse } = await call<{ BatchItemResponse: object[] }>('batch', [
      { bId: '1', operation: 'create', Customer: { DisplayName: 'Ü' } },
      { bId: '2', operation: 'create', Customer: { DisplayName: 'Ü' } },
      { bId: '3', Query: 'select count(*) from Customer' },
    ])
    expect(BatchItemResponse).toMatchObject([
      { bId: '1', Customer: { DisplayName: 'Ü' } },
      { bId: '2', Fault: { Error: [{ code: '6240' }] } },
      { bId: '3', QueryResponse: { totalCount: 1 } },
    ])
  })

  it('node-quickbooks receives a report that is computed from the invoices of the company', async () => {
    await call('createInvoice', { DocNumber: '1', TotalAmt: 66, TxnDate: '2026-01-31' })
    const report = await call('reportProfitAndLoss', {
      start_date: '2026-01-01',
      end_date: '2026-01-31',
    })
    expect(report).toMatchObject({ Header: { ReportName: 'ProfitAndLoss' } })
    expect(JSON.stringify(report)).toContain('66.00')
  })

  it('node-quickbooks uploads a file for an invoice, and receives the PDF of the invoice', async () => {
    const invoice = await call<Stored>('createInvoice', { DocNumber: '1', TotalAmt: 66 })
    const content = Readable.from([randomBytes(300_000)])
    const linked = await call('upload', 'ü.png', 'image/png', content, 'Invoice', invoice.Id)
    expect(linked).toMatchObject({
      FileName: 'ü.png',
      ContentType: 'image/png',
      Size: 300_000,
      AttachableRef: [{ EntityRef: { type: 'Invoice', value: invoice.Id } }],
    })
    const pdf = await call<Buffer>('getInvoicePdf', invoice.Id)
    expect(pdf.toString('latin1')).toMatch(/^%PDF-[^]*Invoice 1[^]*%%EOF/)
  })
})

interface Stored {
  readonly Id: string
  readonly SyncToken: string
}
interface Named {
  readonly DisplayName: string
}

const idOf = ({ Id, SyncToken }: Stored): Stored => ({ Id, SyncToken })

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

/** Obtains an access token of the sandbox company with an authorization code, without a browser. */
async function authorize(sandboxUrl: string): Promise<string> {
  const redirectUri = 'http://127.0.0.1:9/callback'
  const page = new URL('/connect/oauth2', sandboxUrl)
  page.search = String(
    new URLSearchParams({
      client_id: 'client',
      redirect_uri: redirectUri,
      response_type: 'code',
      scope: 'com.intuit.quickbooks.accounting',
      state: 'state',
      sandbox_company: REALM,
    }),
  )
  const redirect = await fetch(page, { redirect: 'manual' })
  const code = new URL(redirect.headers.get('Location') ?? '').searchParams.get('code') ?? ''
  const answer = await fetch(`${sandboxUrl}/oauth2/v1/tokens/bearer`, {
    method: 'POST',
    headers: { Authorization: `Basic ${Buffer.from('client:secret').toString('base64')}` },
    body: new URLSearchParams({
      grant_type: 'authorization_code',
      code,
      redirect_uri: redirectUri,
    }),
  })
  return ((await answer.json()) as { access_token: string }).access_token
}
