import {
  type ProviderEntity,
  type ProviderEvent,
  providerEventId,
  type ProviderOperation,
} from '@integration-host/shared/contracts/provider-event'
import type { ReadObject } from './feed-document.ts'

/** The operations that can be recognized from the objects of the change feed. */
export const FEED_OPERATIONS = [
  'create',
  'update',
  'delete',
] as const satisfies readonly ProviderOperation[]

const second = (ms: number): number => Math.floor(ms / 1_000)

/**
 * Returns the events of an object that was changed at or after `since` (epoch ms). Each event has the same id as the
 * event of the webhook about the same change. The provider returns only the last update of an object. An update within
 * the same second as the creation is treated as part of the creation.
 */
export function eventsOf(realm: string, object: ReadObject, since: number): ProviderEvent[] {
  const { entity, id, createdAt, changedAt, isDeleted } = object
  const event = (operation: ProviderOperation, at: number): ProviderEvent =>
    eventOf({ realm, entity, id, operation, at })
  if (isDeleted) return [event('delete', changedAt)]
  const isNew = createdAt !== null && second(createdAt) >= second(since)
  const isUpdated = createdAt === null || second(changedAt) > second(createdAt)
  return [
    ...(isNew ? [event('create', createdAt)] : []),
    ...(isUpdated ? [event('update', changedAt)] : []),
  ]
}

function eventOf(change: {
  readonly realm: string
  readonly entity: ProviderEntity
  readonly id: string
  readonly operation: ProviderOperation
  readonly at: number
}): ProviderEvent {
  const event = {
    Provider: 'intuit',
    Realm: change.realm,
    Entity: change.entity,
    EntityId: change.id,
    Operation: change.operation,
    ChangedAt: new Date(change.at).toISOString(),
    Source: 'change-feed',
  } as const
  return { Id: providerEventId(event), ...event }
}
