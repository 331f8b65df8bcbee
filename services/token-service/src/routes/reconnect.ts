import { html } from 'hono/html'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { credentialName } from '@integration-host/shared/contracts/realm'
import { rejectHead, rejectSubresource } from '@integration-host/shared/http/origin-guard'
import type { NetworkOf } from '@integration-host/shared/http/peer-network'
import { textResponse } from '@integration-host/shared/http/service-app'
import { createRateLimit } from '@integration-host/shared/process/limits'
import type { Authorization } from '../authorization/authorization-request.ts'
import { busy } from '../authorization/exchange-admission.ts'
import type { DisconnectHints } from '../credential/disconnect-hints.ts'
import type { Pages } from './browser-page.ts'
import { atOwnOrigin, browserProblems, createBrowserCookie } from './browser-session.ts'
import { realmParameter } from './callback-parameters.ts'

/**
 * How often each process may look up a company for browsers, and for the browsers of one network. The limit slows down
 * clients that guess realm ids, and does not keep out the browsers of other networks.
 */
const LOOKUPS = { count: 400, perLane: 20, intervalMs: 1_000 }

export interface ReconnectRoutesDeps {
  readonly authorization: Pick<Authorization, 'start'>
  readonly disconnectHints: Pick<DisconnectHints, 'follow'>
  /** Returns whether a credential of this name is stored. */
  readonly isKnown: (name: string) => Promise<boolean>
  /** The setting `REDIRECT`: the URL of this service to which the provider redirects browsers. */
  readonly redirectUri: URL
  readonly networkOf: NetworkOf
  readonly pages: Pages
}

/**
 * The pages at the Reconnect URL and at the Disconnect URL. Operators enter both URLs in the settings of the
 * application at the provider.
 */
export function reconnectRoutes(deps: ReconnectRoutesDeps): Hono {
  const { authorization, disconnectHints, isKnown, redirectUri } = deps
  const { forBrowser, page, productOr } = deps.pages
  const tags = ['authorization']
  const parameters = [
    { name: 'realmId', in: 'query' as const, required: false, schema: { type: 'string' as const } },
  ]
  const cookie = createBrowserCookie(redirectUri)
  const lookups = createRateLimit({ ...LOOKUPS, now: () => performance.now() })
  return new Hono()
    .get(
      '/reconnect',
      describeRoute({
        operationId: 'reconnect',
        tags,
        parameters,
        summary: 'Starts an authorization that accepts only the company realmId, if it is known',
        responses: {
          200: textResponse('a page that says what to do', 'text/html'),
          302: { description: 'to the provider' },
          ...browserProblems(
            'invalid_request',
            'method_not_allowed',
            'busy',
            'provider_unavailable',
            'store_unavailable',
          ),
        },
      }),
      (c) =>
        forBrowser(c, async () => {
          rejectHead(c, 'GET')
          rejectSubresource(c)
          const own = atOwnOrigin(c, redirectUri)
          if (own !== null) return c.redirect(own, 302)
          const realm = realmParameter(c)
          if (realm !== null && !lookups.take(deps.networkOf(c))) throw busy()
          if (realm === null || !(await isKnown(credentialName(realm))))
            return c.html(page('Connect your company', UNKNOWN_COMPANY))
          return cookie.authorize(c, (browser) =>
            authorization.start({ returnTo: null, realm, browser, isByVisitor: true }),
          )
        }),
    )
    .get(
      '/disconnected',
      describeRoute({
        operationId: 'showDisconnected',
        tags,
        parameters,
        summary: 'The page for a company that has disconnected the application at the provider',
        responses: {
          200: textResponse('the page', 'text/html'),
          ...browserProblems('invalid_request'),
        },
      }),
      (c) =>
        forBrowser(c, async () => {
          const realm = realmParameter(c)
          // The response does not wait for the refresh, so it is the same for every company.
          if (realm !== null && c.req.method === 'GET')
            disconnectHints.follow(credentialName(realm))
          const query = realm === null ? '' : `?realmId=${realm}`
          return c.html(
            page(
              'Disconnected',
              disconnected(productOr('this application')),
              html`<p><a href="reconnect${query}">Connect again</a></p>`,
            ),
          )
        }),
    )
}

const UNKNOWN_COMPANY =
  'This address cannot tell which company to connect. Ask the operator of this integration for a connect link, and open that link in this browser.'

const disconnected = (application: string): string =>
  `If you disconnected ${application} at your accounting provider, it can no longer read or change the data of your company, and work for your company waits until you connect again.`
