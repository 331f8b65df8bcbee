import {
  EntityName,
  ProviderEvent,
  providerEntities,
  type ProviderEntity,
  providerEventId,
  type ProviderOperation,
  ReportedEntityId,
} from '@integration-host/shared/contracts/provider-event'
import { Realm } from '@integration-host/shared/contracts/realm'

/** A change of a notification before validation. Both notification formats are mapped to these members. */
export interface ReportedChange {
  readonly realm: unknown
  readonly entity: unknown
  readonly id: unknown
  readonly operation: unknown
  readonly changedAt: unknown
  readonly deletedId: unknown
}

/** The reasons why a change of a notification is not published. */
export const ignoredReasons = [
  'malformed',
  'unknown_entity',
  'unknown_operation',
  'realm_unusable',
  'id_unusable',
  'time_unusable',
] as const
export type IgnoredReason = (typeof ignoredReasons)[number]

/** A change that is not published. It is logged, so it contains only well-formed ids and names. */
export interface IgnoredChange {
  readonly reason: IgnoredReason
  readonly entity: string | null
  readonly realm: string | null
  readonly entityId: string | null
}

export type CheckedChange =
  | { readonly kind: 'event'; readonly event: ProviderEvent }
  | { readonly kind: 'ignored'; readonly change: IgnoredChange }

/** Maps the lower-case name of an entity, as the CloudEvents format spells it, to the entity. */
const entities: ReadonlyMap<unknown, ProviderEntity> = new Map(
  providerEntities.map((entity) => [entity.toLowerCase(), entity]),
)

/** Maps the lower-case name of an operation in either format to the operation. */
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

/** Returns whether the provider has added an entity that this release does not know. */
export const isUnknownEntity = (entity: string): boolean => !entities.has(entity.toLowerCase())

/** Returns the event for a reported change, or the first reason why the change cannot be published. */
export function checkChange(change: ReportedChange): CheckedChange {
  const realm = Realm.safeParse(change.realm).data ?? null
  const entityId = ReportedEntityId.safeParse(change.id).data ?? null
  // An unknown entity is passed on under the name that the provider gives it.
  const entity =
    entities.get(lowerCase(change.entity)) ?? EntityName.safeParse(change.entity).data ?? null
  const ignored = (reason: IgnoredReason): CheckedChange => ({
    kind: 'ignored',
    change: { reason, entity, realm, entityId },
  })
  if (entity === null) return ignored('unknown_entity')
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
    ...(operation === 'merge' &&
      change.deletedId !== undefined && {
        DeletedId: ReportedEntityId.safeParse(change.deletedId).data ?? null,
      }),
    Source: 'webhook',
  } satisfies Record<keyof Omit<ProviderEvent, 'DeletedId'>, unknown>)
  // All members were validated above but `DeletedId` and the length of the id.
  return checked.success ? { kind: 'event', event: checked.data } : ignored('id_unusable')
}

const lowerCase = (text: unknown): unknown => (typeof text === 'string' ? text.toLowerCase() : text)

/**
 * Matches an RFC 3339 date and time with up to 12 fraction digits. The colon in the offset is optional, because
 * notifications in the legacy format omit it.
 */
const TIME = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,12}))?(Z|[+-]\d\d:?\d\d)$/i

/**
 * Parses the time in a notification. Returns it in UTC with milliseconds, such as `2026-11-23T17:05:09.179Z`; `null` if
 * the text is not a time. Intuit sends two forms: `2026-11-23T17:05:25.179851517Z` and `2015-10-05T14:42:19-0700`.
 */
function parseChangeTime(text: unknown): string | null {
  const [, second = '', fraction = '', offset = ''] =
    (typeof text === 'string' && TIME.exec(text)) || []
  if (second === '') return null
  const zone = offset.length === 5 ? `${offset.slice(0, 3)}:${offset.slice(3)}` : offset
  const time = new Date(`${second}.${fraction.slice(0, 3).padEnd(3, '0')}${zone}`.toUpperCase())
  return Number.isNaN(time.getTime()) ? null : time.toISOString()
}
