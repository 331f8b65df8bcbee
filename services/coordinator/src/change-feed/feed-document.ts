/**
 * The documents in the responses of the provider's change feed and of its queries.
 *
 * @see https://developer.intuit.com/app/developer/qbo/docs/learn/explore-the-quickbooks-online-api/change-data-capture
 */
import {
  providerEntities,
  type ProviderEntity,
  type ProviderEvent,
  providerEventId,
  type ProviderOperation,
  ReportedEntityId,
} from '@integration-host/shared/contracts/provider-event'
import { asObject, DOCUMENT_LIMITS, parseJson } from '@integration-host/shared/json'
import { z } from 'zod'

/** An object of the books as the change feed or a query returns it. */
export interface ReadObject {
  readonly entity: ProviderEntity
  readonly id: string
  /** When the object was created, epoch ms; `null` if it is deleted, or if the provider does not say. */
  readonly createdAt: number | null
  /** The time at which the object was last changed or deleted, epoch ms. */
  readonly changedAt: number
  readonly isDeleted: boolean
  /** The whole object. Of a deleted one, only its id and status. */
  readonly content: Readonly<Record<string, unknown>>
}

export interface FeedDocument {
  readonly objects: readonly ReadObject[]
  /** The number of objects in the document, including those that cannot be read. */
  readonly count: number
  /** The provider's time of the response in epoch ms; `null` if the document contains no time. */
  readonly at: number | null
}

const time = z.iso.datetime({ offset: true }).transform((text) => Date.parse(text))
const Time = z.looseObject({ time: time.nullable().catch(null).default(null) })
const Found = z.object({
  Id: ReportedEntityId,
  status: z.string().optional(),
  MetaData: z.object({ CreateTime: time.optional(), LastUpdatedTime: time }),
})
/** The 8 MiB that a sweep reads may have more elements than a step's response: 8 bytes are enough for one. */
const LIMITS = { ...DOCUMENT_LIMITS, entries: 1_048_576 }

const Response = z.record(z.string(), z.unknown())
const ChangeData = Time.extend({
  CDCResponse: z.array(z.looseObject({ QueryResponse: z.array(Response) })),
})
const QueryDocument = Time.extend({ QueryResponse: Response })

/** Reads the response to `GET /v3/company/<realm>/cdc`; returns `null` for any other document. */
export function readChangeData(body: string): FeedDocument | null {
  const document = ChangeData.safeParse(parseJson(body, LIMITS))
  if (!document.success) return null
  const { CDCResponse, time: at } = document.data
  const responses = CDCResponse.flatMap(({ QueryResponse }) => QueryResponse)
  // A document with an error in place of an entity's objects is rejected. Otherwise the entity would seem to have no
  // changes.
  return responses.some((response) => 'Fault' in response) ? null : documentOf(responses, at)
}

/** Reads the response to `GET /v3/company/<realm>/query`; returns `null` for any other document. */
export function readQueried(body: string): FeedDocument | null {
  const document = QueryDocument.safeParse(parseJson(body, LIMITS))
  return document.success ? documentOf([document.data.QueryResponse], document.data.time) : null
}

function documentOf(
  responses: readonly Readonly<Record<string, unknown>>[],
  at: number | null,
): FeedDocument {
  const lists = responses.flatMap((response) =>
    providerEntities.flatMap((entity) => {
      const list = response[entity]
      return Array.isArray(list) ? [{ entity, list: list as readonly unknown[] }] : []
    }),
  )
  return {
    objects: lists.flatMap(({ entity, list }) =>
      list.flatMap((one) => {
        const object = objectOf(entity, one)
        return object === null ? [] : [object]
      }),
    ),
    count: lists.reduce((sum, { list }) => sum + list.length, 0),
    at,
  }
}

function objectOf(entity: ProviderEntity, given: unknown): ReadObject | null {
  const found = Found.safeParse(given)
  if (!found.success) return null
  const { Id: id, status, MetaData } = found.data
  const isDeleted = status?.toLowerCase() === 'deleted'
  const { CreateTime = null, LastUpdatedTime: changedAt } = MetaData
  const content = asObject(given) ?? {}
  return { entity, id, createdAt: isDeleted ? null : CreateTime, changedAt, isDeleted, content }
}

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
