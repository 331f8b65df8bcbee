/**
 * Which objects in the books of a company a call has written, according to its response.
 *
 * W1  A call has written what its successful response shows. A fault in place of an object is not a write.
 * W2  The written fields are those of the request body. What is kept of each is its value in the response, because the
 *     provider may round, complete or reject what it was sent.
 * W3  A value is compared as the provider means it: numbers by value, references by their id, and a list whose members
 *     have ids by these ids.
 *
 * @see docs/intuit.md, section "Book of entries"
 */
import type { EntryOperation } from '@integration-host/shared/contracts/company'
import { EntityName, ReportedEntityId } from '@integration-host/shared/contracts/provider-event'
import { asObject, DOCUMENT_LIMITS, parseJson } from '@integration-host/shared/json'

/** An object that a call has written. `fields` maps the path of each written field to its normalized value. */
export interface WrittenObject {
  readonly realm: string
  readonly entity: string
  readonly id: string
  readonly operation: EntryOperation
  readonly syncToken: string | null
  readonly fields: ReadonlyMap<string, string>
}

/** An object of the books as a response contains it. */
export interface BookObject {
  readonly entity: string
  readonly id: string
  readonly object: Body
}

type Body = Readonly<Record<string, unknown>>

/** The request of a call, as it was sent to the gateway. */
export interface BookCall {
  readonly url: URL
  readonly body: string | null
}

/** The maximum number of fields that are kept of an object. */
const MAX_FIELDS = 500
const MAX_DEPTH = 10
/** The members that name an object or its version, and are not fields that a user sees. */
const OWN_MEMBERS = new Set(['Id', 'SyncToken', 'MetaData', 'domain', 'sparse', 'status'])
const COMPANY_PATH = /^\/v3\/company\/([^/]+)\//

/**
 * Returns the objects that a call with a method that is not safe has written, according to the body of its successful
 * response. A batch has one for each item without a fault. A query by POST, and a call to GraphQL, has none.
 */
export function writtenObjects({ url, body }: BookCall, response: string): WrittenObject[] {
  const realm = COMPANY_PATH.exec(url.pathname)?.[1]
  const document = asObject(parseJson(response, DOCUMENT_LIMITS))
  if (realm === undefined || document === null) return []
  const sent = asObject(body === null ? null : parseJson(body, DOCUMENT_LIMITS)) ?? {}
  const { BatchItemResponse: results, AttachableResponse: uploads } = document
  if (Array.isArray(results)) return batchWrites(realm, listOf(sent['BatchItemRequest']), results)
  if (Array.isArray(uploads))
    return uploads.flatMap((upload) => writesOf(realm, {}, asObject(upload) ?? {}, 'create'))
  return writesOf(realm, sent, document, operationOf(url, sent))
}

/**
 * Returns the object that a call has written whose response was lost, from the body of the response to the call that has
 * looked for it. Returns none if that response contains several objects, because it does not say which one was written.
 *
 * @param runSince when the run began, epoch ms. An object that was created since then, or shortly before because the
 *   clocks may differ, was created by the call; another one was changed by it.
 */
export function foundObject(realm: string, response: string, runSince: number): WrittenObject[] {
  const [found, ...others] = readObjects(response)
  if (found === undefined || others.length > 0) return []
  const at = createdAt(found)
  const syncToken = syncTokenOf(found)
  const isNew = at === null ? syncToken === '0' : at >= runSince - CLOCK_DIFFERENCE_MS
  const { entity, id } = found
  return [
    { realm, entity, id, operation: isNew ? 'create' : 'update', syncToken, fields: new Map() },
  ]
}

/** How much earlier than our own clock the clock of the provider may be. */
export const CLOCK_DIFFERENCE_MS = 5 * 60_000

/** Returns the objects in the response to a call that reads: one object, or the objects that a query has found. */
export function readObjects(response: string): BookObject[] {
  const document = asObject(parseJson(response, DOCUMENT_LIMITS)) ?? {}
  const found = asObject(document['QueryResponse'])
  return found === null
    ? objectsIn(document)
    : Object.entries(found).flatMap(([entity, list]) =>
        listOf(list).flatMap((object) => objectsIn({ [entity]: object })),
      )
}

/** Returns when an object was created, in epoch ms; `null` if the object does not say so. */
export function createdAt({ object }: BookObject): number | null {
  const at = Date.parse(String(asObject(object['MetaData'])?.['CreateTime']))
  return Number.isNaN(at) ? null : at
}

const isDeleted = ({ object }: BookObject): boolean =>
  String(object['status']).toLowerCase() === 'deleted'

export const syncTokenOf = ({ object }: BookObject): string | null =>
  typeof object['SyncToken'] === 'string' && object['SyncToken'].length <= MAX_SYNC_TOKEN
    ? object['SyncToken']
    : null
const MAX_SYNC_TOKEN = 40

/** Returns the objects among the members of a document. */
const objectsIn = (document: Body): BookObject[] =>
  Object.entries(document).flatMap(([entity, value]) => {
    const object = asObject(value)
    const id = ReportedEntityId.safeParse(object?.['Id'])
    return object !== null && id.success && EntityName.safeParse(entity).success
      ? [{ entity, id: id.data, object }]
      : []
  })

