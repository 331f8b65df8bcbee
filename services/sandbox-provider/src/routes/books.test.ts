import { beforeEach, describe, expect, it } from 'vitest'
import { REALM, useProvider } from '../../test-support/provider-fixture.ts'

/** The members of response bodies that the tests read. */
interface Document {
  readonly CDCResponse: readonly [
    { readonly QueryResponse: readonly Readonly<Record<string, unknown>>[] },
  ]
  readonly BatchItemResponse: readonly unknown[]
  readonly Fault: { readonly Error: readonly [{ readonly code: string }] }
  readonly Rows: { readonly Row: readonly ReportRow[] }
}

type Cells = readonly { readonly value: string }[]
type ReportRow = { readonly ColData: Cells } | { readonly Summary: { readonly ColData: Cells } }

const provider = useProvider()
let accessToken: string
beforeEach(async () => {
  accessToken = (await provider.tokens()).access_token
})

const at = (path: string) => `/v3/company/${REALM}/${path}`
const get = async (path: string) => {
  const response = await provider.api(at(path), accessToken)
  return { status: response.status, body: (await response.json()) as Document }
}
const post = async (path: string, body: object) => {
  const response = await provider.api(at(path), accessToken, {
    method: 'POST',
    body: JSON.stringify(body),
  })
  return { status: response.status, body: (await response.json()) as Document }
}
const codeOf = ({ body }: { body: Document }): string => body.Fault.Error[0].code

describe('change data of the accounting API', () => {
  const changes = (entities: string, changedSince: number) =>
    get(
      `cdc?entities=${entities}&changedSince=${encodeURIComponent(new Date(changedSince).toISOString())}`,
    )

  it('the change data lists the objects that were changed or deleted since the given time, oldest first', async () => {
    await post('invoice', { DocNumber: 'old' })
    provider.moveTime(60_000)
    const since = provider.now()
    await post('invoice', { DocNumber: 'new' })
    provider.moveTime(1_000)
    await post('invoice', { Id: '1', SyncToken: '0', sparse: true, PrivateNote: 'changed' })
    provider.moveTime(1_000)
    await post('invoice?operation=delete', { Id: '2', SyncToken: '0' })
    await post('customer', { DisplayName: 'Ada' })
    const { body } = await changes('Invoice,Customer,Bill', since)
    expect(body.CDCResponse).toEqual([
      {
        QueryResponse: [
          {
            Invoice: [
              expect.objectContaining({ Id: '1', DocNumber: 'old', PrivateNote: 'changed' }),
              expect.objectContaining({
                Id: '2',
                status: 'Deleted',
                domain: 'QBO',
                MetaData: { LastUpdatedTime: new Date(since + 2_000).toISOString() },
              }),
            ],
            startPosition: 1,
            maxResults: 2,
          },
          { Customer: [expect.objectContaining({ Id: '3' })], startPosition: 1, maxResults: 1 },
          {},
        ],
      },
    ])
  })

  it('the change data contains at most 1,000 objects of all kinds together', async () => {
    const since = provider.now()
    for (let n = 0; n < 35; n += 1)
      await post('batch', {
        BatchItemRequest: Array.from({ length: 30 }, (_, k) => ({
          bId: String(k),
          operation: 'create',
          Invoice: {},
        })),
      })
    await post('bill', {})
    const { body } = await changes('Invoice,Bill', since)
    const [invoices, bills] = body.CDCResponse[0].QueryResponse
    expect([invoices?.['maxResults'], bills]).toEqual([1_000, {}])
  })

  it.each([
    ['a time more than 30 days ago', 'Invoice', -31 * 86_400_000],
    ['an unknown kind of object', 'Invoice,Nothing', 0],
    ['a kind of object without change data', 'TimeActivity', 0],
  ])('the accounting API rejects a request for change data with %s', async (_, entities, ms) => {
    const response = await changes(entities, provider.now() + ms)
    expect([response.status, codeOf(response)]).toEqual([400, '2010'])
    expect((await get('cdc?entities=Invoice&changedSince=yesterday')).status).toBe(400)
  })
})

