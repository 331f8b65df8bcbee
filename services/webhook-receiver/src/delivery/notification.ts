/**
 * The two formats of Intuit's notifications.
 *
 * Legacy:
 * `{"eventNotifications":[{"realmId","dataChangeEvent":{"entities":[{"name","id","operation","lastUpdated"}]}}]}`.
 * One notification can contain several companies.
 *
 * CloudEvents (since 2026): an array of `{"specversion":"1.0","type":"qbo.invoice.created.v1","time","intuitentityid",
 * "intuitaccountid","data":{}}`. A single event without an array is accepted as well, because the media type
 * `application/cloudevents+json` stands for a single event (CloudEvents JSON Format 1.0.2, section 3).
 *
 * The names of members are read without case: documents, samples and captured deliveries of Intuit differ in it
 * (`deletedId` and `deletedid`).
 *
 * @see https://developer.intuit.com/app/developer/qbo/docs/develop/webhooks
 */
import { IntegrationError } from '@integration-host/shared/errors'
import { asObject, jsonExcess, JSON_LIMITS, parseJson } from '@integration-host/shared/json'
import type { ProviderEvent } from '@integration-host/shared/contracts/provider-event'
import { checkChange, type IgnoredChange, type ReportedChange } from './reported-change.ts'

export const formats = ['legacy', 'cloudevents'] as const
export type Format = (typeof formats)[number]

export interface Notification {
  readonly format: Format
  /** The changes that will be published, in the order of the notification. */
  readonly events: readonly ProviderEvent[]
  readonly ignored: readonly IgnoredChange[]
}

/**
 * Splits a notification into the changes that it reports. A malformed or unknown change does not affect the other
 * changes. Returns `null` if the body is not JSON or has neither of the two formats.
 *
 * @throws {IntegrationError} `invalid_request` if the body exceeds the limits of JSON that is parsed.
 */
export function parseNotification(body: Buffer): Notification | null {
  const text = textOf(body) ?? ''
  const excess = jsonExcess(text, LIMITS)
  if (excess !== null) throw new IntegrationError('invalid_request', excess)
  const document = parseJson(text, LIMITS)
  const legacy = member(document, 'eventNotifications')
  if (Array.isArray(legacy)) return checked('legacy', legacy.flatMap(changesOfCompany))
  if (Array.isArray(document)) return checked('cloudevents', document.map(changeOfCloudEvent))
  if (member(document, 'specversion') !== undefined)
    return checked('cloudevents', [changeOfCloudEvent(document)])
  return null
}

// A body of the maximum size, 1 MiB, has about 60,000 if it is full of the shortest real changes.
const LIMITS = { ...JSON_LIMITS, entries: 75_000 }

/** Returns the member of an object whose name equals `name` but for case; `undefined` if there is none. */
function member(value: unknown, name: string): unknown {
  const object = asObject(value)
  if (object === null || Object.hasOwn(object, name)) return object?.[name]
  const wanted = name.toLowerCase()
  for (const given in object)
    if (given.length === name.length && given.toLowerCase() === wanted) return object[given]
  return undefined
}

/** Returns the text of a body without a byte order mark (RFC 8259 §8.1); `null` if the body is not UTF-8. */
function textOf(body: Buffer): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(body)
  } catch {
    return null
  }
}

/** A change of a notification; `null` if the entry does not have the structure that the format requires. */
type Readable = ReportedChange | null

function checked(format: Format, changes: readonly Readable[]): Notification {
  const events: ProviderEvent[] = []
  const ignored: IgnoredChange[] = []
  for (const change of changes) {
    const result = change === null ? MALFORMED : checkChange(change)
    if (result.kind === 'event') events.push(result.event)
    else ignored.push(result.change)
  }
  return { format, events, ignored }
}

const MALFORMED = {
  kind: 'ignored',
  change: { reason: 'malformed', entity: null, realm: null, entityId: null },
} as const

function changesOfCompany(notification: unknown): readonly Readable[] {
  const company = asObject(notification)
  const changes = member(member(company, 'dataChangeEvent'), 'entities')
  if (company === null || !Array.isArray(changes)) return [null]
  return changes.map((entry) => {
    const change = asObject(entry)
    return change === null
      ? null
      : {
          realm: member(company, 'realmId'),
          entity: member(change, 'name'),
          id: member(change, 'id'),
          operation: member(change, 'operation'),
          changedAt: member(change, 'lastUpdated'),
          deletedId: member(change, 'deletedId'),
        }
  })
}

/** Matches the type of a CloudEvent of the accounting API: `qbo.<entity>.<operation>.<version>`. */
const TYPE = /^qbo\.([a-z][a-z0-9]{0,39})\.([a-z]+)\.v\d+$/i

function changeOfCloudEvent(entry: unknown): Readable {
  const event = asObject(entry)
  const type = member(event, 'type')
  if (event === null || typeof type !== 'string') return null
  const [, entity, operation] = TYPE.exec(type) ?? []
  return {
    realm: member(event, 'intuitaccountid'),
    entity,
    id: member(event, 'intuitentityid'),
    operation,
    changedAt: member(event, 'time'),
    deletedId: member(member(event, 'data'), 'deletedId'),
  }
}
