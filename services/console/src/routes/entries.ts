import { Hono } from 'hono'
import { z } from 'zod'
import type { CompanyNames } from '../adapters/peers/company-names.ts'
import type { ServiceClient } from '../adapters/peers/service-client.ts'
import { EntriesQuery, EntriesView, EntryRow } from '../contracts/entries.ts'
import { type GuardDeps, guardedRoutes } from './guarded-route.ts'

export interface EntryRouteDeps extends GuardDeps {
  readonly coordinator: ServiceClient
  readonly companyNames: CompanyNames
}

const ROWS = 100

/** A page of the coordinator's list, as the console reads it. */
export const EntryRows = z.object({
  items: z.array(EntryRow),
  next_cursor: z.string().nullable(),
})

/** `GET /entries`: what runs have written to the books of companies, newest first. */
export function entryRoutes(deps: EntryRouteDeps): Hono {
  const { read } = guardedRoutes(deps, 'entries')
  const { coordinator, companyNames } = deps
  return new Hono().get(
    '/entries',
    ...read({
      operationId: 'listEntries',
      summary: 'What runs have written to the books of companies, newest first',
      query: EntriesQuery,
      view: ['a page', EntriesView],
      async respond({ by, query: given }) {
        const query = new URLSearchParams({ limit: String(ROWS) })
        for (const [name, value] of Object.entries(given))
          if (value !== undefined) query.set(name, value)
        const path = `/entries?${query.toString()}`
        const { items, next_cursor } = await coordinator.send(path, by, EntryRows)
        return {
          Entries: items,
          Next: next_cursor,
          Companies: await companyNames.of(items.map(({ Realm }) => Realm)),
        } satisfies EntriesView
      },
    }),
  )
}
