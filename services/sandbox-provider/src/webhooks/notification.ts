/** The changes of objects, and the notifications of them in both of Intuit's formats. */
import type {
  ProviderEntity,
  ProviderOperation,
} from '@integration-host/shared/contracts/provider-event'
import type { WebhookSettings } from './webhook-sender.ts'

/** One change of an object of a company. */
export interface BookChange {
  readonly realm: string
  readonly entity: ProviderEntity
  readonly id: string
  readonly operation: ProviderOperation
  /** When the object was changed, in epoch milliseconds. It equals the object's `MetaData.LastUpdatedTime`. */
  readonly changedAt: number
  /** The id of the object that a merge has merged into `id` and deleted. */
  readonly deletedId?: string
}

/**
 * Called after each change of an object, as soon as queries return the changed object. The function returns
 * immediately and never throws.
 */
export type OnChange = (change: BookChange) => void

/** A change and the id of its CloudEvent. The id is the same in every delivery of the change. */
export interface NotifiedChange extends BookChange {
  readonly eventId: string
}

/** The names of the operations in the two formats. Intuit documents neither `void` nor `voided` for CloudEvents. */
const words: Readonly<
  Record<ProviderOperation, { readonly legacy: string; readonly cloudEvent: string }>
> = {
  create: { legacy: 'Create', cloudEvent: 'created' },
  update: { legacy: 'Update', cloudEvent: 'updated' },
  delete: { legacy: 'Delete', cloudEvent: 'deleted' },
  merge: { legacy: 'Merge', cloudEvent: 'merged' },
  void: { legacy: 'Void', cloudEvent: 'void' },
  emailed: { legacy: 'Emailed', cloudEvent: 'emailed' },
}

/** Returns the content type and the body of a notification. */
export function notificationOf(
  changes: readonly NotifiedChange[],
  format: WebhookSettings['format'],
): { readonly contentType: string; readonly body: string } {
  return format === 'legacy'
    ? { contentType: 'application/json', body: JSON.stringify(legacy(changes)) }
    : {
        contentType: 'application/cloudevents+json',
        body: JSON.stringify(changes.map(cloudEvent)),
      }
}

function legacy(changes: readonly NotifiedChange[]) {
  const companies = Map.groupBy(changes, ({ realm }) => realm)
  return {
    eventNotifications: [...companies].map(([realmId, ofCompany]) => ({
      realmId,
      dataChangeEvent: {
        entities: ofCompany.map(({ entity, id, operation, changedAt, deletedId }) => ({
          name: entity,
          id,
          operation: words[operation].legacy,
          lastUpdated: new Date(changedAt).toISOString(),
          ...(deletedId !== undefined && { deletedId }),
        })),
      },
    })),
  }
}

function cloudEvent({
  eventId,
  realm,
  entity,
  id,
  operation,
  changedAt,
  deletedId,
}: NotifiedChange) {
  return {
    specversion: '1.0',
    id: eventId,
    source: 'intuit.c2FuZGJveC1wcm92aWRlcg==',
    type: `qbo.${entity.toLowerCase()}.${words[operation].cloudEvent}.v1`,
    datacontenttype: 'application/json',
    // Intuit writes times with nine fraction digits.
    time: new Date(changedAt).toISOString().replace(/Z$/, '000000Z'),
    intuitentityid: id,
    intuitaccountid: realm,
    data: deletedId === undefined ? {} : { deletedid: deletedId },
  }
}
