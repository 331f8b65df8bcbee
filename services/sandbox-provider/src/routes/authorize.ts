import { textResponse } from '@integration-host/shared/http/service-app'
import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import {
  type AuthorizationRequest,
  isCompanyNamed,
  readAuthorizationRequest,
  redirectTo,
  requestParameters,
} from '../authorization/authorization-request.ts'
import { readDecision } from '../authorization/decision.ts'
import { MAX_COMPANIES } from '../company/companies.ts'
import { MAX_GRANTS } from '../grant/grants.ts'
import { freshRealm, issuerOf, paths, type Provider } from '../provider.ts'
import { authorizePage, pagePolicy, rejectedPage } from './authorize-page.ts'

/**
 * `GET /connect/oauth2`: the authorization endpoint. It returns a page for the user. A script can add
 * `sandbox_company=<realm>[:<name>]` or `sandbox_company=deny` to get the redirect without a page.
 */
export function authorizeRoutes(provider: Provider) {
  return new Hono()
    .get(paths.authorize, describeRoute({ operationId: 'authorize', ...DESCRIPTION }), (c) =>
      authorize(c, new URL(c.req.url).searchParams, provider),
    )
    .post(
      paths.authorize,
      describeRoute({ operationId: 'chooseCompany', ...DESCRIPTION }),
      async (c) => authorize(c, new URLSearchParams(await c.req.text()), provider),
    )
}

function authorize(c: Context, parameters: URLSearchParams, provider: Provider) {
  const { companies, grants } = provider
  const settings = provider.settings.current()
  const reading = readAuthorizationRequest(parameters, {
    clientId: provider.client.id,
    redirectUris: provider.redirectUris,
    rules: settings.redirectUris,
    pkce: settings.pkce,
  })
  // RFC 9207 requires `iss` in error responses as well.
  const iss = settings.responseIssuer ? issuerOf(provider.addresses()) : null
  // Status 303 makes the browser follow the redirect with GET after a submitted form. With another status, the browser
  // could post the form data to the application (RFC 9700 §4.12).
  const redirect = (to: string, response: Readonly<Record<string, string | null>>) =>
    c.redirect(redirectTo(to, { ...response, iss }), c.req.method === 'POST' ? 303 : 302)

  switch (reading.kind) {
    case 'rejected':
      return errorPage(c, reading.reason, 400)
    case 'error':
      return redirect(reading.redirectUri, {
        error: reading.error,
        error_description: reading.description,
        state: reading.state,
      })
    case 'valid':
      break
  }
  const { request } = reading
  const decision = readDecision(parameters, companies)
  switch (decision.kind) {
    case 'deny':
      // Intuit does not document whether it sends `state` when the user denies access. RFC 6749 §4.1.2.1 requires
      // `state`.
      return redirect(request.redirectUri, { error: 'access_denied', state: request.state })
    case 'open':
      return ask(c, parameters, request, provider, null)
    case 'invalid':
      return ask(c, parameters, request, provider, decision.reason)
    case 'connect': {
      const { company } = decision
      const code = companies.put(company)
        ? grants.issueCode({ ...request, realm: company.realm })
        : null
      if (code === null) return errorPage(c, FULL, 503)
      const realmId = isCompanyNamed(request.scope, settings) ? company.realm : null
      return redirect(request.redirectUri, { code, state: request.state, realmId })
    }
  }
}

function errorPage(c: Context, reason: string, status: 400 | 503) {
  c.header('Content-Security-Policy', pagePolicy(null))
  return c.html(rejectedPage(reason), status)
}

function ask(
  c: Context,
  parameters: URLSearchParams,
  request: AuthorizationRequest,
  provider: Provider,
  problem: string | null,
) {
  c.header('Content-Security-Policy', pagePolicy(request.redirectUri))
  const carried = requestParameters.flatMap((name) => {
    const value = parameters.get(name)
    return value === null ? [] : [[name, value] as const]
  })
  const companies = provider.companies.list()
  // The user probably wants to connect a company that has no valid grant: one whose grant was revoked, or a new company.
  const unconnected = companies.filter(({ realm }) => !provider.grants.has(realm))
  const revoked = unconnected.find(({ realm }) => provider.grants.wasRevoked(realm))
  return c.html(
    authorizePage({
      action: paths.authorize,
      carried,
      companies,
      chosen: (revoked ?? unconnected[0] ?? companies[0])?.realm,
      freshRealm: freshRealm(),
      problem,
    }),
    problem === null ? 200 : 400,
  )
}

const FULL = `The sandbox is full: it stores at most ${MAX_COMPANIES} companies and ${MAX_GRANTS} grants. POST /sandbox/reset deletes all of them.`

const DESCRIPTION = {
  tags: ['provider'],
  summary: 'Authorization endpoint',
  description:
    'Adding sandbox_company=<realm>[:<name>], or sandbox_company=deny, redirects immediately without a page.',
  parameters: [...requestParameters, 'sandbox_company'].map((name) => ({
    name,
    in: 'query' as const,
    required: ['client_id', 'redirect_uri', 'response_type', 'scope', 'state'].includes(name),
    schema: { type: 'string' as const },
  })),
  responses: {
    200: textResponse('a page to choose a company on', 'text/html'),
    302: {
      description:
        'redirect to the application with code, state and, for an accounting scope, realmId, or with an error; iss if the discovery document announces it',
    },
    303: { description: 'the same redirect after the form of the page' },
    400: textResponse(
      'a page: client or redirect URI are not known, or the choice is not a company',
      'text/html',
    ),
    503: textResponse('a page: the limit on companies or grants is reached', 'text/html'),
  },
}
