import { z } from 'zod'
import { EntityId, EntityName } from './provider-event.ts'
import { Realm } from './realm.ts'
import { ReplayID, TransactionID } from './transaction.ts'

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
