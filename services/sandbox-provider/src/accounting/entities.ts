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

/** Returns the entity that a path (`salesreceipt`) or a query names; `null` if the sandbox does not know it. */
export const entityOf = (name: string): Entity | null =>
  ENTITIES.find((entity) => entity.toLowerCase() === name.toLowerCase()) ?? null

interface NameRule {
  /** The member whose value must be unique among the entities of the kinds in `among`. */
  readonly member: 'DisplayName' | 'Name'
  readonly among: readonly Entity[]
}

const PEOPLE: NameRule = { member: 'DisplayName', among: ['Customer', 'Vendor', 'Employee'] }

/** The uniqueness rules for names within a company. Names are compared without case. */
export const uniqueNames: Partial<Readonly<Record<Entity, NameRule>>> = {
  Customer: PEOPLE,
  Vendor: PEOPLE,
  Employee: PEOPLE,
  Item: { member: 'Name', among: ['Item'] },
}
