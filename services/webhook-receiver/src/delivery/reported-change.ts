import {
  EntityId,
  ProviderEvent,
  providerEntities,
  type ProviderEntity,
  providerEventId,
  type ProviderOperation,
} from '@integration-host/shared/contracts/provider-event'
import { Realm } from '@integration-host/shared/contracts/realm'
import { parseChangeTime } from './change-time.ts'

/** One change as a notification reports it, with the members of both formats under one name. Nothing is checked yet. */
export interface ReportedChange {
  readonly realm: unknown
  readonly entity: unknown
  readonly id: unknown
  readonly operation: unknown
  readonly changedAt: unknown
  readonly deletedId: unknown
}

/** Why a change of a notification is not published. */
export const ignoredReasons = [
  'malformed',
  'unknown_entity',
  'unknown_operation',
  'realm_unusable',
  'id_unusable',
  'time_unusable',
] as const
export type IgnoredReason = (typeof ignoredReasons)[number]

/** A change that is not published. It has only the ids that are well-formed, so that it can be logged. */
export interface IgnoredChange {
  readonly reason: IgnoredReason
  readonly realm: string | null
  readonly entityId: string | null
}

export type CheckedChange =
  | { readonly kind: 'event'; readonly event: ProviderEvent }
  | { readonly kind: 'ignored'; readonly change: IgnoredChange }

/** The entities by their name in lower case, which the CloudEvents format uses. */
const entities: ReadonlyMap<unknown, ProviderEntity> = new Map(
  providerEntities.map((entity) => [entity.toLowerCase(), entity]),
)

/** The operations in the spellings of both formats, in lower case. */
const operations: ReadonlyMap<unknown, ProviderOperation> = new Map([
  ['create', 'create'],
  ['created', 'create'],
  ['update', 'update'],
  ['updated', 'update'],
  ['delete', 'delete'],
  ['deleted', 'delete'],
  ['merge', 'merge'],
  ['merged', 'merge'],
  ['void', 'void'],
  ['voided', 'void'],
  ['emailed', 'emailed'],
])

/** Returns the event of a reported change, or the first reason why it cannot be published. */
export function checkChange(change: ReportedChange): CheckedChange {
  const realm = Realm.safeParse(change.realm).data ?? null
  const entityId = EntityId.safeParse(change.id).data ?? null
  const ignored = (reason: IgnoredReason): CheckedChange => ({
    kind: 'ignored',
    change: { reason, realm, entityId },
  })
  const entity = entities.get(lowerCase(change.entity))
  if (entity === undefined) return ignored('unknown_entity')
  const operation = operations.get(lowerCase(change.operation))
  if (operation === undefined) return ignored('unknown_operation')
  if (realm === null) return ignored('realm_unusable')
  if (entityId === null) return ignored('id_unusable')
  const changedAt = parseChangeTime(change.changedAt)
  if (changedAt === null) return ignored('time_unusable')
  const named = {
    Realm: realm,
    Entity: entity,
    EntityId: entityId,
    Operation: operation,
    ChangedAt: changedAt,
  } as const
  const checked = ProviderEvent.safeParse({
    Id: providerEventId(named),
    Provider: 'intuit',
    ...named,
    ...(operation === 'merge' && change.deletedId !== undefined && { DeletedId: change.deletedId }),
    Source: 'webhook',
  } satisfies Record<keyof Omit<ProviderEvent, 'DeletedId'>, unknown>)
  // All members except DeletedId were checked above, so only DeletedId can be invalid here.
  return checked.success ? { kind: 'event', event: checked.data } : ignored('id_unusable')
}

const lowerCase = (text: unknown): unknown => (typeof text === 'string' ? text.toLowerCase() : text)