function writesOf(
  realm: string,
  sent: Body,
  document: Body,
  operation: EntryOperation,
): WrittenObject[] {
  return objectsIn(document).map((found) => ({
    realm,
    entity: found.entity,
    id: found.id,
    operation: isDeleted(found) ? 'delete' : operation,
    syncToken: syncTokenOf(found),
    fields: fieldsOf(sent, found.object),
  }))
}

/** The operation of a call is a parameter of its URL. Without it, an id in the body or in the path names an object. */
function operationOf({ pathname, searchParams }: URL, sent: Body): EntryOperation {
  const operation = searchParams.get('operation')
  if (operation === 'delete') return 'delete'
  if (operation === 'void' || searchParams.get('include') === 'void') return 'void'
  const namesObject = pathname.replace(COMPANY_PATH, '').includes('/')
  return namesObject || sent['Id'] !== undefined ? 'update' : 'create'
}

/** The items of a batch and their results belong together by `bId`. */
function batchWrites(
  realm: string,
  items: readonly unknown[],
  results: readonly unknown[],
): WrittenObject[] {
  const sent = new Map(
    items.map((item) => [asObject(item)?.['bId'], asObject(item) ?? {}] as const),
  )
  return results.flatMap((result) => {
    const document = asObject(result) ?? {}
    const { operation, optionsData, ...item } = sent.get(document['bId']) ?? {}
    const [entity = ''] = objectsIn(document).map((found) => found.entity)
    const body = asObject(item[entity]) ?? {}
    const isVoid = operation === 'void' || optionsData === 'void'
    if (isVoid) return writesOf(realm, body, document, 'void')
    const known = operation === 'update' || operation === 'delete' ? operation : 'create'
    return writesOf(realm, body, document, known)
  })
}

/** Returns the fields of a request body that are also in the response, with their normalized values. */
export function fieldsOf(sent: Body, object: Body): Map<string, string> {
  const fields = new Map<string, string>()
  addFields(fields, sent, object, '', 0)
  return fields
}

/** Adds the written fields by their paths, such as `DocNumber` and `Line[1].SalesItemLineDetail.ItemRef`. */
function addFields(
  fields: Map<string, string>,
  sent: unknown,
  found: unknown,
  path: string,
  depth: number,
): void {
  if (found === undefined || depth > MAX_DEPTH || fields.size === MAX_FIELDS) return
  const [given, object] = [asObject(sent), asObject(found)]
  if (Array.isArray(sent) && hasIds(found)) {
    fields.set(path, normalized(found))
    // The first member with an id is the one that `valueAt` finds.
    const byId = new Map(found.toReversed().map((member) => [idOf(member), member]))
    for (const [n, one] of sent.entries()) {
      const id = [one, found[n]].map(idOf).find((known) => known !== undefined && byId.has(known))
      if (id !== undefined) addFields(fields, one, byId.get(id), `${path}[${id}]`, depth + 1)
    }
  } else if (given !== null && object !== null && !isReference(object)) {
    for (const [name, value] of Object.entries(given)) {
      if (!NAME.test(name) || OWN_MEMBERS.has(name) || !Object.hasOwn(object, name)) continue
      addFields(fields, value, object[name], path === '' ? name : `${path}.${name}`, depth + 1)
    }
  } else if (path !== '') fields.set(path, normalized(found))
}

/** Returns the normalized value of an object at a path; `undefined` if the object has none there. */
export function valueAt(object: Body, path: string): string | undefined {
  let found: unknown = object
  for (const segment of path.split('.')) {
    const [name = '', id] = segment.split(/[[\]]/)
    found = asObject(found)?.[name]
    if (id !== undefined) found = listOf(found).find((member) => idOf(member) === id)
  }
  return found === undefined ? undefined : normalized(found)
}

const NAME = /^[A-Za-z_]\w{0,99}$/

const listOf = (value: unknown): readonly unknown[] =>
  Array.isArray(value) ? (value as readonly unknown[]) : []

/** Returns the id of a member of a list, such as a line; `undefined` if it has none. */
const idOf = (member: unknown): string | undefined => {
  const id = asObject(member)?.['Id']
  return typeof id === 'string' && /^[\w:-]{1,40}$/.test(id) ? id : undefined
}

const hasIds = (value: unknown): value is readonly unknown[] =>
  Array.isArray(value) && value.some((member) => idOf(member) !== undefined)

/** Whether an object only names another one: `{"value": "58", "name": "…"}`. The name may change with the other object. */
const isReference = (object: Body): boolean =>
  typeof object['value'] === 'string' &&
  Object.keys(object).every((name) => name === 'value' || name === 'name' || name === 'type')

/** Returns a text that is the same for values that mean the same (W3). */
function normalized(value: unknown): string {
  if (hasIds(value)) return `ids:${JSON.stringify(value.flatMap((one) => idOf(one) ?? []))}`
  const object = asObject(value)
  if (object !== null && isReference(object)) return `ref:${String(object['value'])}`
  return `${typeof value}:${JSON.stringify(value, sorted)}`
}

/** Orders the members of objects, and drops the sign of zero. */
function sorted(_name: string, value: unknown): unknown {
  const object = Array.isArray(value) ? null : asObject(value)
  if (object === null) return value
  return Object.fromEntries(Object.entries(object).toSorted(([a], [b]) => (a < b ? -1 : 1)))
}
