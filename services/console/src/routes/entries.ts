import { withQuery } from '../isomorphic/pages.ts'
import type { Hono } from 'hono'
import { z } from 'zod'
import { EntriesQuery, EntriesView, EntryRow } from '../contracts/entries.ts'
import { guardedRoutes, type RouteDeps } from './guarded-route.ts'

const ROWS = 100

/** A page of the coordinator's list, as the console reads it. */
export const EntryRows = z.object({
  items: z.array(EntryRow),
  next_cursor: z.string().nullable(),
})

/** `GET /entries`: what runs have written to the books of companies, newest first. */
export function entryRoutes(deps: RouteDeps): Hono {
  const { read, routes } = guardedRoutes(deps, 'entries')
  const { coordinator, companyNames } = deps
  read('/entries', {
    operationId: 'listEntries',
    summary: 'What runs have written to the books of companies, newest first',
    query: EntriesQuery,
    view: ['a page', EntriesView],
    async respond({ by, query }) {
      const path = withQuery('/entries', { limit: ROWS, ...query })
      const { items, next_cursor } = await coordinator.send(path, by, EntryRows)
      return {
        Entries: items,
        Next: next_cursor,
        Companies: await companyNames.of(items.map(({ Realm }) => Realm)),
      } satisfies EntriesView
    },
  })
  return routes
}