describe('batches of the accounting API', () => {
  it('the accounting API executes each item of a batch, and a failed item does not affect the others', async () => {
    await post('invoice', { DocNumber: '1' })
    const { body } = await post('batch', {
      BatchItemRequest: [
        { bId: 'a', operation: 'create', Customer: { DisplayName: 'Ada' } },
        { bId: 'b', operation: 'update', Invoice: { Id: '1', SyncToken: '7' } },
        { bId: 'c', Query: "select * from Customer where DisplayName = 'ada'" },
        {
          bId: 'd',
          operation: 'update',
          optionsData: 'void',
          Invoice: { Id: '1', SyncToken: '0' },
        },
        { bId: 'e', operation: 'explode', Invoice: {} },
        null,
      ],
    })
    expect(body.BatchItemResponse).toMatchObject([
      { bId: 'a', Customer: { Id: '2' } },
      { bId: 'b', Fault: { Error: [{ code: '5010' }] } },
      { bId: 'c', QueryResponse: { Customer: [{ DisplayName: 'Ada' }], maxResults: 1 } },
      { bId: 'd', Invoice: { Id: '1', SyncToken: '1', TotalAmt: 0, PrivateNote: 'Voided' } },
      { bId: 'e', Fault: { Error: [{ code: '500' }] } },
      { bId: '', Fault: { Error: [{ code: '500' }] } },
    ])
  })

  it('the accounting API creates the objects of a batch only once if the same requestid is sent again', async () => {
    const batch = {
      BatchItemRequest: [
        { bId: '1', operation: 'create', Invoice: {} },
        { bId: '2', operation: 'create', Invoice: {} },
      ],
    }
    const first = await post('batch?requestid=r', batch)
    expect((await post('batch?requestid=r', batch)).body).toEqual(first.body)
    const { body } = await get(`query?query=${encodeURIComponent('select count(*) from Invoice')}`)
    expect(body).toMatchObject({ QueryResponse: { totalCount: 2 } })
  })

  it('the accounting API rejects an item of a batch if requestid and bId have more than 50 characters together', async () => {
    const item = { bId: 'x'.repeat(31), operation: 'create', Invoice: {} }
    const batch = { BatchItemRequest: [item, { ...item, bId: 'x'.repeat(32) }] }
    const ids = async (query: string) => (await post(`batch${query}`, batch)).body.BatchItemResponse
    expect(await ids(`?requestid=${'r'.repeat(19)}`)).toMatchObject([
      { bId: 'x'.repeat(31), Invoice: { Id: '1' } },
      { bId: 'x'.repeat(32), Fault: { Error: [{ code: '2130' }] } },
    ])
    expect(await ids('')).toMatchObject([{ Invoice: { Id: '2' } }, { Invoice: { Id: '3' } }])
    expect(codeOf(await post(`batch?requestid=${'r'.repeat(51)}`, batch))).toBe('2130')
  })

  it('the accounting API rejects a batch of more than 30 items, and a body without items', async () => {
    const items = Array.from({ length: 31 }, (_, n) => ({ bId: String(n), Query: 'select' }))
    expect(codeOf(await post('batch', { BatchItemRequest: items }))).toBe('1040')
    expect(codeOf(await post('batch', {}))).toBe('2010')
  })
})

describe('voided transactions of the accounting API', () => {
  it.each(['invoice?operation=void', 'invoice?operation=update&include=void'])(
    'POST %s sets the amounts of a transaction to zero and keeps its lines',
    async (path) => {
      await post('invoice', {
        DocNumber: '1',
        TotalAmt: 5,
        Line: [{ Amount: 5, Description: 'x' }],
      })
      expect((await post(path, { Id: '1', SyncToken: '0' })).body).toMatchObject({
        Invoice: { SyncToken: '1', TotalAmt: 0, Line: [{ Amount: 0, Description: 'x' }, {}] },
      })
    },
  )

  it('an object that is not a transaction cannot be voided', async () => {
    await post('customer', { DisplayName: 'Ada' })
    expect(codeOf(await post('customer?operation=void', { Id: '1', SyncToken: '0' }))).toBe('500')
  })
})

