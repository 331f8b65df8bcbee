import { beforeEach, describe, expect, it } from 'vitest'
import { REALM, useProvider } from '../../test-support/provider-fixture.ts'

type Body = Readonly<Record<string, unknown>>

const provider = useProvider()
let accessToken: string
beforeEach(async () => {
  accessToken = (await provider.tokens()).access_token
})

const api = async (path: string, body?: object): Promise<Body> => {
  const init = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }
  const response = await provider.api(`/v3/company/${REALM}/${path}`, accessToken, init)
  return (await response.json()) as Body
}
const query = async (statement: string) =>
  ((await api(`query?query=${encodeURIComponent(statement)}`)) as { QueryResponse: Body })
    .QueryResponse
const edit = async (...edits: readonly object[]) => {
  const response = await provider.sandbox('POST', `companies/${REALM}/edits`, { edits })
  return { status: response.status, body: (await response.json()) as Body }
}
const fault = (code: string) => ({ Fault: { Error: [{ code }] } })
const line = [{ Amount: 50, DetailType: 'SalesItemLineDetail' }]
const paymentOf = (id: string) => ({
  TotalAmt: 50,
  Line: [{ Amount: 50, LinkedTxn: [{ TxnId: id, TxnType: 'Invoice' }] }],
})

describe('when queries return a new object', () => {
  it('a query, alone and in a batch, returns a new object only after visibleAfterMs; a read by id returns it at once', async () => {
    await provider.sandbox('PUT', 'settings', { visibleAfterMs: 30_000 })
    await api('invoice', { DocNumber: 'A-1' })
    const byMark = "select * from Invoice where DocNumber = 'A-1'"
    expect(await query(byMark)).toEqual({})
    expect(await api('invoice/1')).toMatchObject({ Invoice: { DocNumber: 'A-1' } })
    provider.moveTime(29_999)
    expect(await api('batch', { BatchItemRequest: [{ bId: '1', Query: byMark }] })).toMatchObject({
      BatchItemResponse: [{ QueryResponse: {} }],
    })
    provider.moveTime(1)
    expect(await query(byMark)).toMatchObject({ Invoice: [{ Id: '1' }] })
    await api('invoice', { Id: '1', SyncToken: '0', sparse: true, DocNumber: 'A-2' })
    expect(await query('select * from Invoice')).toMatchObject({ Invoice: [{ SyncToken: '1' }] })
  })

  it('the personality forgetful executes a POST with a known requestid again, and its queries lag', async () => {
    await provider.sandbox('PUT', 'settings', { personality: 'forgetful' })
    expect(await api('invoice?requestid=r', {})).toMatchObject({ Invoice: { Id: '1' } })
    expect(await api('invoice?requestid=r', {})).toMatchObject({ Invoice: { Id: '2' } })
    expect(await query('select * from Invoice')).toEqual({})
    provider.moveTime(5_000)
    expect(await query('select count(*) from Invoice')).toEqual({ totalCount: 2 })
  })
})

describe('edits by a person', () => {
  it('a person changes, voids, deletes and creates objects without their SyncToken', async () => {
    const since = new Date(provider.now()).toISOString()
    for (const PrivateNote of ['a', 'b', 'c']) await api('invoice', { PrivateNote, Line: line })
    const { status, body } = await edit(
      { entity: 'Invoice', id: '1', change: { PrivateNote: 'edited' } },
      { entity: 'Invoice', id: '2', operation: 'void' },
      { entity: 'invoice', id: '3', operation: 'delete' },
      { entity: 'Payment', operation: 'create', change: paymentOf('1') },
    )
    expect([status, body]).toMatchObject([
      200,
      {
        objects: [
          { Invoice: { Id: '1', SyncToken: '1', PrivateNote: 'edited', TotalAmt: 50 } },
          { Invoice: { Id: '2', SyncToken: '1', PrivateNote: 'Voided - b', TotalAmt: 0 } },
          { Invoice: { Id: '3', status: 'Deleted' } },
          { Payment: { Id: '4', UnappliedAmt: 0 } },
        ],
      },
    ])
    expect(await api('invoice/1')).toMatchObject({ Invoice: { SyncToken: '2', Balance: 0 } })
    expect(await api('invoice', { Id: '1', SyncToken: '0', sparse: true })).toMatchObject(
      fault('5010'),
    )
    const { CDCResponse } = await api(`cdc?entities=Invoice&changedSince=${since}`)
    expect(CDCResponse).toMatchObject([
      { QueryResponse: [{ Invoice: [{ Line: {} }, { Line: {} }, { status: 'Deleted' }] }] },
    ])
    expect((await provider.counters()).realms[REALM]?.entitiesCreated).toBe(3)
  })

  it.each<[string, object, string]>([
    ['no id', { entity: 'Invoice' }, 'edits[0]: must have an id'],
    [
      'an id for a creation',
      { entity: 'Invoice', operation: 'create', id: '1' },
      'edits[0]: must have an id',
    ],
    ['an unknown object', { entity: 'Invoice', id: '9' }, 'edits[0]: Object Not Found'],
    ['an unknown kind', { entity: 'Spaceship', id: '1' }, 'edits[0]: has no kind'],
    ['deleted preferences', { entity: 'Preferences', operation: 'delete' }, 'edits[0]: has no'],
    ['another member', { entity: 'Invoice', id: '1', SyncToken: '0' }, 'edits.0'],
  ])('an edit with %s is rejected', async (_, given, detail) => {
    const { status, body } = await edit(given)
    expect(status).toBe(400)
    expect(JSON.stringify(body)).toContain(detail)
  })
})

