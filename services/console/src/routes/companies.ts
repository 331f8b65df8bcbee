import { withQuery } from '../isomorphic/pages.ts'
import { keyName } from '../isomorphic/texts.ts'
import { nameOf } from '@integration-host/shared/contracts/text'
import { CompanyPauseView, PausedCompanies } from '@integration-host/shared/contracts/company'
import { AuditPage } from '@integration-host/shared/contracts/audit'
import { CredentialCounts, CredentialView } from '@integration-host/shared/contracts/credential'
import { credentialName, Realm, realmOf } from '@integration-host/shared/contracts/realm'
import type { Hono } from 'hono'
import { z } from 'zod'
import { ReasonBody } from '../contracts/processes.ts'
import {
  CompaniesQuery,
  CompaniesView,
  CompanyActionBody,
  companyActions,
  CompanyPageView,
  CompanyView,
  ConnectLinkBody,
  ConnectLinkView,
  Disconnected,
  LabelBody,
} from '../contracts/companies.ts'
import { activityOfAudit } from '../view/activity.ts'
import { waitingRuns } from '../view/run-counts.ts'
import { guardedRoutes, type RouteDeps } from './guarded-route.ts'

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
export function companyRoutes(deps: RouteDeps): Hono {
  const { act, read, routes } = guardedRoutes(deps, 'companies')
  const { tokenService, coordinator } = deps

  read('/companies', {
    operationId: 'listCompanies',
    summary: 'Companies in the order of their ids, and how many there are in each state',
    query: CompaniesQuery,
    view: ['a page', CompaniesView],
    async respond({ by, query }) {
      const [page, counts] = await Promise.all([
        tokenService.send(withQuery('/credentials', { limit: ROWS, ...query }), by, CredentialPage),
        tokenService.send('/credentials/summary', by, CredentialCounts),
      ])
      const isPaused = new Set(deps.installation().paused?.map((one) => one.Realm))
      return {
        Companies: page.items.map((item) => {
          const company = viewOf(item)
          return isPaused.has(company.Realm) ? { ...company, IsPaused: true } : company
        }),
        Counts: counts,
        Next: page.next_cursor,
      } satisfies CompaniesView
    },
  })
  read('/companies/:realm', {
    operationId: 'getCompany',
    summary: 'One company with its history',
    param: RealmParam,
    view: ['the company', CompanyPageView],
    async respond({ by, param: { realm } }) {
      const name = credentialName(realm)
      const [company, audit, paused] = await Promise.all([
        tokenService.send(`/credentials/${name}`, by, CredentialView),
        tokenService.send(`/audit?name=${name}&limit=${HISTORY}`, by, AuditPage),
        // The page of a company does not need the coordinator.
        coordinator.send('/realms/paused', by, PausedCompanies).catch(() => null),
      ])
      const pause = paused?.items.find((one) => one.Realm === realm)
      return {
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
      } satisfies CompanyPageView
    },
  })
  act('/companies/:realm/runs/:action', {
    operationId: 'pauseCompany',
    summary: 'Pauses or resumes the runs of a company',
    param: RealmParam.extend({ action: z.enum(companyActions) }),
    body: ReasonBody,
    async respond({ by, param: { realm, action }, body }) {
      const request = { ...by, method: 'POST', body } as const
      await coordinator.send(`/realms/${realm}/${action}`, request, CompanyPauseView)
    },
  })
  act('/companies/:realm/refresh', {
    operationId: 'refreshCompany',
    summary: 'Refreshes the access token now',
    param: RealmParam,
    body: CompanyActionBody,
    view: ['the company', CompanyView],
    async respond({ by, param, body: { Version, Reason } }) {
      const name = credentialName(param.realm)
      const request = {
        ...by,
        method: 'POST',
        body: { Reason },
        ifVersion: Version,
      } as const
      const company = await tokenService.send(
        `/credentials/${name}/refresh`,
        request,
        CredentialView,
      )
      return viewOf(company)
    },
  })
  act('/companies/:realm/label', {
    operationId: 'labelCompany',
    summary: 'Changes the name by which people know the company',
    param: RealmParam,
    body: LabelBody,
    view: ['the company', CompanyView],
    async respond({ by, param, body }) {
      const name = credentialName(param.realm)
      const request = { ...by, method: 'PATCH', body } as const
      return viewOf(await tokenService.send(`/credentials/${name}`, request, CredentialView))
    },
  })
  act('/companies/:realm/disconnect', {
    operationId: 'disconnectCompany',
    summary: 'Revokes the grant at the provider and removes the company',
    param: RealmParam,
    body: CompanyActionBody,
    view: ['removed', Disconnected],
    async respond({ by, param, body: { Version, Reason } }) {
      const name = credentialName(param.realm)
      let Revoked = false
      const request = {
        ...by,
        method: 'DELETE',
        body: { Reason },
        ifVersion: Version,
        onHeaders: (headers: Pick<Headers, 'get'>): void => {
          Revoked = headers.get('Revocation') === 'confirmed'
        },
      } as const
      await tokenService.send(`/credentials/${name}`, request, z.null())
      return { Revoked } satisfies Disconnected
    },
  })
  act('/connect-links', {
    operationId: 'createConnectLink',
    summary: 'Creates a link with which the owner of a company connects it, once',
    body: ConnectLinkBody,
    view: ['the link', ConnectLinkView, 201],
    async respond({ c, by, body: { Realm: realm, Label: label, Hours } }) {
      const body = {
        ...(realm !== undefined && { realm }),
        ...(label !== undefined && { label }),
        expires_in: Hours * 3_600,
      }
      const request = { ...by, method: 'POST', body } as const
      const link = await tokenService.send('/connect-links', request, CreatedLink)
      c.header('Cache-Control', 'no-store')
      return { Url: link.url, ExpiresAt: link.expires_at } satisfies ConnectLinkView
    },
  })
  return routes
}

const viewOf = (credential: CredentialView): CompanyView => ({
  ...credential,
  Realm: realmOf(credential.Name),
})
