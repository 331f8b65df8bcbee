/** The pages with which a company is connected, reconnected and disconnected. They require no service key. */
import { type Context, Hono } from 'hono'
import { html } from 'hono/html'
import { describeRoute } from 'hono-openapi'
import { credentialName } from '@integration-host/shared/contracts/realm'
import { rejectSubresource } from '@integration-host/shared/http/origin-guard'
import { textResponse } from '@integration-host/shared/http/service-app'
import { createRateLimit } from '@integration-host/shared/process/limits'
import type { StartedAuthorization } from '../authorization/authorization-request.ts'
import { busy } from '../authorization/callback.ts'
import {
  browserProblems,
  button,
  createNonce,
  realmParameter,
  requireSameOrigin,
} from './browser.ts'
import type { RouteDeps } from './route-deps.ts'

const tags = ['authorization']
const parameter = (where: 'path' | 'query', name: string) => [
  { name, in: where, required: where === 'path', schema: { type: 'string' as const } },
]
/** The responses of the forms that use a link. */
const ofForm = {
  303: { description: 'to the provider' },
  ...browserProblems(
    'invalid_request',
    'forbidden',
    'connect_link_invalid',
    'store_unavailable',
    'provider_unavailable',
  ),
}

/** The routes of a connect link for browsers: its page, and the form on the page, which uses the link. */
export function connectRoutes({ connectLinks, nameOf, browser }: RouteDeps): Hono {
  const { forBrowser, formPolicy, page, productOr } = browser

  /** Responds to a form that uses a link. */
  const submitted = (c: Context, use: (browserId: string) => Promise<StartedAuthorization>) =>
    forBrowser(c, async () => {
      rejectSubresource(c)
      requireSameOrigin(c)
      return browser.authorize(c, use)
    })

  return new Hono()
    .get(
      '/connect/:ticket',
      describeRoute({
        operationId: 'showConnectLink',
        tags,
        parameters: parameter('path', 'ticket'),
        summary: 'The page of a connect link, with one button',
        description: 'Changes nothing, however often it is requested.',
        responses: {
          200: textResponse('the page', 'text/html'),
          302: { description: 'to the same page at the address of REDIRECT' },
          ...browserProblems('connect_link_invalid', 'store_unavailable'),
        },
      }),
      (c) =>
        forBrowser(c, async () => {
          const own = browser.atOwnOrigin(c)
          if (own !== null) return c.redirect(own, 302)
          const link = await connectLinks.find(c.req.param('ticket'), browser.idOf(c))
          const { realm } = link
          const label = link.label ?? (realm === null ? null : await nameOf(credentialName(realm)))
          const name = [label, realm].filter((part) => part !== null).join(', ')
          const company = name === '' ? 'your company' : `the company ${name}`
          const asking = productOr('')
          const nonce = createNonce()
          c.header('Content-Security-Policy', formPolicy(nonce))
          return c.html(
            page(
              'Connect your company',
              `${asking === '' ? '' : `${asking} asks for access to the books of ${company}. `}The button takes you to your accounting provider, where you sign in and allow the access to ${asking === '' ? company : 'it'}. Within ten minutes you can go back and use the link again, but only in this browser.`,
              button('Connect', nonce),
            ),
          )
        }),
    )
    .post(
      '/connect/:ticket',
      describeRoute({
        operationId: 'useConnectLink',
        tags,
        parameters: parameter('path', 'ticket'),
        summary:
          'Uses a connect link: starts an authorization and sends this browser to the provider',
        responses: ofForm,
      }),
      (c) => submitted(c, (id) => connectLinks.use(c.req.param('ticket'), id)),
    )
    .post(
      '/connect/again/:id',
      describeRoute({
        operationId: 'useConnectLinkAgain',
        tags,
        parameters: parameter('path', 'id'),
        summary: 'Starts another authorization of a connect link, in the browser that has used it',
        description:
          'The page of a failed authorization sends this form. The id of the link is not its ticket.',
        responses: ofForm,
      }),
      (c) => submitted(c, (id) => connectLinks.useAgain(c.req.param('id'), id)),
    )
}

/**
 * How often each process may look up a company for browsers, and for the browsers of one network. The limit slows down
 * clients that guess realm ids, and does not keep out the browsers of other networks.
 */
const LOOKUPS = { count: 400, perLane: 20, intervalMs: 1_000 }

/**
 * The pages at the Reconnect URL and at the Disconnect URL. Operators enter both URLs in the settings of the
 * application at the provider.
 */
export function reconnectRoutes(deps: RouteDeps): Hono {
  const { authorization, disconnectHints, browser, isKnown } = deps
  const { forBrowser, page, productOr } = browser
  const lookups = createRateLimit({ ...LOOKUPS, now: () => performance.now() })
  return new Hono()
    .get(
      '/reconnect',
      describeRoute({
        operationId: 'reconnect',
        tags,
        parameters: parameter('query', 'realmId'),
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
        browser.navigated(c, async () => {
          const realm = realmParameter(c)
          if (realm !== null && !lookups.take(deps.networkOf(c))) throw busy()
          if (realm === null || !(await isKnown(credentialName(realm))))
            return c.html(page('Connect your company', UNKNOWN_COMPANY))
          return browser.authorize(c, (id) =>
            authorization.start({ returnTo: null, realm, browser: id, isByVisitor: true }),
          )
        }),
    )
    .get(
      '/disconnected',
      describeRoute({
        operationId: 'showDisconnected',
        tags,
        parameters: parameter('query', 'realmId'),
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
