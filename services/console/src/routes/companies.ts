import { keyName } from '../isomorphic/key-name.ts'
import { nameOf } from '@integration-host/shared/contracts/labels'
import { CompanyPauseView, PausedCompanies } from '@integration-host/shared/contracts/company-pause'
import { AuditPage } from '@integration-host/shared/contracts/audit'
import { CredentialCounts, CredentialView } from '@integration-host/shared/contracts/credential'
import { credentialName, Realm, realmOf } from '@integration-host/shared/contracts/realm'
import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { ServiceClient } from '../adapters/peers/service-client.ts'
import { ReasonBody } from '../contracts/processes.ts'
import {
  companyActions,
  CompaniesQuery,
  CompaniesView,
  CompanyActionBody,
  CompanyPageView,
  CompanyView,
  ConnectLinkBody,
  ConnectLinkView,
  Disconnected,
  LabelBody,
} from '../contracts/companies.ts'
import type { Sessions } from '../session/sessions.ts'
import { activityOfAudit } from '../view/activity.ts'
import type { Installation } from '../view/installation.ts'
import { waitingRuns } from '../view/run-counts.ts'
import { needsRole, sessionOf } from './browser-guard.ts'
import { ACTION_PROBLEMS, PEER_PROBLEMS } from './peer-problems.ts'

export interface CompanyRouteDeps {
  readonly sessions: Sessions
  readonly isHttps: boolean
  readonly tokenService: ServiceClient
  readonly coordinator: ServiceClient
  readonly installation: () => Installation
}

const ROWS = 100
const HISTORY = 50

const CredentialPage = z.object({
  items: z.array(CredentialView),
  next_cursor: z.string().nullable(),
})
const CreatedLink = z.object({ url: z.string(), expires_at: z.iso.datetime() })
const RealmParam = z.object({ realm: Realm })

/**
 * The routes of companies: the list, one company with its history, the actions on it, and connect
 * links.
 */
