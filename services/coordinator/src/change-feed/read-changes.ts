/**
 * Reads everything that was changed in the books of a company since a time.
 *
 * F1  The change feed returns at most 1,000 objects, and nothing in the response shows that there are more. A response
 *     with 1,000 objects therefore counts as incomplete: each requested entity is then read separately. If the response
 *     for a single entity is incomplete too, the time range is halved.
 * F2  A request to the change feed cannot limit the end of its time range. So the later half is read from the change
 *     feed, and the earlier half by query. A query returns no deletions, so `unread` names the deletions that may be
 *     missing.
 * F3  An entity that the provider rejects is left out and named in `unread`. If the provider rejects every entity,
 *     nothing counts as read.
 */
import type { ProviderEntity } from '@integration-host/shared/contracts/provider-event'
import type { FeedDocument, ReadObject } from './feed-document.ts'

/** The response to one request. */
export type FeedReply =
  | { readonly kind: 'read'; readonly document: FeedDocument }
  /** The response exceeds the maximum size. */
  | { readonly kind: 'too_large' }
  /** The provider rejects the request. A repeated request would be rejected again. */
  | { readonly kind: 'rejected'; readonly error: string }

/** The port to the provider. All times are epoch ms of whole seconds. */
export interface FeedRequests {
  changes(entities: readonly ProviderEntity[], since: number): Promise<FeedReply>
  query(query: FeedQuery): Promise<FeedReply>
}

/** The objects of an entity that were last changed within a time range, in the order of their changes. */
export interface FeedQuery {
  readonly entity: ProviderEntity
  /** The inclusive beginning of the time range. */
  readonly from: number
  /** The exclusive end of the time range; `null` if the range has no end. */
  readonly to: number | null
  /** The position of the first object to return, counted from 1. */
  readonly start: number
  readonly limit: number
}

export interface ReadChangesOptions {
  readonly entities: readonly ProviderEntity[]
  /** The time from which changes are read, epoch ms. */
  readonly since: number
  readonly now: number
  /** Called with the objects of each response. The same object may be passed twice. */
  readonly onObjects: (objects: readonly ReadObject[]) => Promise<void>
}

export interface ReadResult {
  /**
   * The time up to which every change was read, in epoch ms. This is the time that the provider's first response
   * contains. If that response contains no time, or a time that differs from `now` by a day or more, `until` is `now`.
   */
  readonly until: number
  /** What could not be read; empty if everything was read. */
  readonly unread: readonly string[]
  /** The entities of which something could not be read. */
  readonly incomplete: readonly ProviderEntity[]
  /** The error of the last rejected request if no request succeeded; `null` otherwise. */
  readonly error: string | null
}

/** The maximum number of objects in a response, as Intuit documents it. */
const MAX_OBJECTS = 1_000
/** Intuit accepts a `changedSince` within the last 30 days only. */
const FEED_DAYS = 29
const DAY_MS = 86_400_000
/** The number of objects by which two successive pages overlap if both begin at the same second. */
const POSITION_OVERLAP = 50
/** The minimum length of a time range that is halved. */
const MIN_WINDOW_MS = 2_000
/** The entities that the change feed does not contain, as Intuit documents it. */
const NOT_IN_FEED: ReadonlySet<ProviderEntity> = new Set([
  'JournalCode',
  'TaxAgency',
  'TimeActivity',
])

const toSecond = (ms: number): number => Math.floor(ms / 1_000) * 1_000
const text = (ms: number): string => new Date(ms).toISOString()

