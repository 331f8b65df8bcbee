import { beforeEach, describe, expect, it } from 'vitest'
import type { BookChange } from '../webhooks/notification.ts'
import { createPreferences } from '../company/preferences.ts'
import { type Books, createBooks } from './books.ts'
import type { Entity } from './entities.ts'
import { type Body, createPostedEntities } from './posted-entities.ts'

const NOW = new Date('2026-11-20T08:00:00Z')
const LATER = new Date('2026-11-21T08:00:00Z')

let books: Books
let changes: BookChange[]
beforeEach(() => {
  changes = []
  books = createBooks({
    posted: createPostedEntities(),
    preferences: createPreferences(),
    visibleAfterMs: () => 0,
    findCompany: () => null,
    onChange: (change) => changes.push(change),
    onWritten() {},
  })
})

function write(entity: Entity, body: Body, operation: string | null = null, now = NOW): Body {
  const result = books.write({ realm: '42', entity, requestId: null, operation }, body, now)
  if ('error' in result) throw new Error(result.error)
  return result.document[entity] as Body
}
function query(statement: string): readonly Body[] {
  const result = books.query('42', statement, NOW)
  if ('error' in result) throw new Error(result.error)
  const { QueryResponse } = result.document as { QueryResponse: Readonly<Record<string, unknown>> }
  return (Object.values(QueryResponse)[0] ?? []) as readonly Body[]
}
const idsOf = (statement: string) => query(statement).map(({ Id }) => Id)
const find = (entity: Entity, { Id }: Body) =>
  query(`select * from ${entity} where Id = '${String(Id)}'`)[0]

const sold = (Amount: number) => ({ Amount, DetailType: 'SalesItemLineDetail' })
const paying = (of: Body, Amount: number, TxnType = 'Invoice') => ({
  Amount,
  LinkedTxn: [{ TxnId: of['Id'], TxnType }],
})

describe('the members that the accounting API computes', () => {
  it('a new invoice gets its number, dates, currency, lines, total, balance and version', () => {
    const ada = write('Customer', { DisplayName: 'Ada' })
    const CustomerRef = { value: ada['Id'] }
    expect(write('Invoice', { CustomerRef, Line: [sold(60), sold(6.5)] })).toEqual({
      CurrencyRef: { value: 'USD', name: 'United States Dollar' },
      CustomerRef: { value: '1', name: 'Ada' },
      DocNumber: '1001',
      TxnDate: '2026-11-20',
      DueDate: '2026-12-20',
      Line: [
        { Id: '1', LineNum: 1, ...sold(60) },
        { Id: '2', LineNum: 2, ...sold(6.5) },
        { Amount: 66.5, DetailType: 'SubTotalLineDetail', SubTotalLineDetail: {} },
      ],
      LinkedTxn: [],
      TotalAmt: 66.5,
      Balance: 66.5,
      domain: 'QBO',
      sparse: false,
      Id: '2',
      SyncToken: '0',
      MetaData: { CreateTime: NOW.toISOString(), LastUpdatedTime: NOW.toISOString() },
    })
  })

  it('the total contains taxes that are not included in the lines, and not the discount', () => {
    const percent = { PercentBased: true, DiscountPercent: 10 }
    const discount = { DetailType: 'DiscountLineDetail', DiscountLineDetail: percent }
    const TxnTaxDetail = { TotalTax: 7.2 }
    const content = { Line: [sold(80), discount], TxnTaxDetail }
    expect(write('Invoice', content)).toMatchObject({
      TotalAmt: 79.2,
      Line: [{}, { Amount: 8 }, { Amount: 80 }],
    })
    const GlobalTaxCalculation = 'TaxInclusive'
    expect(write('SalesReceipt', { ...content, GlobalTaxCalculation })).toMatchObject({
      TotalAmt: 72,
    })
  })

  it('what a client sends for a computed member is ignored', () => {
    const forged = { TotalAmt: 1, Balance: 1, SyncToken: '9', MetaData: {}, Line: [sold(66)] }
    expect(write('Invoice', forged)).toMatchObject({ TotalAmt: 66, Balance: 66, SyncToken: '0' })
  })

  it('an update keeps the number and the date, and computes the total again', () => {
    const invoice = write('Invoice', { Line: [sold(66)] })
    const { Id, SyncToken } = invoice
    expect(write('Invoice', { Id, SyncToken, Line: [sold(50)] }, null, LATER)).toMatchObject({
      DocNumber: '1001',
      TxnDate: '2026-11-20',
      TotalAmt: 50,
      Balance: 50,
      SyncToken: '1',
    })
    expect(write('Invoice', { ...find('Invoice', invoice), PrivateNote: 'x' })).toMatchObject({
      Line: [{ Id: '1' }, { DetailType: 'SubTotalLineDetail' }],
      TotalAmt: 50,
    })
  })

  it('numbers continue after the highest number of a sale; estimates have numbers of their own', () => {
    write('Invoice', { DocNumber: '2000' })
    write('Invoice', { DocNumber: 'A-1' })
    const numbers = (['SalesReceipt', 'Invoice', 'Estimate', 'Bill'] as const).map(
      (entity) => write(entity, {})['DocNumber'],
    )
    expect(numbers).toEqual(['2001', '2002', '1001', undefined])
  })

  it('the due date follows the term of the invoice; a bill without a term is due at once', () => {
    const term = write('Term', { Name: 'Net 10', DueDays: 10 })
    const TxnDate = '2026-02-25'
    const SalesTermRef = { value: term['Id'] }
    expect(write('Invoice', { TxnDate, SalesTermRef })).toMatchObject({ DueDate: '2026-03-07' })
    expect(write('Bill', { TxnDate, SalesTermRef })).toMatchObject({ DueDate: '2026-03-07' })
    expect(write('Bill', { TxnDate })).toMatchObject({ DueDate: TxnDate })
  })
})