describe('reports of the accounting API', () => {
  it('the report ProfitAndLoss contains the income and the expenses of the period', async () => {
    await post('invoice', { TxnDate: '2026-05-01', Line: [{ Amount: 100 }, { Amount: 20.5 }] })
    await post('creditmemo', { TxnDate: '2026-05-02', TotalAmt: 20 })
    await post('invoice', { TxnDate: '2025-05-01', TotalAmt: 1_000 })
    await post('bill', { TxnDate: '2026-05-03', TotalAmt: 40 })
    const { body } = await get('reports/ProfitAndLoss?start_date=2026-01-01&end_date=2026-12-31')
    expect(body).toMatchObject({
      Header: { ReportName: 'ProfitAndLoss', StartPeriod: '2026-01-01' },
      Rows: {
        Row: [
          { group: 'Income', Summary: { ColData: [{}, { value: '100.50' }] } },
          { group: 'Expenses', Summary: { ColData: [{}, { value: '40.00' }] } },
          { group: 'NetIncome', Summary: { ColData: [{}, { value: '60.50' }] } },
        ],
      },
    })
  })

  it('the report AgedReceivables groups the unpaid invoices of each customer by the number of days overdue', async () => {
    const invoice = (DueDate: string, TotalAmt: number, name: string) =>
      post('invoice', {
        TxnDate: '2026-01-01',
        DueDate,
        TotalAmt,
        CustomerRef: { value: '1', name },
      })
    await invoice('2026-06-10', 10, 'Ada')
    await invoice('2026-05-20', 20, 'Ada')
    await invoice('2026-01-20', 40, 'Ben')
    const { body } = await get('reports/AgedReceivables?report_date=2026-06-01')
    const cells = body.Rows.Row.map((row) =>
      ('Summary' in row ? row.Summary : row).ColData.map(({ value }) => value),
    )
    expect(cells).toEqual([
      ['Ada', '10.00', '20.00', '', '', '', '30.00'],
      ['Ben', '', '', '', '', '40.00', '40.00'],
      ['TOTAL', '10.00', '20.00', '', '', '40.00', '70.00'],
    ])
  })

  it('for a report that the sandbox does not support, the accounting API returns the error of an unsupported operation', async () => {
    expect(codeOf(await get('reports/CashFlow'))).toBe('500')
  })
})

describe('sample objects in the books of a company', () => {
  it('the sandbox creates sample objects of sixteen kinds for a company, and creates none at a second request', async () => {
    const fill = async (realm = REALM) => {
      const response = await provider.sandbox('POST', `companies/${realm}/books`)
      return { status: response.status, ...((await response.json()) as { created?: number }) }
    }
    expect((await fill()).created).toBe(27)
    const { body } = await get(`query?query=${encodeURIComponent('select * from Invoice')}`)
    expect(body).toMatchObject({
      QueryResponse: { Invoice: [{ CustomerRef: { name: 'Amy Lauterbach' } }, {}, {}] },
    })
    const unpaid = await get(
      `query?query=${encodeURIComponent("select * from Invoice where Balance > '0' orderby Balance")}`,
    )
    expect(unpaid.body).toMatchObject({
      QueryResponse: {
        Invoice: [
          { Balance: 239, BillEmail: { Address: 'amy.lauterbach@example.com' } },
          { Balance: 750 },
          { TotalAmt: 1_200, Balance: 1_000 },
        ],
      },
    })
    const report = await get('reports/AgedReceivables')
    expect(report.body.Rows.Row).toHaveLength(4)
    expect((await fill()).created).toBe(0)
    expect((await fill('404')).status).toBe(404)
  })

  it('the sandbox creates given objects for a company, and names the first one that it rejects', async () => {
    const create = async (objects: unknown) => {
      const response = await provider.sandbox('POST', `companies/${REALM}/objects`, { objects })
      return [response.status, (await response.json()) as object] as const
    }
    const Customer = { DisplayName: 'Ada' }
    expect(await create([{ Customer }, { Invoice: { Line: [{ Amount: 66 }] } }])).toMatchObject([
      201,
      { objects: [{ Customer: { Id: '1' } }, { Invoice: { Id: '2', Balance: 66 } }] },
    ])
    expect(await create([{ Bill: {} }, { Customer }])).toMatchObject([
      400,
      { detail: expect.stringContaining('objects[1]: Duplicate Name Exists Error') },
    ])
    expect(await create([{ Spaceship: {} }])).toMatchObject([
      400,
      { detail: expect.stringContaining('objects[0]: must have one member') },
    ])
    expect((await create(Array.from({ length: 1_001 }, () => ({ Bill: {} }))))[0]).toBe(400)
    expect((await provider.sandbox('POST', 'companies/404/objects', { objects: [] })).status).toBe(
      404,
    )
  })

  it('POST invoice/{id}/send sends an invoice, and rejects other kinds of objects', async () => {
    await post('invoice', { BillEmail: { Address: 'ada@example.com' } })
    expect((await post('invoice/1/send?sendTo=ben@example.com', {})).body).toMatchObject({
      Invoice: { EmailStatus: 'EmailSent', BillEmail: { Address: 'ben@example.com' } },
    })
    expect(codeOf(await post('bill/1/send', {}))).toBe('500')
  })
})