export async function readChanges(
  requests: FeedRequests,
  { entities, since, now, onObjects }: ReadChangesOptions,
): Promise<ReadResult> {
  let until: number | null = null
  let rejection: string | null = null
  let isAnswered = false
  let unreadable = 0
  const tooLarge = new Set<ProviderEntity>()
  const rejected = new Map<ProviderEntity, string>()
  /** For each entity, the time before which deletions may be missing. */
  const deletionsFrom = new Map<ProviderEntity, number>()

  async function accept({ objects, count, at }: FeedDocument): Promise<void> {
    isAnswered = true
    unreadable += count - objects.length
    // An implausible time is ignored. If it were used, the next sweep would skip changes or read all of them again.
    until ??= at !== null && Math.abs(at - now) < DAY_MS ? at : now
    await onObjects(objects)
  }

  function reject(entity: ProviderEntity, error: string): void {
    rejection = error
    rejected.set(entity, error)
  }

  async function readFeed(wanted: readonly ProviderEntity[], from: number): Promise<void> {
    const [first] = wanted
    if (first === undefined) return
    const reply = await requests.changes(wanted, from)
    if (reply.kind === 'read') await accept(reply.document)
    if (reply.kind === 'read' && reply.document.count < MAX_OBJECTS) return
    if (wanted.length > 1) {
      const half = Math.ceil(wanted.length / 2)
      await readFeed(wanted.slice(0, half), from)
      await readFeed(wanted.slice(half), from)
    } else if (reply.kind === 'rejected') reject(first, reply.error)
    else {
      const middle = toSecond(from + (now - from) / 2)
      const isTooShort = now - from < MIN_WINDOW_MS || middle <= from
      deletionsFrom.set(first, isTooShort ? now : middle)
      if (!isTooShort) await readFeed(wanted, middle)
      await readByQuery(first, from, isTooShort ? null : middle)
    }
  }

  /**
   * Reads a time range of an entity page by page. The next page begins at the time of the last object instead of at a
   * position in the list, because an object that is changed in the meantime leaves the time range and shifts the
   * positions of all later objects.
   */
  async function readByQuery(
    entity: ProviderEntity,
    begin: number,
    to: number | null,
  ): Promise<void> {
    let [from, start, limit] = [begin, 1, MAX_OBJECTS]
    for (;;) {
      const reply = await requests.query({ entity, from, to, start, limit })
      if (reply.kind === 'rejected') return reject(entity, reply.error)
      if (reply.kind === 'too_large') {
        if (limit > 1) limit = Math.ceil(limit / 2)
        else {
          tooLarge.add(entity)
          start += 1
          limit = MAX_OBJECTS
        }
        continue
      }
      await accept(reply.document)
      const { objects, count } = reply.document
      if (count < limit) return
      const last = toSecond(Math.max(from, ...objects.map(({ changedAt }) => changedAt)))
      if (last > from) [from, start] = [last, 1]
      // The next page overlaps this one, because objects of the same second may change positions between two requests.
      else start += Math.max(1, count - POSITION_OVERLAP)
    }
  }

  const begin = toSecond(since)
  const feedBegin = Math.max(begin, toSecond(now - FEED_DAYS * DAY_MS))
  const inFeed = entities.filter((entity) => !NOT_IN_FEED.has(entity))
  await readFeed(inFeed, feedBegin)
  for (const entity of inFeed)
    if (feedBegin > begin && !rejected.has(entity)) {
      if (!deletionsFrom.has(entity)) deletionsFrom.set(entity, feedBegin)
      await readByQuery(entity, begin, feedBegin)
    }
  for (const entity of entities) if (NOT_IN_FEED.has(entity)) await readByQuery(entity, begin, null)

  return {
    until: until ?? now,
    unread: [
      ...[...deletionsFrom].map(([entity, to]) => `deletions of ${entity} before ${text(to)}`),
      ...[...rejected].map(([entity, error]) => `${entity}: ${error}`),
      ...[...tooLarge].map(
        (entity) => `${entity}: an object exceeds the maximum size of a response`,
      ),
      ...(unreadable === 0 ? [] : [`objects without an id or a time: ${unreadable}`]),
    ],
    incomplete:
      unreadable > 0
        ? entities
        : [...new Set([...deletionsFrom.keys(), ...rejected.keys(), ...tooLarge])],
    error: isAnswered ? null : rejection,
  }
}
