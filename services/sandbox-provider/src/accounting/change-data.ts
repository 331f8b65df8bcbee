/**
 * Change data capture: the objects of some kinds that were changed or deleted since a time.
 *
 * @see https://developer.intuit.com/app/developer/qbo/docs/learn/explore-the-quickbooks-online-api/change-data-capture
 */
import { type Entity, entityOf } from './entities.ts'
import type { Body, PostedEntities } from './posted-entities.ts'

/** Intuit documents that these kinds of objects have no change data. */
const NOT_COVERED = new Set<Entity>(['JournalCode', 'TaxAgency', 'TimeActivity'])
const MAX_DAYS = 30
const MAX_OBJECTS = 1_000
const DAY_MS = 86_400_000

export type ChangeData =
  | { readonly kind: 'found'; readonly document: Body }
  | { readonly kind: 'rejected'; readonly detail: string }

/**
 * Returns the response to a request for change data. `changedSince` is inclusive, and objects come in the order of their
 * change. At most 1,000 objects are returned, and nothing in the response reports that there are more. Intuit documents
 * neither the order nor what it does with further objects.
 *
 * @param given the query parameters `entities` and `changedSince`
 */
export function changeData(
  posted: PostedEntities,
  realm: string,
  given: { readonly entities: string; readonly changedSince: string },
  now: Date,
): ChangeData {
  const names = given.entities.split(',').map((name) => name.trim())
  const entities: Entity[] = []
  for (const name of names) {
    const entity = entityOf(name)
    if (entity === null || NOT_COVERED.has(entity))
      return { kind: 'rejected', detail: 'entities has a kind of object without change data.' }
    entities.push(entity)
  }
  const since = Date.parse(given.changedSince)
  if (!/^\d{4}-\d\d-\d\d/.test(given.changedSince) || Number.isNaN(since))
    return { kind: 'rejected', detail: 'changedSince must be a date or a time.' }
  if (since < now.getTime() - MAX_DAYS * DAY_MS)
    return { kind: 'rejected', detail: `changedSince may be at most ${MAX_DAYS} days ago.` }
  let left = MAX_OBJECTS
  const responses = entities.map((entity) => {
    const found = posted.changes(realm, entity, since).slice(0, left)
    left -= found.length
    return found.length === 0 ? {} : { [entity]: found, startPosition: 1, maxResults: found.length }
  })
  return {
    kind: 'found',
    document: { CDCResponse: [{ QueryResponse: responses }], time: now.toISOString() },
  }
}