describe('rules of the books', () => {
  it('objects of lists cannot be deleted, and transactions can', async () => {
    await api('customer', { DisplayName: 'Ada' })
    const version = { Id: '1', SyncToken: '0' }
    expect(await api('customer?operation=delete', version)).toMatchObject(fault('500'))
    await api('bill', {})
    expect(await api('bill?operation=void', { Id: '2', SyncToken: '0' })).toMatchObject(
      fault('500'),
    )
    expect(await api('bill?operation=delete', { Id: '2', SyncToken: '0' })).toMatchObject({
      Bill: { status: 'Deleted' },
    })
  })

  it('a client cannot void or delete a paid invoice until its payment is gone; of a person it releases the payment', async () => {
    await api('invoice', { Line: line })
    await api('payment', paymentOf('1'))
    const paid = { Id: '1', SyncToken: '1' }
    expect(await api('invoice?operation=void', paid)).toMatchObject(fault('6000'))
    expect(await api('invoice?operation=delete', paid)).toMatchObject(fault('6000'))
    const { body } = await edit({ entity: 'Invoice', id: '1', operation: 'void' })
    expect(body).toMatchObject({ objects: [{ Invoice: { LinkedTxn: [], Balance: 0 } }] })
    expect(await api('payment/2')).toMatchObject({
      Payment: { SyncToken: '1', Line: [], UnappliedAmt: 50 },
    })
    expect(await api('invoice?operation=void', { Id: '1', SyncToken: '2' })).toMatchObject({
      Invoice: { SyncToken: '3' },
    })
  })

  it('a client cannot create, change, void or delete transactions up to the closing date; a person can', async () => {
    await api('invoice', { TxnDate: '2026-10-31', Line: line })
    await api('estimate', { TxnDate: '2026-10-31' })
    const closing = { AccountingInfoPrefs: { BookCloseDate: '2026-10-31' } }
    await edit({ entity: 'Preferences', change: closing })
    expect(await api('preferences')).toMatchObject({
      Preferences: {
        SyncToken: '1',
        AccountingInfoPrefs: { BookCloseDate: '2026-10-31', UseAccountNumbers: false },
      },
    })
    expect(await query('select * from Preferences')).toMatchObject({ Preferences: [closing] })
    const version = { Id: '1', SyncToken: '0' }
    for (const [path, body] of [
      ['invoice', { TxnDate: '2026-10-31' }],
      ['invoice', { ...version, sparse: true, PrivateNote: 'late' }],
      ['invoice', { ...version, sparse: true, TxnDate: '2026-11-01' }],
      ['invoice?operation=void', version],
      ['invoice?operation=delete', version],
    ] as const)
      expect(await api(path, body)).toMatchObject(fault('6210'))
    expect(await api('invoice', { TxnDate: '2026-11-01' })).toMatchObject({ Invoice: {} })
    expect(await api('customer', { DisplayName: 'Ada' })).toMatchObject({ Customer: {} })
    expect(
      await api('estimate', { Id: '2', SyncToken: '0', sparse: true, PrivateNote: 'still open' }),
    ).toMatchObject({ Estimate: { SyncToken: '1' } })
    expect((await edit({ entity: 'Invoice', id: '1', operation: 'void' })).status).toBe(200)
  })
})