describe('payments', () => {
  it('a payment lowers the balance of the invoices to which it is applied, and makes a new version of each', () => {
    const invoice = write('Invoice', { Line: [sold(66)] })
    const payment = write('Payment', { TotalAmt: 100, Line: [paying(invoice, 40)] }, null, LATER)
    expect(payment).toMatchObject({ TotalAmt: 100, UnappliedAmt: 60 })
    expect(find('Invoice', invoice)).toMatchObject({
      TotalAmt: 66,
      Balance: 26,
      LinkedTxn: [{ TxnId: payment['Id'], TxnType: 'Payment' }],
      SyncToken: '1',
      MetaData: { CreateTime: NOW.toISOString(), LastUpdatedTime: LATER.toISOString() },
    })
    expect(changes.map(({ entity, operation }) => `${entity}.${operation}`)).toEqual([
      'Invoice.create',
      'Payment.create',
      'Invoice.update',
    ])
  })

  it.each(['void', 'delete'])(
    'after the %s of its payment, an invoice is unpaid again',
    (operation) => {
      const invoice = write('Invoice', { Line: [sold(66)] })
      const { Id, SyncToken } = write('Payment', { TotalAmt: 66, Line: [paying(invoice, 66)] })
      expect(find('Invoice', invoice)).toMatchObject({ Balance: 0 })
      write('Payment', { Id, SyncToken }, operation)
      expect(find('Invoice', invoice)).toMatchObject({ Balance: 66, LinkedTxn: [], SyncToken: '2' })
    },
  )

  it('a payment that is applied to another invoice instead changes both', () => {
    const [one, other] = [
      write('Invoice', { Line: [sold(10)] }),
      write('Invoice', { Line: [sold(20)] }),
    ]
    const payment = write('Payment', { TotalAmt: 10, Line: [paying(one, 10)] })
    write('Payment', { ...payment, Line: [paying(other, 10)] })
    expect(query('select * from Invoice').map(({ Balance }) => Balance)).toEqual([10, 10])
  })

  it('an update of a paid invoice keeps its payments', () => {
    const invoice = write('Invoice', { Line: [sold(66)] })
    write('Payment', { TotalAmt: 60, Line: [paying(invoice, 60)] })
    const { Id } = invoice
    const LinkedTxn = [{ TxnId: '7', TxnType: 'Estimate' }]
    const content = { Id, SyncToken: '1', Line: [sold(70)], LinkedTxn }
    expect(write('Invoice', content)).toMatchObject({
      Balance: 10,
      LinkedTxn: [{ TxnType: 'Estimate' }, { TxnType: 'Payment' }],
    })
  })

  it('a credit memo that a payment uses loses its balance', () => {
    const invoice = write('Invoice', { Line: [sold(66)] })
    const credit = write('CreditMemo', { Line: [sold(50)] })
    const Line = [paying(invoice, 50), paying(credit, 50, 'CreditMemo')]
    expect(write('Payment', { TotalAmt: 0, Line })).toMatchObject({ UnappliedAmt: 0 })
    expect(find('Invoice', invoice)).toMatchObject({ Balance: 16 })
    expect(find('CreditMemo', credit)).toMatchObject({ Balance: 0 })
  })

  it('the payment of a bill lowers the balance of the bill', () => {
    const bill = write('Bill', { Line: [{ Amount: 250 }] })
    write('BillPayment', { PayType: 'Check', TotalAmt: 200, Line: [paying(bill, 200, 'Bill')] })
    expect(find('Bill', bill)).toMatchObject({
      Balance: 50,
      LinkedTxn: [{ TxnType: 'BillPaymentCheck' }],
    })
  })

  it('the balance of a customer is what the customer owes', () => {
    const [ada, ben] = ['Ada', 'Ben'].map((DisplayName) => write('Customer', { DisplayName }))
    const CustomerRef = { value: ada?.['Id'] }
    expect(ben).toMatchObject({ Balance: 0, Active: true })
    const invoice = write('Invoice', { CustomerRef, Line: [sold(66)] })
    write('Payment', { CustomerRef, TotalAmt: 10, Line: [paying(invoice, 4)] })
    write('CreditMemo', { CustomerRef, Line: [sold(6)] })
    expect(query("select * from Customer where Balance > '0'")).toMatchObject([
      { DisplayName: 'Ada', Balance: 50 },
    ])
  })
})

