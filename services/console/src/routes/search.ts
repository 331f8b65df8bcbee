import { nameOf } from '@integration-host/shared/contracts/labels'
import { CredentialView } from '@integration-host/shared/contracts/credential'
import { realmOf } from '@integration-host/shared/contracts/realm'
import { RunResponse } from '@integration-host/shared/contracts/run'
import { hasCode } from '@integration-host/shared/errors'
import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { ServiceClient } from '../adapters/peers/service-client.ts'
import { companyPage, pages, runPage } from '../isomorphic/pages.ts'
import { type SearchHit, SearchQuery, SearchView } from '../contracts/search.ts'
import type { Sessions } from '../session/sessions.ts'
import type { Installation } from '../view/installation.ts'
import { needsRole, sessionOf } from './browser-guard.ts'
import { partOf } from './missing-service.ts'
import { PEER_PROBLEMS } from './peer-problems.ts'

export interface SearchRouteDeps {
  readonly sessions: Sessions
  readonly isHttps: boolean
  readonly coordinator: ServiceClient
  readonly tokenService: ServiceClient
  readonly installation: () => Installation
}

/** The maximum numbers of hits of each kind. The browser adds hits among the pages, up to 20 hits in total. */
const RUNS = 7
const COMPANIES = 5
const PROCESSES = 3

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

/** `GET /search`: runs whose id begins with a text, and companies and processes whose names contain the text. */
export function searchRoutes(deps: SearchRouteDeps): Hono {
  const { sessions, isHttps, coordinator, tokenService } = deps

  async function runs(q: string, person: string): Promise<readonly SearchHit[]> {
    const query = new URLSearchParams({ idPrefix: q, limit: String(RUNS) })
    const { items } = await coordinator.send(
      `/transactions?${query.toString()}`,
      { person },
      RunPage,
    )
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

  async function companies(q: string, person: string): Promise<readonly SearchHit[]> {
    const query = new URLSearchParams({ q, limit: String(COMPANIES) })
    const path = `/credentials?${query.toString()}`
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
        Page: `${pages.runs}?${new URLSearchParams({ process: name }).toString()}`,
      }))

  return new Hono().get(
    '/search',
    needsRole(sessions, 'viewer', isHttps),
    describeRoute({
      operationId: 'search',
      tags: ['search'],
      summary: 'Runs by the beginning of their id, companies and processes by a part of their name',
      responses: { 200: jsonResponse('the hits', SearchView), ...problemResponses(PEER_PROBLEMS) },
    }),
    validate('query', SearchQuery),
    async (c) => {
      const { q } = c.req.valid('query')
      const person = sessionOf(c).user
      const found = await Promise.all([
        partOf('coordinator', hitsOf(runs(q, person)), []),
        partOf('token-service', hitsOf(companies(q, person)), []),
      ])
      return c.json({
        Hits: [...found.flatMap(({ part }) => part), ...processes(q)],
        Unavailable: found.flatMap(({ unavailable }) => unavailable),
      } satisfies SearchView)
    },
  )
}

/** No id or name can contain a text that a service rejects as invalid, so such a text has no hits. */
const hitsOf = (search: Promise<readonly SearchHit[]>): Promise<readonly SearchHit[]> =>
  search.catch((error: unknown) => {
    if (hasCode(error, 'invalid_request')) return []
    throw error
  })
