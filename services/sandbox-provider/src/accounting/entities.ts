/** The entities that can be posted, in Intuit's spelling. */
const ENTITIES = [
  'Account',
  'Bill',
  'BillPayment',
  'Budget',
  'Class',
  'CreditMemo',
  'Customer',
  'Department',
  'Deposit',
  'Employee',
  'Estimate',
  'Invoice',
  'Item',
  'JournalCode',
  'JournalEntry',
  'Payment',
  'PaymentMethod',
  'Purchase',
  'PurchaseOrder',
  'RefundReceipt',
  'SalesReceipt',
  'TaxAgency',
  'Term',
  'TimeActivity',
  'Transfer',
  'Vendor',
  'VendorCredit',
] as const

export type Entity = (typeof ENTITIES)[number]

/** The entity of a path (`salesreceipt`) or a query; `null` for an unknown one. */
export const entityOf = (name: string): Entity | null =>
  ENTITIES.find((entity) => entity.toLowerCase() === name.toLowerCase()) ?? null

interface NameRule {
  /** The member that no two of them share. */
  readonly member: 'DisplayName' | 'Name'
  readonly among: readonly Entity[]
}

const PEOPLE: NameRule = { member: 'DisplayName', among: ['Customer', 'Vendor', 'Employee'] }

/** Names that must differ within a company, compared without case. */
export const uniqueNames: Partial<Readonly<Record<Entity, NameRule>>> = {
  Customer: PEOPLE,
  Vendor: PEOPLE,
  Employee: PEOPLE,
  Item: { member: 'Name', among: ['Item'] },
}
