import { companyPage, entriesPage, pages, runPage, withQuery } from '../isomorphic/pages.ts'
import { nameOf } from '@integration-host/shared/contracts/text'
import { CredentialView } from '@integration-host/shared/contracts/credential'
import { EntityId, providerEntities } from '@integration-host/shared/contracts/provider-event'
import { realmOf } from '@integration-host/shared/contracts/realm'
import { RunResponse } from '@integration-host/shared/contracts/run'
import { hasCode } from '@integration-host/shared/errors'
import type { Hono } from 'hono'
import { z } from 'zod'
import { nameIn } from '../isomorphic/texts.ts'
import { partOf } from '../adapters/peers/service-client.ts'
import type { MissingService } from '../contracts/services.ts'
import { type SearchHit, SearchQuery, SearchView } from '../contracts/search.ts'
import { EntryRows } from './entries.ts'
import { guardedRoutes, type RouteDeps } from './guarded-route.ts'

/** The maximum numbers of hits of each kind. The browser adds hits among the pages, up to 20 hits in total. */
const RUNS = 7
const OBJECTS = 5
const COMPANIES = 5
const PROCESSES = 3
/** The number of entries that are read to find objects. An object may have several. */
const ENTRIES = 50

const RunPage = z.object({
  items: z.array(
    RunResponse.pick({
      Process: true,
      TransactionID: true,
      ReplayID: true,
      Status: true,
      Attempt: true,
    }),
  ),
})
const CredentialPage = z.object({
  items: z.array(CredentialView.pick({ Name: true, Label: true, CompanyName: true })),
})

/**
 * `GET /search`: runs whose id begins with a text, objects in the books by their id, such as `129` or `Invoice 129`, and
 * processes whose names contain the text.
 */
export function searchRoutes(deps: RouteDeps): Hono {
  const { read, routes } = guardedRoutes(deps, 'search')
  const { coordinator, tokenService, companyNames } = deps

  async function runs(q: string, person: string): Promise<readonly SearchHit[]> {
    const path = withQuery('/transactions', { idPrefix: q, limit: RUNS })
    const { items } = await coordinator.send(path, { person }, RunPage)
    return items.map(({ Process, TransactionID, ReplayID, Status, Attempt }) => ({
      Kind: 'run',
      Text: TransactionID,
      Detail: [
        Process,
        Status === 'Running' && Attempt > 1 ? `Running, attempt ${Attempt}` : Status,
        ...(ReplayID > 0 ? [`run ${ReplayID}`] : []),
      ].join(' · '),
      Page: runPage(Process, TransactionID, ReplayID),
    }))
  }

  async function objects(q: string, person: string): Promise<readonly SearchHit[]> {
    const filter = objectOf(q)
    if (filter === null) return []
    const path = withQuery('/entries', { ...filter, limit: ENTRIES })
    const { items } = await coordinator.send(path, { person }, EntryRows)
    // The newest entry of each object is the first one.
    const found = [
      ...Map.groupBy(items, (entry) => `${entry.Realm} ${entry.Entity}`).values(),
    ].slice(0, OBJECTS)
    const names = await companyNames.of(items.map(({ Realm }) => Realm))
    return found.flatMap(([entry]) =>
      entry === undefined
        ? []
        : {
            Kind: 'object' as const,
            Text: `${entry.Entity} ${entry.EntityID}`,
            Detail: `${nameIn(names, entry.Realm) ?? entry.Realm} · ${entry.Process} ${entry.TransactionID}`,
            Page: entriesPage({ realm: entry.Realm, entity: entry.Entity, id: entry.EntityID }),
          },
    )
  }

  async function companies(q: string, person: string): Promise<readonly SearchHit[]> {
    const path = withQuery('/credentials', { q, limit: COMPANIES })
    const { items } = await tokenService.send(path, { person }, CredentialPage)
    return items.map((company) => ({
      Kind: 'company',
      Text: nameOf(company) ?? realmOf(company.Name),
      Detail: company.Name,
      Page: companyPage(realmOf(company.Name)),
    }))
  }

  const processes = (q: string): readonly SearchHit[] =>
    (deps.installation().processes ?? [])
      .filter(({ name }) => name.toLowerCase().includes(q.toLowerCase()))
      .slice(0, PROCESSES)
      .map(({ name }) => ({
        Kind: 'process',
        Text: name,
        Detail: 'its runs',
        Page: withQuery(pages.runs, { process: name }),
      }))

  read('/search', {
    operationId: 'search',
    summary:
      'Runs by the beginning of their id, objects in the books by their id, companies and processes by a part of their name',
    query: SearchQuery,
    view: ['the hits', SearchView],
    async respond({ by: { person }, query: { q } }) {
      const found = await Promise.all([
        partOf('coordinator', hitsOf(runs(q, person)), []),
        partOf('coordinator', hitsOf(objects(q, person)), []),
        partOf('token-service', hitsOf(companies(q, person)), []),
      ])
      return {
        Hits: [...found.flatMap(({ part }) => part), ...processes(q)],
        Unavailable: found.flatMap(({ unavailable }) => unavailable).filter(isFirstOfService),
      } satisfies SearchView
    },
  })
  return routes
}

/** Returns the object that a text names, such as `129` or `invoice 129`; `null` if it can be none. */
function objectOf(q: string): Readonly<Record<string, string>> | null {
  const [id = '', kind, ...others] = q.split(/\s+/).toReversed()
  if (others.length > 0 || !EntityId.safeParse(id).success) return null
  if (kind === undefined) return { id }
  const entity = providerEntities.find((one) => one.toLowerCase() === kind.toLowerCase())
  return entity === undefined ? null : { entity, id }
}

/** The coordinator is searched twice, and is named once. */
const isFirstOfService = (
  { Service }: MissingService,
  index: number,
  all: readonly MissingService[],
): boolean => all.findIndex((one) => one.Service === Service) === index

/**
 * No id or name can contain a text that a service rejects as invalid, so such a text has no hits. A coordinator of the
 * release before has no entries.
 */
const hitsOf = (search: Promise<readonly SearchHit[]>): Promise<readonly SearchHit[]> =>
  search.catch((error: unknown) => {
    if (hasCode(error, 'invalid_request') || hasCode(error, 'not_found')) return []
    throw error
  })
