/** Decides whether an object that a run has created may be taken back, and how. */
import { listEntities } from '@integration-host/shared/contracts/provider-event'
import { asObject } from '@integration-host/shared/json'
import type { EntryRow } from '../entry/book-entry.ts'
import { type BookObject, LINKING_ENTITIES } from '../step/change-place.ts'

/** Transactions can be deleted. */
const TRANSACTIONS: ReadonlySet<string> = new Set([
  'Bill',
  'BillPayment',
  'CreditMemo',
  'Deposit',
  'Estimate',
  'Invoice',
  'JournalEntry',
  'Payment',
  'Purchase',
  'PurchaseOrder',
  'RefundReceipt',
  'SalesReceipt',
  'TimeActivity',
  'Transfer',
  'VendorCredit',
])
/** Transactions to which the closing date does not apply, because they change no account. */
const NON_POSTING: ReadonlySet<string> = new Set(['Estimate', 'PurchaseOrder', 'TimeActivity'])
/** The names of transactions in links that differ from the names of their entities. */
const LINKED_AS: Readonly<Record<string, string>> = {
  BillPaymentCheck: 'BillPayment',
  BillPaymentCreditCard: 'BillPayment',
  CashPurchase: 'Purchase',
  Check: 'Purchase',
  CreditCardCharge: 'Purchase',
}

const PAYMENTS: ReadonlySet<string> = new Set(['Payment', 'BillPayment'])

export type RemovalKind = 'delete' | 'inactivate'

/** Why an object is left as it is. */
export type LeftReason =
  | 'books_closed'
  | 'changed_outside'
  | 'gone'
  | 'linked'
  | 'not_supported'
  | 'paid'
  | 'run_active'
  | 'run_in_doubt'
  | 'unproven'

export interface Left {
  readonly reason: LeftReason
  /** The fields that were changed outside. */
  readonly fields?: readonly string[]
}

/** How objects of an entity are taken back; `null` if they cannot be. */
export const removalOf = (entity: string): RemovalKind | null =>
  TRANSACTIONS.has(entity) ? 'delete' : listEntities.has(entity) ? 'inactivate' : null

/** Whether objects of an entity are applied to others, so that they are taken back before these. */
export const isApplied = (entity: string): boolean =>
  (LINKING_ENTITIES as readonly string[]).includes(entity)

/** Returns why the object cannot be taken back, as far as the object and its newest entry show it; `null` if it can be. */
export function leftReason(
  newest: Pick<EntryRow, 'Entity' | 'Fields' | 'SyncToken'>,
  object: BookObject,
  /** The changed fields of the entry; `null` if it cannot be compared. */
  changed: readonly string[] | null,
  closedUntil: string | null,
): Left | null {
  if (object['Active'] === false) return { reason: 'gone' }
  if (changed !== null && changed.length > 0) return { reason: 'changed_outside', fields: changed }
  const isUntouched = newest.SyncToken !== null && object['SyncToken'] === newest.SyncToken
  const hasFields = Object.keys(newest.Fields ?? {}).length > 0
  if (!isUntouched && (changed === null || !hasFields)) return { reason: 'unproven' }
  const date = object['TxnDate']
  const isPosted = TRANSACTIONS.has(newest.Entity) && !NON_POSTING.has(newest.Entity)
  if (isPosted && closedUntil !== null && typeof date === 'string' && date <= closedUntil)
    return { reason: 'books_closed' }
  return null
}

/** Whether an amount was applied to an invoice or bill. */
export function isPaid({ Balance, TotalAmt }: BookObject): boolean {
  return typeof Balance === 'number' && typeof TotalAmt === 'number' && Balance !== TotalAmt
}

/**
 * Returns the objects that are linked to an object and may have to be taken back before it, such as the payments of an
 * invoice. Of an object that is applied to others, these are only the payments that use it.
 */
export function linksTo(
  entity: string,
  { LinkedTxn }: BookObject,
): { readonly entity: string; readonly id: string }[] {
  if (!Array.isArray(LinkedTxn)) return []
  return (LinkedTxn as readonly unknown[]).flatMap((link) => {
    const { TxnId: id, TxnType: type } = asObject(link) ?? {}
    if (typeof id !== 'string' || typeof type !== 'string') return []
    const other = LINKED_AS[type] ?? type
    return isApplied(entity) && !PAYMENTS.has(other) ? [] : [{ entity: other, id }]
  })
}
