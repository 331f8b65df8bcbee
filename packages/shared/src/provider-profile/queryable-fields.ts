/**
 * The fields of the accounting API by whose value an object can be found with a query, and which a client may choose: the
 * marks of `step.createOnce`. The number is the maximum of characters. An entity that is missing here has no such field.
 *
 * @see docs/intuit.md, section "Marks", for the sources
 */
const DocNumber = { DocNumber: 21 } as const
const DisplayName = { DisplayName: 500 } as const

export const queryableFields = {
  Account: { Name: 100 },
  Bill: DocNumber,
  BillPayment: DocNumber,
  CreditMemo: DocNumber,
  Customer: DisplayName,
  Deposit: DocNumber,
  Employee: DisplayName,
  Estimate: DocNumber,
  Invoice: DocNumber,
  Item: { Name: 100 },
  JournalEntry: DocNumber,
  Payment: { PaymentRefNum: 21 },
  Purchase: DocNumber,
  PurchaseOrder: DocNumber,
  RefundReceipt: DocNumber,
  SalesReceipt: DocNumber,
  Term: { Name: 31 },
  Vendor: DisplayName,
  VendorCredit: DocNumber,
} as const satisfies Readonly<Record<string, Readonly<Record<string, number>>>>

/** An entity whose objects `createOnce` can create. */
export type MarkedEntity = keyof typeof queryableFields
/** A field that can be the mark of objects of an entity. */
export type MarkField<Entity extends MarkedEntity> = keyof (typeof queryableFields)[Entity] & string
