/**
 * The rules by which the provider rejects a change of an object that is well-formed and current.
 *
 * @see docs/intuit.md, sections "Changes of objects" and "Open": Intuit documents these rules in part only
 */
import { listEntities } from '@integration-host/shared/contracts/provider-event'
import type { ApiErrorCode } from './api-errors.ts'
import { dated, paymentsOf } from './computed.ts'
import type { Entity } from './entities.ts'
import type { Body } from './posted-entities.ts'

export interface BookRules {
  /**
   * Returns the closing date of a company's books, such as `2026-10-31`; `null` if they are open. Transactions of this
   * day and of earlier days cannot be changed by clients.
   */
  closedUntil(realm: string): string | null
  /** Whether a request that repeats a `requestid` returns the first response. If not, it is executed again. */
  playsBackRequestIds(): boolean
}

/** The rules of books that were never closed, of a provider that plays back the response to a repeated `requestid`. */
export const openBooks: BookRules = { closedUntil: () => null, playsBackRequestIds: () => true }

/** The transactions that can be voided. */
const VOIDABLE: ReadonlySet<Entity> = new Set<Entity>([
  'BillPayment',
  'CreditMemo',
  'Invoice',
  'Payment',
  'Purchase',
  'RefundReceipt',
  'SalesReceipt',
  'Transfer',
])

/** Transactions that change no account, so that the closing date does not apply to them. */
const NON_POSTING: ReadonlySet<Entity> = new Set<Entity>([
  'Estimate',
  'PurchaseOrder',
  'TimeActivity',
])

/** The operations whose rules differ. A person's edit passes the rules that QuickBooks only warns about. */
export interface RuledChange {
  readonly entity: Entity
  readonly operation: string | null
  readonly isByPerson: boolean
  /** The stored object; `null` for a creation. */
  readonly before: Body | null
  /** The object after the change; `null` for a deletion. */
  readonly after: Body | null
}

/** Returns the error of a change that the rules forbid; `null` if it is allowed. */
export function forbidden(change: RuledChange, closedUntil: string | null): ApiErrorCode | null {
  const { entity, operation, before, after, isByPerson } = change
  const isRemoval = operation === 'void' || operation === 'delete'
  if (operation === 'void' && !VOIDABLE.has(entity)) return '500'
  // Objects of lists are made inactive instead, because transactions refer to them.
  if (operation === 'delete' && listEntities.has(entity)) return '500'
  if (isByPerson) return null
  if (isRemoval && before !== null && paymentsOf(before).length > 0) return '6000'
  const isPosted = dated.has(entity) && !NON_POSTING.has(entity) && operation !== 'send'
  const isClosed = [before?.['TxnDate'], after?.['TxnDate']].some(
    (date) => closedUntil !== null && typeof date === 'string' && date <= closedUntil,
  )
  return isPosted && isClosed ? '6210' : null
}
