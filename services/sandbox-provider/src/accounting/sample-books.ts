/** The sample objects of a company, in the order in which they are created. */
import type { ApiErrorCode } from './api-errors.ts'
import type { Entity } from './entities.ts'
import type { Body, PostedEntities } from './posted-entities.ts'

/** Returns a reference to a sample object that was created before. */
type ReferenceTo = (entity: Entity, name: string) => Body

interface SampleObject {
  readonly entity: Entity
  /** The name by which later sample objects refer to this object; absent if no other object refers to it. */
  readonly name?: string
  readonly body: (to: ReferenceTo, dateOf: (daysAgo: number) => string) => Body
}

const named = (entity: Entity, member: string, names: readonly string[], more: Body = {}) =>
  names.map((name): SampleObject => ({
    entity,
    name,
    body: () => ({ [member]: name, Active: true, ...more }),
  }))

/** Returns an address of a domain that RFC 2606 reserves for examples, such as `amy.lauterbach@example.com`. */
const emailOf = (name: string): string => `${name.toLowerCase().replaceAll(' ', '.')}@example.com`

const line = (to: ReferenceTo, item: string, amount: number): Body => ({
  Amount: amount,
  DetailType: 'SalesItemLineDetail',
  SalesItemLineDetail: { ItemRef: to('Item', item), Qty: 1, UnitPrice: amount },
})

const sale = (entity: Entity, customer: string, daysAgo: number, amount: number): SampleObject => ({
  entity,
  body: (to, dateOf) => ({
    TxnDate: dateOf(daysAgo),
    CustomerRef: to('Customer', customer),
    BillEmail: { Address: emailOf(customer) },
    Line: [line(to, amount > 500 ? 'Design' : 'Garden care', amount)],
  }),
})

const expense = (
  entity: Entity,
  vendor: string,
  daysAgo: number,
  amount: number,
): SampleObject => ({
  entity,
  body: (to, dateOf) => ({
    TxnDate: dateOf(daysAgo),
    VendorRef: to('Vendor', vendor),
    Line: [
      {
        Amount: amount,
        DetailType: 'AccountBasedExpenseLineDetail',
        AccountBasedExpenseLineDetail: { AccountRef: to('Account', 'Supplies') },
      },
    ],
  }),
})

/**
 * Sample objects of sixteen kinds. Amounts are in dollars. Dates are relative to the day on which the objects are
 * created.
 */
const SAMPLE_BOOKS: readonly SampleObject[] = [
  ...named('Account', 'Name', ['Checking'], { AccountType: 'Bank' }),
  ...named('Account', 'Name', ['Sales'], { AccountType: 'Income' }),
  ...named('Account', 'Name', ['Supplies'], { AccountType: 'Expense' }),
  ...named('Class', 'Name', ['Residential', 'Commercial']),
  ...named('Department', 'Name', ['North', 'South']),
  ...named('Term', 'Name', ['Net 30'], { DueDays: 30 }),
  ...named('PaymentMethod', 'Name', ['Cash', 'Check']),
  ...['Amy Lauterbach', 'Bill Lucchini', 'Cool Cars'].flatMap((name) =>
    named('Customer', 'DisplayName', [name], { PrimaryEmailAddr: { Address: emailOf(name) } }),
  ),
  ...named('Vendor', 'DisplayName', ['Books by Bessie', 'Hicks Hardware']),
  ...named('Employee', 'DisplayName', ['Emily Platt']),
  ...named('Item', 'Name', ['Design', 'Garden care'], { Type: 'Service' }),
  sale('Invoice', 'Amy Lauterbach', 100, 239),
  sale('Invoice', 'Bill Lucchini', 40, 750),
  { ...sale('Invoice', 'Cool Cars', 5, 1_200), name: 'partly paid' },
  sale('SalesReceipt', 'Amy Lauterbach', 20, 87.5),
  sale('CreditMemo', 'Bill Lucchini', 10, 50),
  sale('Estimate', 'Cool Cars', 3, 2_100),
  expense('Bill', 'Hicks Hardware', 30, 250),
  expense('Purchase', 'Books by Bessie', 15, 75),
  {
    entity: 'Payment',
    body: (to, dateOf) => ({
      TxnDate: dateOf(2),
      CustomerRef: to('Customer', 'Cool Cars'),
      TotalAmt: 200,
      Line: [
        {
          Amount: 200,
          LinkedTxn: [{ TxnId: to('Invoice', 'partly paid')['value'], TxnType: 'Invoice' }],
        },
      ],
    }),
  },
]

const DAY_MS = 86_400_000

/**
 * Creates the sample objects of a company, and returns their number; 0 if they were created before. A sample object
 * whose name already exists is skipped. The provider does not report these objects by webhook.
 */
export function fillBooks(posted: PostedEntities, realm: string, now: Date): number {
  const isFilled = posted
    .list(realm, 'Account')
    .some(({ Name, AccountType }) => Name === 'Supplies' && AccountType === 'Expense')
  if (isFilled) return 0
  const created = new Map<string, Body>()
  const dateOf = (daysAgo: number): string =>
    new Date(now.getTime() - daysAgo * DAY_MS).toISOString().slice(0, 10)
  const keyOf = (entity: Entity, name: string): string => `${entity}/${name}`
  const referenceTo = (entity: Entity, name: string): Body =>
    created.get(keyOf(entity, name)) ?? { name }
  let count = 0
  for (const { entity, name, body } of SAMPLE_BOOKS) {
    const request = { realm, entity, requestId: null, operation: null }
    const outcome = posted.post(request, body(referenceTo, dateOf), now)
    if (outcome.kind === 'rejected') {
      if (outcome.error !== DUPLICATE_NAME) throw new Error(`sample object: ${outcome.error}`)
      continue
    }
    count += 1
    const { Id } = outcome.document[entity] as { readonly Id: string }
    if (name !== undefined) created.set(keyOf(entity, name), { value: Id, name })
  }
  return count
}

const DUPLICATE_NAME: ApiErrorCode = '6240'
