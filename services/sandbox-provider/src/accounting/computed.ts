/**
 * The members that the provider computes when it stores an object: dates, numbers, totals and open balances. What a
 * client sends for a computed member is ignored, with one exception: Intuit rejects a transaction without lines, and
 * this sandbox stores it with the `TotalAmt` that the client sends.
 *
 * @see docs/intuit.md, section "Computed members"
 */
import { listEntities } from '@integration-host/shared/contracts/provider-event'
import { asObject } from '@integration-host/shared/json'
import { type Entity, entityOf } from './entities.ts'
import type { Body, Changed } from './posted-entities.ts'

/** The forms of a sale. The provider numbers them and appends a line with their subtotal. */
export const sales: ReadonlySet<Entity> = new Set<Entity>([
  'Invoice',
  'SalesReceipt',
  'CreditMemo',
  'Estimate',
  'RefundReceipt',
])
const TOTALLED = new Set<Entity>([
  ...sales,
  'Bill',
  'Deposit',
  'Purchase',
  'PurchaseOrder',
  'VendorCredit',
])
/** The kinds of transactions. They have a `TxnDate`. */
export const dated: ReadonlySet<Entity> = new Set<Entity>([
  ...TOTALLED,
  'BillPayment',
  'JournalEntry',
  'Payment',
  'TimeActivity',
  'Transfer',
])

/** The days from the date of a transaction to its due date, unless it names a `Term`. */
const DUE_DAYS: Partial<Readonly<Record<Entity, number>>> = { Invoice: 30, Bill: 0 }

/** The kinds of transactions that payments settle. They have a `Balance`. */
const SETTLED: Partial<Readonly<Record<Entity, readonly Entity[]>>> = {
  Payment: ['Invoice', 'CreditMemo'],
  BillPayment: ['Bill', 'VendorCredit'],
}
const OPEN = new Set(Object.values(SETTLED).flat())

/** What the computation of an object depends on. */
export interface Context {
  readonly now: Date
  /** The stored version of the object; empty for a new object. */
  readonly previous: Body
  /** Returns another object of the company. */
  readonly find: (entity: Entity, id: unknown) => Body | null
  /** Returns the next number for a sale of the company. */
  readonly nextNumber: () => string
}

/** Returns an object with the members that the provider computes. A number and a date that it has assigned are kept. */
export function withComputed(entity: Entity, given: Body, context: Context): Body {
  if (listEntities.has(entity)) return { Active: true, ...given }
  if (!dated.has(entity)) return given
  const { now, previous, find, nextNumber } = context
  const kept = (member: string): string | null => textOf(given[member]) ?? textOf(previous[member])
  const TxnDate = kept('TxnDate') ?? now.toISOString().slice(0, 10)
  const content: Body = {
    CurrencyRef: { value: 'USD', name: 'United States Dollar' },
    ...given,
    TxnDate,
    ...named('CustomerRef', 'Customer', given, context),
    ...named('VendorRef', 'Vendor', given, context),
    ...(sales.has(entity) && { DocNumber: kept('DocNumber') ?? nextNumber() }),
    ...(DUE_DAYS[entity] !== undefined && {
      DueDate: textOf(given['DueDate']) ?? dueDate(entity, TxnDate, given, context),
    }),
    ...(TOTALLED.has(entity) && totalled(sales.has(entity), given)),
    ...(OPEN.has(entity) && {
      LinkedTxn: [
        ...listOf(given['LinkedTxn']).filter((link) => paymentOf(link) === null),
        ...listOf(previous['LinkedTxn']).filter((link) => paymentOf(link) !== null),
      ],
    }),
  }
  return withBalance(entity, content, find)
}

