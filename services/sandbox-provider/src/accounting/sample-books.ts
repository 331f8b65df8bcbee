/** The sample objects of a company, in the order in which they are created. */
import type { Entity } from './entities.ts'
import type { Body } from './posted-entities.ts'

/** Returns a reference to a sample object that was created before. */
export type ReferenceTo = (entity: Entity, name: string) => Body

export interface SampleObject {
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
    Line: [line(to, amount > 500 ? 'Design' : 'Garden care', amount)],
    TotalAmt: amount,
    ...(entity === 'Invoice' && { DueDate: dateOf(daysAgo - 30), Balance: amount }),
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
    TotalAmt: amount,
  }),
})

/**
 * Sample objects of sixteen kinds. Amounts are in dollars. Dates are relative to the day on which the objects are
 * created.
 */
export const SAMPLE_BOOKS: readonly SampleObject[] = [
  ...named('Account', 'Name', ['Checking'], { AccountType: 'Bank' }),
  ...named('Account', 'Name', ['Sales'], { AccountType: 'Income' }),
  ...named('Account', 'Name', ['Supplies'], { AccountType: 'Expense' }),
  ...named('Class', 'Name', ['Residential', 'Commercial']),
  ...named('Department', 'Name', ['North', 'South']),
  ...named('Term', 'Name', ['Net 30'], { DueDays: 30 }),
  ...named('PaymentMethod', 'Name', ['Cash', 'Check']),
  ...named('Customer', 'DisplayName', ['Amy Lauterbach', 'Bill Lucchini', 'Cool Cars']),
  ...named('Vendor', 'DisplayName', ['Books by Bessie', 'Hicks Hardware']),
  ...named('Employee', 'DisplayName', ['Emily Platt']),
  ...named('Item', 'Name', ['Design', 'Garden care'], { Type: 'Service' }),
  sale('Invoice', 'Amy Lauterbach', 100, 239),
  sale('Invoice', 'Bill Lucchini', 40, 750),
  sale('Invoice', 'Cool Cars', 5, 1_200),
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
    }),
  },
]
