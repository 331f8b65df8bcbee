/**
 * Change data capture: returns the objects of given kinds that were changed or deleted since a given time.
 *
 * @see https://developer.intuit.com/app/developer/qbo/docs/learn/explore-the-quickbooks-online-api/change-data-capture
 */
import { type Entity, entityOf } from './entities.ts'
import type { Body, PostedEntities } from './posted-entities.ts'

/** According to Intuit's documentation, there is no change data for these kinds of objects. */
const NOT_COVERED = new Set<Entity>(['JournalCode', 'TaxAgency', 'TimeActivity'])
const MAX_DAYS = 30
const MAX_OBJECTS = 1_000
const DAY_MS = 86_400_000

/**
 * Returns the response to a request for change data. `changedSince` is inclusive. Objects are sorted by the time of
 * their change. At most 1,000 objects are returned, and the response does not show whether there are more. Intuit
 * documents neither the order nor the behaviour for more than 1,000 objects.
 *
 * @param given the query parameters `entities` and `changedSince`
 */
export function changeData(
  posted: PostedEntities,
  realm: string,
  given: { readonly entities: string; readonly changedSince: string },
  now: Date,
): { readonly document: Body } | { readonly error: '2010'; readonly detail: string } {
  const names = given.entities.split(',').map((name) => name.trim())
  const entities: Entity[] = []
  for (const name of names) {
    const entity = entityOf(name)
    if (entity === null || NOT_COVERED.has(entity))
      return { error: '2010', detail: 'entities has a kind of object without change data.' }
    entities.push(entity)
  }
  const since = Date.parse(given.changedSince)
  if (!/^\d{4}-\d\d-\d\d/.test(given.changedSince) || Number.isNaN(since))
    return { error: '2010', detail: 'changedSince must be a date or a time.' }
  if (since < now.getTime() - MAX_DAYS * DAY_MS)
    return { error: '2010', detail: `changedSince may be at most ${MAX_DAYS} days ago.` }
  let left = MAX_OBJECTS
  const responses = entities.map((entity) => {
    const found = posted.changes(realm, entity, since).slice(0, left)
    left -= found.length
    return found.length === 0 ? {} : { [entity]: found, startPosition: 1, maxResults: found.length }
  })
  return {
    document: { CDCResponse: [{ QueryResponse: responses }], time: now.toISOString() },
  }
}