/** Returns a transaction after a payment of it was changed; `isSettled` is false if the payment no longer settles it. */
export function afterPayment(
  { entity, content }: { readonly entity: Entity; readonly content: Body },
  payment: { readonly entity: Entity; readonly content: Body; readonly isSettled: boolean },
  find: Context['find'],
): Body {
  const { Id: TxnId, PayType } = payment.content
  const links = listOf(content['LinkedTxn']).filter((link) => link['TxnId'] !== TxnId)
  const TxnType =
    payment.entity === 'Payment' ? 'Payment' : `BillPayment${textOf(PayType) ?? 'Check'}`
  const LinkedTxn = payment.isSettled ? [...links, { TxnId, TxnType }] : links
  return withBalance(entity, { ...content, LinkedTxn }, find)
}

/** Returns an object with its open amount, if it is a payment or a transaction that payments settle. */
function withBalance(entity: Entity, content: Body, find: Context['find']): Body {
  if (OPEN.has(entity)) {
    const applied = listOf(content['LinkedTxn']).flatMap((link) => {
      const payment = paymentOf(link)
      return payment === null ? [] : linksOf(payment, find(payment, link['TxnId']) ?? {})
    })
    const amounts = applied.filter(({ id }) => id === content['Id']).map(({ amount }) => amount)
    return {
      ...content,
      Balance: Math.max(0, cents(amountOf(content['TotalAmt']) - total(amounts))),
    }
  }
  if (entity !== 'Payment') return content
  const applied = linksOf(entity, content).map((link) =>
    link.entity === 'Invoice' ? link.amount : -link.amount,
  )
  return { ...content, UnappliedAmt: cents(amountOf(content['TotalAmt']) - total(applied)) }
}

/** A transaction that a payment settles in whole or in part. */
export interface Link {
  readonly entity: Entity
  readonly id: string
  readonly amount: number
}

/** Returns the transactions that a payment settles. Other objects settle none. */
export function linksOf(entity: Entity, content: Body): readonly Link[] {
  const settled = SETTLED[entity] ?? []
  return listOf(content['Line']).flatMap((line) => {
    const [link] = listOf(line['LinkedTxn'])
    const amount = amountOf(line['Amount'])
    const to = settled.find((kind) => kind === entityOf(String(link?.['TxnType'])))
    return to === undefined || amount === 0
      ? []
      : [{ entity: to, id: String(link?.['TxnId']), amount }]
  })
}

/** Returns the kind of the payment to which a transaction is linked; `null` if the link is to another transaction. */
function paymentOf({ TxnType }: Body): 'Payment' | 'BillPayment' | null {
  if (TxnType === 'Payment') return TxnType
  return String(TxnType).startsWith('BillPayment') ? 'BillPayment' : null
}

/** Returns the payments of a transaction. */
export const paymentsOf = (content: Body): readonly Changed[] =>
  listOf(content['LinkedTxn']).flatMap((link) => {
    const entity = paymentOf(link)
    return entity === null ? [] : [{ entity, id: String(link['TxnId']) }]
  })

/** Returns a payment that no longer settles a transaction, because that transaction was voided or deleted. */
export const withoutLinkTo = (payment: Body, { entity, id }: Changed): Body => ({
  ...payment,
  Line: listOf(payment['Line']).filter((line) => {
    const [link] = listOf(line['LinkedTxn'])
    return link?.['TxnId'] !== id || entityOf(String(link['TxnType'])) !== entity
  }),
})

/** By which member, and in which direction, a transaction changes what its customer owes or its vendor is owed. */
const OWED: readonly (readonly [Entity, 'CustomerRef' | 'VendorRef', string, 1 | -1])[] = [
  ['Invoice', 'CustomerRef', 'Balance', 1],
  ['CreditMemo', 'CustomerRef', 'Balance', -1],
  ['Payment', 'CustomerRef', 'UnappliedAmt', -1],
  ['Bill', 'VendorRef', 'Balance', 1],
  ['VendorCredit', 'VendorRef', 'Balance', -1],
]

/** Returns the open balances of customers and vendors by id; `list` returns the transactions of the company. */
export function balancesOf(list: (entity: Entity) => readonly Body[]): ReadonlyMap<string, number> {
  const balances = new Map<string, number>()
  for (const [entity, party, member, sign] of OWED)
    for (const one of list(entity)) {
      const id = String(asObject(one[party])?.['value'])
      balances.set(id, cents((balances.get(id) ?? 0) + sign * amountOf(one[member])))
    }
  return balances
}

