import type { ProviderEntity } from '@integration-host/shared/contracts/provider-event'
import { describe, expect, it } from 'vitest'
import type { ReadObject } from './feed-document.ts'
import { type FeedQuery, type FeedReply, readChanges } from './read-changes.ts'

const SECOND = 1_000
const DAY = 86_400 * SECOND
const NOW = Date.parse('2026-11-23T12:00:00Z')
const NOT_IN_FEED = ['JournalCode', 'TaxAgency', 'TimeActivity']

const object = (entity: ProviderEntity, id: number, changedAt: number, isDeleted = false) => ({
  entity,
  id: String(id),
  createdAt: isDeleted ? null : changedAt,
  changedAt,
  isDeleted,
  content: {},
})
/** Returns objects that were changed one after the other, the last one a second before now. */
const series = (entity: ProviderEntity, count: number, everyMs = SECOND): ReadObject[] =>
  Array.from({ length: count }, (_, n) => object(entity, n + 1, NOW - (count - n) * everyMs))

interface Provider {
  readonly rejects?: readonly ProviderEntity[]
  /** The maximum number of objects in a response; with more, the response is too large. */
  readonly tooLarge?: number
  /** Called for each query, before the fake provider selects the objects of the response. */
  readonly onQuery?: (objects: ReadObject[]) => void
}

/**
 * Returns a fake provider. Its change feed returns at most 1,000 objects, either the newest ones or the oldest ones.
 */
function providerOf(objects: ReadObject[], { rejects = [], tooLarge, onQuery }: Provider = {}) {
  const requests: string[] = []
  const reply = (found: readonly ReadObject[]): FeedReply =>
    tooLarge !== undefined && found.length > tooLarge
      ? { kind: 'too_large' }
      : { kind: 'read', document: { objects: found, count: found.length, at: NOW + SECOND } }
  return {
    requests,
    async changes(entities: readonly ProviderEntity[], since: number): Promise<FeedReply> {
      requests.push(`cdc ${entities.join(',')} ${new Date(since).toISOString()}`)
      expect(since).toBeGreaterThanOrEqual(NOW - 30 * DAY)
      expect(since % SECOND).toBe(0)
      if (entities.some((entity) => rejects.includes(entity) || NOT_IN_FEED.includes(entity)))
        return { kind: 'rejected', error: 'rejected' }
      const found = objects.filter(
        ({ entity, changedAt }) => entities.includes(entity) && changedAt >= since,
      )
      return reply(found.slice(0, 1_000))
    },
    async query({ entity, from, to, start, limit }: FeedQuery): Promise<FeedReply> {
      requests.push(`query ${entity} ${start} ${limit}`)
      onQuery?.(objects)
      if (rejects.includes(entity)) return { kind: 'rejected', error: 'rejected' }
      const found = objects
        .filter(
          (one) =>
            one.entity === entity &&
            !one.isDeleted &&
            one.changedAt >= from &&
            (to === null || one.changedAt < to),
        )
        .toSorted((a, b) => a.changedAt - b.changedAt)
      return reply(found.slice(start - 1, start - 1 + limit))
    },
  }
}

async function read(
  objects: ReadObject[],
  options: Provider & { readonly entities?: ProviderEntity[]; readonly since?: number } = {},
) {
  const provider = providerOf(objects, options)
  const found = new Set<string>()
  const result = await readChanges(provider, {
    entities: options.entities ?? ['Invoice'],
    since: options.since ?? NOW - DAY,
    now: NOW,
    async onObjects(some) {
      for (const one of some) found.add(`${one.entity} ${one.id}${one.isDeleted ? ' deleted' : ''}`)
    },
  })
  return { ...result, found, requests: provider.requests }
}

