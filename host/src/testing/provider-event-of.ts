import {
  providerEntities,
  ProviderEvent,
  providerEventId,
  type ProviderOperation,
  providerOperations,
} from '@integration-host/shared/contracts/provider-event'
import { requireOneOf } from './known-members.ts'

/**
 * Returns the event that webhook-receiver publishes for a change. `namedEntities` are the entities that the processes of
 * the test name in `on`, which may be ones that this release does not know.
 *
 * @throws {TypeError} a member of the change is not valid.
 */
export function providerEventOf(
  change: {
    readonly realm: string
    readonly entity: string
    readonly id: string
    readonly operation: ProviderOperation
    readonly at: string
    readonly deletedId?: string | undefined
  },
  namedEntities: readonly string[] = [],
): ProviderEvent {
  const time = Date.parse(change.at)
  if (Number.isNaN(time)) throw new TypeError(`at must be a time in ISO 8601, not ${change.at}`)
  requireOneOf('the entity of change', change.entity, [...providerEntities, ...namedEntities])
  requireOneOf('the operation of change', change.operation, providerOperations)
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
  const checked = ProviderEvent.safeParse({ ...event, Id: providerEventId(event) })
  if (checked.success) return checked.data
  const problems = checked.error.issues.map(({ path, message }) => `${path.join('.')} ${message}`)
  throw new TypeError(`the change is not valid: ${problems.join('; ')}`)
}
