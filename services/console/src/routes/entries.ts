import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { CompanyNames } from '../adapters/peers/company-names.ts'
import type { ServiceClient } from '../adapters/peers/service-client.ts'
import { EntriesQuery, EntriesView, EntryRow } from '../contracts/entries.ts'
import type { Sessions } from '../session/sessions.ts'
import { needsRole, sessionOf } from './browser-guard.ts'
import { PEER_PROBLEMS } from './peer-problems.ts'

export interface EntryRouteDeps {
  readonly sessions: Sessions
  readonly isHttps: boolean
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
  const { sessions, isHttps, coordinator, companyNames } = deps
  return new Hono().get(
    '/entries',
    needsRole(sessions, 'viewer', isHttps),
    describeRoute({
      operationId: 'listEntries',
      tags: ['entries'],
      summary: 'What runs have written to the books of companies, newest first',
      responses: { 200: jsonResponse('a page', EntriesView), ...problemResponses(PEER_PROBLEMS) },
    }),
    validate('query', EntriesQuery),
    async (c) => {
      const query = new URLSearchParams({ limit: String(ROWS) })
      for (const [name, value] of Object.entries(c.req.valid('query')))
        if (value !== undefined) query.set(name, value)
      const { items, next_cursor } = await coordinator.send(
        `/entries?${query.toString()}`,
        { person: sessionOf(c).user },
        EntryRows,
      )
      return c.json({
        Entries: items,
        Next: next_cursor,
        Companies: await companyNames.of(items.map(({ Realm }) => Realm)),
      } satisfies EntriesView)
    },
  )
}