describe('reading the changes of a company since a time', () => {
  it('readChanges() reads the changes of all entities with one request, up to the time of the response', async () => {
    const objects = [...series('Invoice', 3), object('Bill', 9, NOW - SECOND, true)]
    const { found, requests, until, unread, error } = await read(objects, {
      entities: ['Invoice', 'Bill'],
    })
    expect([...found]).toEqual(['Invoice 1', 'Invoice 2', 'Invoice 3', 'Bill 9 deleted'])
    expect(requests).toEqual(['cdc Invoice,Bill 2026-11-22T12:00:00.000Z'])
    expect({ until, unread, error }).toEqual({ until: NOW + SECOND, unread: [], error: null })
  })

  it.each([NOW + 2 * DAY, NOW - 2 * DAY, null])(
    'readChanges() reads up to the present time if the response has the implausible time %s',
    async (at) => {
      const { until } = await readChanges(
        {
          changes: async () => ({ kind: 'read', document: { objects: [], count: 0, at } }),
          query: async () => ({ kind: 'rejected', error: '' }),
        },
        { entities: ['Invoice'], since: NOW - DAY, now: NOW, onObjects: async () => {} },
      )
      expect(until).toBe(NOW)
    },
  )

  it('readChanges() sends no request if no entity is requested', async () => {
    const { requests, until, error } = await read([], { entities: [] })
    expect({ requests, until, error }).toEqual({ requests: [], until: NOW, error: null })
  })

  it('readChanges() reads each entity separately if a response has 1,000 objects', async () => {
    const objects = [...series('Invoice', 900), ...series('Bill', 900), ...series('Item', 900)]
    const { found, unread } = await read(objects, { entities: ['Invoice', 'Bill', 'Item'] })
    expect(found.size).toBe(2_700)
    expect(unread).toEqual([])
  })

  it.each([1_000, 1_001, 2_500, 5_000])(
    'readChanges() halves the time range of an entity with %d changes, and reports that deletions may be missing',
    async (count) => {
      const objects = series('Invoice', count, 10 * SECOND)
      const { found, unread } = await read(objects)
      expect(found.size).toBe(count)
      expect(unread).toEqual([expect.stringMatching(/^deletions of Invoice before 2026-11-2/)])
    },
  )

  it('readChanges() finds all changes if more than 1,000 of them were made in the same second', async () => {
    const objects = Array.from({ length: 2_300 }, (_, n) => object('Invoice', n, NOW - 3_600_000))
    const { found } = await read(objects)
    expect(found.size).toBe(2_300)
  })

  it('readChanges() finds all changes if more than 1,000 of them were made in the last second', async () => {
    const objects = Array.from({ length: 1_500 }, (_, n) => object('Invoice', n, NOW - SECOND))
    expect((await read(objects)).found.size).toBe(1_500)
  })

  it('readChanges() finds all changes if objects are changed while it queries them', async () => {
    const objects = series('Invoice', 3_000, 10 * SECOND)
    let changed = 0
    const { found } = await read(objects, {
      onQuery(all) {
        // The new change moves the object from the beginning of the queried time range to its end.
        const [first] = all.splice(changed, 1)
        if (first !== undefined) all.push({ ...first, changedAt: NOW })
        changed += 1
      },
    })
    for (let id = 1_000; id <= 3_000; id += 1) expect(found).toContain(`Invoice ${id}`)
  })

  it('readChanges() requests smaller responses if a response is too large', async () => {
    const { found } = await read(series('Invoice', 300, 60 * SECOND), { tooLarge: 40 })
    expect(found.size).toBe(300)
  })

  it('readChanges() reports an object as unread if it is too large for any response', async () => {
    const { found, unread } = await read([object('Invoice', 1, NOW - 3_600_000)], { tooLarge: 0 })
    expect(found.size).toBe(0)
    expect(unread.join()).toContain('Invoice: an object exceeds the maximum size of a response')
  })

  it('readChanges() reads all other changes if one object is too large for any response', async () => {
    const objects = series('Invoice', 30, 60 * SECOND)
    const large = new Set([objects[9]])
    const provider = providerOf(objects)
    const found = new Set<string>()
    const { unread } = await readChanges(
      {
        changes: async () => ({ kind: 'too_large' }),
        async query(query) {
          const reply = await provider.query(query)
          const isLarge =
            reply.kind === 'read' && reply.document.objects.some((one) => large.has(one))
          return isLarge ? { kind: 'too_large' } : reply
        },
      },
      {
        entities: ['Invoice'],
        since: NOW - DAY,
        now: NOW,
        async onObjects(some) {
          for (const { id } of some) found.add(id)
        },
      },
    )
    expect(found.size).toBe(29)
    expect(unread.join()).toContain('Invoice: an object exceeds the maximum size of a response')
  })

  it('readChanges() uses queries for changes that are older than 29 days, and reports that deletions may be missing', async () => {
    const old = object('Invoice', 1, NOW - 40 * DAY)
    const recent = object('Invoice', 2, NOW - DAY, true)
    const { found, unread } = await read([old, recent], { since: NOW - 45 * DAY })
    expect([...found].toSorted()).toEqual(['Invoice 1', 'Invoice 2 deleted'])
    expect(unread).toEqual(['deletions of Invoice before 2026-10-25T12:00:00.000Z'])
  })

  it('readChanges() uses queries for entities that the change feed does not contain', async () => {
    const objects = [...series('TimeActivity', 2), ...series('Invoice', 1)]
    const { found, requests } = await read(objects, { entities: ['TimeActivity', 'Invoice'] })
    expect(found.size).toBe(3)
    expect(requests).toEqual(['cdc Invoice 2026-11-22T12:00:00.000Z', 'query TimeActivity 1 1000'])
  })

  it('readChanges() reports an entity as unread if the provider rejects it, and reads the other entities', async () => {
    const objects = [...series('Invoice', 2), ...series('Bill', 2)]
    const { found, unread, error } = await read(objects, {
      entities: ['Invoice', 'Currency', 'Bill'],
      rejects: ['Currency'],
    })
    expect(found.size).toBe(4)
    expect({ unread, error }).toEqual({ unread: ['Currency: rejected'], error: null })
  })

  it('readChanges() fails if the provider rejects every entity', async () => {
    const { error } = await read(series('Invoice', 1), { rejects: ['Invoice'] })
    expect(error).toBe('rejected')
  })
})