/**
 * Returns a transaction after it was voided: its amounts are zero, its lines remain, it settles nothing, and `Voided`
 * stands before its `PrivateNote`.
 */
export function voided(content: Body): Body {
  const note = textOf(content['PrivateNote']) ?? ''
  return {
    ...content,
    ...(Array.isArray(content['Line']) && {
      Line: listOf(content['Line']).map((line) => ({ ...line, Amount: 0 })),
    }),
    ...(content['TxnTaxDetail'] !== undefined && { TxnTaxDetail: { TotalTax: 0 } }),
    TotalAmt: 0,
    PrivateNote: note === '' ? 'Voided' : `Voided - ${note}`,
  }
}

/** Returns the lines of a transaction, with their ids and the line of the subtotal, and their total. */
function totalled(hasSubtotal: boolean, given: Body): Body {
  const lines = listOf(given['Line']).filter(
    ({ DetailType }) => DetailType !== 'SubTotalLineDetail',
  )
  if (lines.length === 0) return { TotalAmt: amountOf(given['TotalAmt']) }
  const isDiscount = ({ DetailType }: Body): boolean => DetailType === 'DiscountLineDetail'
  const subtotal = total(
    lines.filter((line) => !isDiscount(line)).map(({ Amount }) => amountOf(Amount)),
  )
  const Line = lines.map((line, index) => {
    const { PercentBased, DiscountPercent } = asObject(line['DiscountLineDetail']) ?? {}
    return {
      ...(!isDiscount(line) && { Id: String(index + 1), LineNum: index + 1 }),
      ...line,
      ...(PercentBased === true && { Amount: cents((subtotal * amountOf(DiscountPercent)) / 100) }),
    }
  })
  const discount = total(Line.filter(isDiscount).map(({ Amount }) => amountOf(Amount)))
  const isTaxIncluded = given['GlobalTaxCalculation'] === 'TaxInclusive'
  const tax = isTaxIncluded ? 0 : amountOf(asObject(given['TxnTaxDetail'])?.['TotalTax'])
  return {
    Line: hasSubtotal
      ? [...Line, { Amount: subtotal, DetailType: 'SubTotalLineDetail', SubTotalLineDetail: {} }]
      : Line,
    TotalAmt: cents(subtotal - discount + tax),
  }
}

const DAY_MS = 86_400_000

function dueDate(entity: Entity, txnDate: string, given: Body, { find }: Context): string {
  const term = find('Term', asObject(given['SalesTermRef'])?.['value'])
  const days = term === null ? (DUE_DAYS[entity] ?? 0) : amountOf(term['DueDays'])
  const at = new Date(Date.parse(txnDate) + days * DAY_MS)
  return Number.isNaN(at.getTime()) ? txnDate : at.toISOString().slice(0, 10)
}

/** Returns a reference with the name of the object to which it refers. */
function named(member: string, entity: Entity, given: Body, { find }: Context): Body {
  const reference = asObject(given[member])
  const name = find(entity, reference?.['value'])?.['DisplayName']
  return name === undefined ? {} : { [member]: { ...reference, name } }
}

const listOf = (value: unknown): readonly Body[] =>
  Array.isArray(value) ? value.map((one: unknown) => asObject(one) ?? {}) : []
const textOf = (value: unknown): string | null =>
  typeof value === 'string' && value !== '' ? value : null
/** Returns a number, which clients may also send as a string. Anything else counts as zero. */
const amountOf = (value: unknown): number => {
  const amount = typeof value === 'string' ? Number(value) : value
  return typeof amount === 'number' && Number.isFinite(amount) ? amount : 0
}
const cents = (amount: number): number => Math.round(amount * 100) / 100
const total = (amounts: readonly number[]): number =>
  cents(amounts.reduce((sum, one) => sum + one, 0))
