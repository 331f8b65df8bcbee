import { afterAll, beforeAll, expect, it } from 'vitest'
import { connectCompany } from '../support/clients/user-actions.ts'
import { startSystem, type System } from '../support/system.ts'
import { postJson } from '@integration-host/shared/test-support/post-json'

const REALM = '9341453908059889'

let system: System
beforeAll(async () => {
  system = await startSystem(['sandbox-provider', 'token-service', 'accounting-gateway'])
  await connectCompany(system, REALM)
})
afterAll(() => system[Symbol.asyncDispose]())

interface Stored {
  readonly Id: string
  readonly SyncToken: string
}

/** Calls the accounting API for the company through the gateway, which adds the access token of the company. */
const call = (path: string, init: RequestInit = {}): Promise<Response> =>
  system.call(`${system.url('accounting-gateway')}/v3/company/${REALM}/${path}`, {
    ...init,
    headers: { Accept: 'application/json', ...(init.headers as Record<string, string>) },
  })
const get = async (path: string): Promise<unknown> => (await call(path)).json()
const send = (path: string, body: unknown): Promise<Response> => call(path, postJson(body))
const invoiceOf = async (response: Response): Promise<Stored> =>
  ((await response.json()) as { Invoice: Stored }).Invoice

it('an application creates, reads, updates, queries, uploads and deletes in the books of a company through the gateway', async () => {
  const since = encodeURIComponent(new Date(Date.now() - 60_000).toISOString())
  const content = { DocNumber: "O'Hara 1", TxnDate: '2026-01-31', TotalAmt: 66 }
  const created = await invoiceOf(await send('invoice', content))
  expect(await get(`invoice/${created.Id}`)).toMatchObject({ Invoice: content })

  const change = { Id: created.Id, SyncToken: '0', sparse: true, PrivateNote: 'ü' }
  const updated = await invoiceOf(await send('invoice', change))
  expect(updated).toMatchObject({ ...content, SyncToken: '1', PrivateNote: 'ü' })
  const stale = await send('invoice', change)
  expect([stale.status, await stale.json()]).toMatchObject([
    400,
    { Fault: { Error: [{ code: '5010' }] } },
  ])

  const statement = String.raw`select * from Invoice where DocNumber = 'O\'Hara 1' and TotalAmt > '65'`
  const found = { QueryResponse: { Invoice: [updated], maxResults: 1 } }
  expect(await get(`query?query=${encodeURIComponent(statement)}`)).toMatchObject(found)
  const posted = await call('query', {
    method: 'POST',
    headers: { 'Content-Type': 'application/text' },
    body: statement,
  })
  expect(await posted.json()).toMatchObject(found)

  const batch = await send('batch', {
    BatchItemRequest: [
      { bId: '1', operation: 'create', Customer: { DisplayName: 'Ü' } },
      { bId: '2', operation: 'create', Customer: { DisplayName: 'ü' } },
      { bId: '3', Query: 'select count(*) from Customer' },
    ],
  })
  expect(await batch.json()).toMatchObject({
    BatchItemResponse: [
      { bId: '1', Customer: { DisplayName: 'Ü' } },
      { bId: '2', Fault: { Error: [{ code: '6240' }] } },
      { bId: '3', QueryResponse: { totalCount: 1 } },
    ],
  })

  const bId = crypto.randomUUID()
  const long = await send('batch', {
    BatchItemRequest: [{ bId, Query: 'select count(*) from Customer' }],
  })
  expect(await long.json()).toMatchObject({
    BatchItemResponse: [{ bId, QueryResponse: { totalCount: 1 } }],
  })

  const period = 'start_date=2026-01-01&end_date=2026-01-31'
  expect(JSON.stringify(await get(`reports/ProfitAndLoss?${period}`))).toContain('"66.00"')

  const form = new FormData()
  form.set('file_content_01', new Blob(['a;b'], { type: 'text/csv' }), 'ü.csv')
  const upload = await call('upload', { method: 'POST', body: form })
  const { AttachableResponse } = (await upload.json()) as {
    AttachableResponse: readonly { readonly Attachable: Stored }[]
  }
  const address = await call(`download/${AttachableResponse[0]?.Attachable.Id}`)
  expect(await (await fetch(await address.text())).text()).toBe('a;b')
  const pdf = await call(`invoice/${created.Id}/pdf`, { headers: { Accept: 'application/pdf' } })
  expect(await pdf.text()).toMatch(/^%PDF-/)

  const { Id, SyncToken } = updated
  const deleted = await send('invoice?operation=delete', { Id, SyncToken })
  expect(await deleted.json()).toMatchObject({ Invoice: { Id, status: 'Deleted' } })
  const gone = await call(`invoice/${Id}`)
  expect([gone.status, await gone.json()]).toMatchObject([
    400,
    { Fault: { Error: [{ code: '610' }] } },
  ])
  expect(await get(`cdc?entities=Customer,Invoice&changedSince=${since}`)).toMatchObject({
    CDCResponse: [
      {
        QueryResponse: [
          { Customer: [{ DisplayName: 'Ü' }] },
          { Invoice: [{ Id, status: 'Deleted' }] },
        ],
      },
    ],
  })
})
