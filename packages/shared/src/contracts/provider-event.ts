import { z } from 'zod'
import { Realm } from './realm.ts'
import { ReplayID, TransactionID } from './transaction.ts'

/**
 * Topic exchange of the changes in the books of companies; the routing key is `<provider>.<entity>.<operation>`, for
 * example `intuit.Invoice.update`. The webhook receiver and the change feed publish to this exchange.
 */
export const PROVIDER_EXCHANGE = 'integration.provider'

/** Returns the name of the queue whose events start runs of a business process, such as `on.InvoiceExport`. */
export const onQueue = (process: string): string => `on.${process}`
/** Returns the name of the queue whose events may end the waits of runs of a business process: `changes.<Process>`. */
export const changesQueue = (process: string): string => `changes.${process}`

/**
 * The entities whose changes Intuit reports by webhook, in the spelling of its API.
 *
 * @see https://developer.intuit.com/app/developer/qbo/docs/develop/webhooks
 */
export const providerEntities = [
  'Account',
  'Bill',
  'BillPayment',
  'Budget',
  'ChangeOrder',
  'Class',
  'CompanyCurrency',
  'CreditMemo',
  'Currency',
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
  'Preferences',
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
export type ProviderEntity = (typeof providerEntities)[number]

/**
 * The entities whose objects are members of lists. They cannot be deleted, because transactions refer to them, but can be
 * inactive; a query returns inactive objects only on request.
 */
export const listEntities: ReadonlySet<string> = new Set<ProviderEntity>([
  'Account',
  'Class',
  'Customer',
  'Department',
  'Employee',
  'Item',
  'PaymentMethod',
  'Term',
  'Vendor',
])

/**
 * The name of an entity. An entity that is not in {@link providerEntities} keeps the name that the provider gives it: the
 * provider may add one at any time.
 */
export const EntityName = z
  .string()
  .regex(/^[A-Za-z][A-Za-z0-9]{0,39}$/, 'must be 1-40 letters and digits, beginning with a letter')

/** Maps the operations of both webhook formats to one spelling. */
export const providerOperations = [
  'create',
  'update',
  'delete',
  'merge',
  'void',
  'emailed',
] as const
export type ProviderOperation = (typeof providerOperations)[number]

/** The id of an object in the company's books, for example `129` for an invoice. */
export const EntityId = z.string().regex(/^[!-~]{1,20}$/, 'must be 1-20 visible ASCII characters')

/**
 * An id as it is accepted from the provider. It consists of characters that have no meaning in a path or a query (RFC
 * 3986 §2.3, and `:`), and is not a dot segment, because a process builds addresses from it. `EntityId` is wider,
 * because messages of earlier releases have to stay readable.
 */
export const ReportedEntityId = z
  .string()
  .regex(/^(?!\.{1,2}$)[\w.~:-]{1,20}$/, 'must be 1-20 letters, digits, - . _ ~ or :')

/** The body of a provider event. It contains names and ids only, and no business data. */
export const ProviderEvent = z.object({
  /** The id of the change; see {@link providerEventId}. It is also the message id. */
  Id: z.string().min(1).max(128),
  Provider: z.literal('intuit'),
  Realm,
  Entity: EntityName,
  EntityId,
  Operation: z.enum(providerOperations),
  /** The time at which the object was changed, as the provider reports it. */
  ChangedAt: z.iso.datetime(),
  /** For a merge: the id of the object that was merged into `EntityId` and deleted. */
  DeletedId: EntityId.optional(),
  /**
   * How the change became known. `webhook`: the provider sent a webhook. `change-feed`: the service read the change
   * feed of the provider.
   */
  Source: z.enum(['webhook', 'change-feed']),
})
export type ProviderEvent = z.output<typeof ProviderEvent>

/** Returns the routing key of an event, for example `intuit.Invoice.update`. */
export const providerRoutingKey = (
  event: Pick<ProviderEvent, 'Provider' | 'Entity' | 'Operation'>,
): string => `${event.Provider}.${event.Entity}.${event.Operation}`

/**
 * Returns the id of a change, for example `Invoice-129@2026-11-23T17:05:09Z/9341453908059889`. All deliveries of the
 * same change have the same id, in each webhook format and in the change feed.
 *
 * The time is cut to the second, because the CloudEvents format has fractions of a second and the change feed has none.
 * The id contains `:deleted` for a deletion and otherwise no operation, because the change feed does not distinguish
 * the other operations. An id has at most 128 characters, as a `TransactionID` has.
 */
export function providerEventId(
  event: Pick<ProviderEvent, 'Realm' | 'Entity' | 'EntityId' | 'Operation' | 'ChangedAt'>,
): string {
  const second = `${new Date(event.ChangedAt).toISOString().slice(0, 19)}Z`
  const deleted = event.Operation === 'delete' ? ':deleted' : ''
  return `${event.Entity}-${event.EntityId}${deleted}@${second}/${event.Realm}`
}

/** The routing keys of all provider events. */
export const providerRoutingKeys: readonly string[] = providerEntities.flatMap((Entity) =>
  providerOperations.map((Operation) =>
    providerRoutingKey({ Provider: 'intuit', Entity, Operation }),
  ),
)

/** What has become of an object that a run has written. A voided object is `changed`. */
export const entryEventKinds = ['changed', 'deleted', 'missing'] as const
export type EntryEventKind = (typeof entryEventKinds)[number]

/** Returns the name of the queue whose events start runs of a business process, such as `entries.InvoiceExport`. */
export const entriesQueue = (process: string): string => `entries.${process}`

/**
 * The body of the event that an object, which a run has written to the books of a company, was changed from outside or
 * is gone. It contains names and ids only, and no business data.
 */
export const EntryEvent = z.object({
  /** The id of the change; see {@link entryEventId}. It is also the message id. */
  Id: z.string().min(1).max(128),
  Realm,
  Entity: EntityName,
  EntityID: EntityId,
  Kind: z.enum(entryEventKinds),
  /** The state of the entry: `ChangedOutside`, `Voided`, `Deleted` or `Missing`. */
  State: z.string(),
  /** The paths of the first 100 written fields that were changed. */
  Changed: z.array(z.string()).readonly(),
  /** The time of the change, as the provider reports it; of a missing object the time at which it was recorded. */
  At: z.iso.datetime(),
  /** The entry, and the run that has written the object last. */
  EntryID: z.string(),
  Process: z.string(),
  TransactionID,
  ReplayID,
  StepName: z.string(),
})
export type EntryEvent = z.output<typeof EntryEvent>

/** Returns the routing key of an event on the exchange of provider events, for example `entry.Invoice.deleted`. */
export const entryRoutingKey = ({ Entity, Kind }: Pick<EntryEvent, 'Entity' | 'Kind'>): string =>
  `entry.${Entity}.${Kind}`

/** Returns the id of a change, for example `entry-Invoice-129:deleted@2026-11-23T17:05:09Z/9341453908059889`. */
export function entryEventId(
  event: Pick<EntryEvent, 'Realm' | 'Entity' | 'EntityID' | 'Kind' | 'At'>,
): string {
  const second = `${new Date(event.At).toISOString().slice(0, 19)}Z`
  return `entry-${event.Entity}-${event.EntityID}:${event.Kind}@${second}/${event.Realm}`.slice(
    0,
    128,
  )
}