export function companyRoutes(deps: CompanyRouteDeps): Hono {
  const { sessions, isHttps, tokenService, coordinator } = deps
  const tags = ['companies']
  const viewer = needsRole(sessions, 'viewer', isHttps)
  const operator = needsRole(sessions, 'operator', isHttps)
  const person = (c: Context): { readonly person: string } => ({ person: sessionOf(c).user })
  const companyResponses = {
    200: jsonResponse('the company', CompanyView),
    ...problemResponses(ACTION_PROBLEMS),
  }

  return new Hono()
    .get(
      '/companies',
      viewer,
      describeRoute({
        operationId: 'listCompanies',
        tags,
        summary: 'Companies in the order of their ids, and how many there are in each state',
        responses: {
          200: jsonResponse('a page', CompaniesView),
          ...problemResponses(PEER_PROBLEMS),
        },
      }),
      validate('query', CompaniesQuery),
      async (c) => {
        const query = new URLSearchParams({ limit: String(ROWS) })
        for (const [name, value] of Object.entries(c.req.valid('query')))
          if (value !== undefined) query.set(name, value)
        const [page, counts] = await Promise.all([
          tokenService.send(`/credentials?${query.toString()}`, person(c), CredentialPage),
          tokenService.send('/credentials/summary', person(c), CredentialCounts),
        ])
        return c.json({
          Companies: page.items.map(viewOf),
          Counts: counts,
          Next: page.next_cursor,
        } satisfies CompaniesView)
      },
    )
    .get(
      '/companies/:realm',
      viewer,
      describeRoute({
        operationId: 'getCompany',
        tags,
        summary: 'One company with its history',
        responses: {
          200: jsonResponse('the company', CompanyPageView),
          ...problemResponses(PEER_PROBLEMS),
        },
      }),
      validate('param', RealmParam),
      async (c) => {
        const { realm } = c.req.valid('param')
        const name = credentialName(realm)
        const [company, audit, paused] = await Promise.all([
          tokenService.send(`/credentials/${name}`, person(c), CredentialView),
          tokenService.send(`/audit?name=${name}&limit=${HISTORY}`, person(c), AuditPage),
          // The page of a company does not need the coordinator.
          coordinator.send('/realms/paused', person(c), PausedCompanies).catch(() => null),
        ])
        const pause = paused?.items.find((one) => one.Realm === realm)
        return c.json({
          Company: viewOf(company),
          Pause:
            pause === undefined
              ? null
              : {
                  At: pause.PausedAt,
                  By: pause.PausedBy === null ? null : keyName(pause.PausedBy),
                  Reason: pause.Reason,
                },
          WaitingRuns: waitingRuns(deps.installation().processes, realm),
          History: audit.items.flatMap((item) => {
            const entry = activityOfAudit(item)
            // The history is on the page of the company itself, so it needs neither the id nor a link to this page.
            return entry === null
              ? []
              : [{ ...entry, Target: nameOf(company) ?? entry.Target, Page: null }]
          }),
        } satisfies CompanyPageView)
      },
    )
    .post(
      '/companies/:realm/runs/:action',
      operator,
      describeRoute({
        operationId: 'pauseCompany',
        tags,
        summary: 'Pauses or resumes the runs of a company',
        responses: { 204: { description: 'done' }, ...problemResponses(ACTION_PROBLEMS) },
      }),
      validate('param', RealmParam.extend({ action: z.enum(companyActions) })),
      validate('json', ReasonBody),
      async (c) => {
        const { realm, action } = c.req.valid('param')
        const request = { ...person(c), method: 'POST', body: c.req.valid('json') } as const
        await coordinator.send(`/realms/${realm}/${action}`, request, CompanyPauseView)
        return c.body(null, 204)
      },
    )
    .post(
      '/companies/:realm/refresh',
      operator,
      describeRoute({
        operationId: 'refreshCompany',
        tags,
        summary: 'Refreshes the access token now',
        responses: companyResponses,
      }),
      validate('param', RealmParam),
      validate('json', CompanyActionBody),
      async (c) => {
        const name = credentialName(c.req.valid('param').realm)
        const { Version, Reason } = c.req.valid('json')
        const request = {
          ...person(c),
          method: 'POST',
          body: { Reason },
          ifVersion: Version,
        } as const
        const company = await tokenService.send(
          `/credentials/${name}/refresh`,
          request,
          CredentialView,
        )
        return c.json(viewOf(company))
      },
    )
    .post(
      '/companies/:realm/label',
      operator,
      describeRoute({
        operationId: 'labelCompany',
        tags,
        summary: 'Changes the name by which people know the company',
        responses: companyResponses,
      }),
      validate('param', RealmParam),
      validate('json', LabelBody),
      async (c) => {
        const name = credentialName(c.req.valid('param').realm)
        const request = { ...person(c), method: 'PATCH', body: c.req.valid('json') } as const
        return c.json(
          viewOf(await tokenService.send(`/credentials/${name}`, request, CredentialView)),
        )
      },
    )
    .post(
      '/companies/:realm/disconnect',
      operator,
      describeRoute({
        operationId: 'disconnectCompany',
        tags,
        summary: 'Revokes the grant at the provider and removes the company',
        responses: {
          200: jsonResponse('removed', Disconnected),
          ...problemResponses(ACTION_PROBLEMS),
        },
      }),
      validate('param', RealmParam),
      validate('json', CompanyActionBody),
      async (c) => {
        const name = credentialName(c.req.valid('param').realm)
        const { Version, Reason } = c.req.valid('json')
        let Revoked = false
        const request = {
          ...person(c),
          method: 'DELETE',
          body: { Reason },
          ifVersion: Version,
          onHeaders: (headers: Pick<Headers, 'get'>): void => {
            Revoked = headers.get('Revocation') === 'confirmed'
          },
        } as const
        await tokenService.send(`/credentials/${name}`, request, z.null())
        return c.json({ Revoked } satisfies Disconnected)
      },
    )
    .post(
      '/connect-links',
      operator,
      describeRoute({
        operationId: 'createConnectLink',
        tags,
        summary: 'Creates a link with which the owner of a company connects it, once',
        responses: {
          201: jsonResponse('the link', ConnectLinkView),
          ...problemResponses(ACTION_PROBLEMS),
        },
      }),
      validate('json', ConnectLinkBody),
      async (c) => {
        const { Realm: realm, Label: label, Hours } = c.req.valid('json')
        const body = {
          ...(realm !== undefined && { realm }),
          ...(label !== undefined && { label }),
          expires_in: Hours * 3_600,
        }
        const request = { ...person(c), method: 'POST', body } as const
        const link = await tokenService.send('/connect-links', request, CreatedLink)
        c.header('Cache-Control', 'no-store')
        return c.json({ Url: link.url, ExpiresAt: link.expires_at } satisfies ConnectLinkView, 201)
      },
    )
}

const viewOf = (credential: CredentialView): CompanyView => ({
  ...credential,
  Realm: realmOf(credential.Name),
})