describe('queries for computed members', () => {
  beforeEach(() => {
    const open = write('Invoice', { Line: [sold(66)], DueDate: '2026-11-01' })
    const paid = write('Invoice', { Line: [sold(100)] })
    write('Invoice', { Line: [sold(9)], DueDate: '2026-10-01' })
    write('Payment', { TotalAmt: 100, Line: [paying(paid, 100)] })
    write('Payment', { TotalAmt: 6, Line: [paying(open, 6)] })
  })

  it.each<[string, readonly string[]]>([
    ["where Balance > '0'", ['1', '3']],
    ["where Balance = '0'", ['2']],
    ["where Balance > '0' and DueDate < '2026-10-15'", ['3']],
    ['orderby TotalAmt desc', ['2', '1', '3']],
    ["where DocNumber = '1002'", ['2']],
    ["where TxnDate >= '2026-11-20' orderby Balance", ['2', '3', '1']],
  ])('select * from Invoice %s finds the matching invoices', (condition, ids) => {
    expect(idsOf(`select * from Invoice ${condition}`)).toEqual(ids)
  })

  it('a query with a list of members returns only these members', () => {
    const statement = "select Id, balance, MetaData.CreateTime from Invoice where Balance < '61'"
    const MetaData = { CreateTime: NOW.toISOString(), LastUpdatedTime: NOW.toISOString() }
    const rest = { MetaData, domain: 'QBO', sparse: true }
    expect(query(`${statement} orderby Id desc maxresults 2`)).toEqual([
      { Id: '3', Balance: 9, ...rest },
      { Id: '2', Balance: 0, ...rest },
    ])
  })
})

describe('e-mails of transactions', () => {
  const send = (id: unknown, sendTo: string | null, requestId: string | null = null) =>
    books.send({ realm: '42', entity: 'Invoice', requestId }, String(id), sendTo, LATER)

  it('an invoice that is sent has the status EmailSent, once for each requestid', () => {
    const { Id } = write('Invoice', { BillEmail: { Address: 'ada@example.com' }, Line: [sold(66)] })
    const sent = send(Id, null, 'r1')
    expect(sent).toMatchObject({
      document: {
        Invoice: {
          BillEmail: { Address: 'ada@example.com' },
          EmailStatus: 'EmailSent',
          DeliveryInfo: { DeliveryType: 'Email', DeliveryTime: LATER.toISOString() },
          SyncToken: '1',
          Balance: 66,
        },
      },
    })
    expect(send(Id, null, 'r1')).toEqual(sent)
    expect(changes.map(({ operation }) => operation)).toEqual(['create', 'emailed'])
  })

  it('an invoice is sent to the given address; without any address it is rejected', () => {
    const { Id } = write('Invoice', { Line: [sold(66)] })
    expect(send(Id, null)).toMatchObject({ error: '2020' })
    expect(send(Id, 'ben@example.com')).toMatchObject({
      document: { Invoice: { BillEmail: { Address: 'ben@example.com' } } },
    })
    expect(send('99', 'ben@example.com')).toEqual({ error: '610' })
  })
})
