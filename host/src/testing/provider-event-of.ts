import {
  ProviderEvent,
  type ProviderEntity,
  providerEventId,
  type ProviderOperation,
} from '@integration-host/shared/contracts/provider-event'

/**
 * Returns the event that webhook-receiver publishes for a change.
 *
 * @throws {Error} a member of the change is not valid.
 */
export function providerEventOf(change: {
  readonly realm: string
  readonly entity: ProviderEntity
  readonly id: string
  readonly operation: ProviderOperation
  readonly at: string
  readonly deletedId?: string | undefined
}): ProviderEvent {
  const time = Date.parse(change.at)
  if (Number.isNaN(time)) throw new TypeError(`at must be a time in ISO 8601, not ${change.at}`)
  const event = {
    Provider: 'intuit' as const,
    Realm: change.realm,
    Entity: change.entity,
    EntityId: change.id,
    Operation: change.operation,
    ChangedAt: new Date(time).toISOString(),
    ...(change.deletedId !== undefined && { DeletedId: change.deletedId }),
    Source: 'webhook' as const,
  }
  return ProviderEvent.parse({ ...event, Id: providerEventId(event) })
}
