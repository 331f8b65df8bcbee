import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { rejectSubresource } from '@integration-host/shared/http/origin-guard'
import { textResponse } from '@integration-host/shared/http/service-app'
import { credentialName } from '@integration-host/shared/contracts/realm'
import type { ConnectLinks } from '../authorization/connect-links.ts'
import { button, createNonce, type Pages } from './browser-page.ts'
import {
  atOwnOrigin,
  browserProblems,
  createBrowserCookie,
  requireSameOrigin,
} from './browser-session.ts'

/** The problems of the forms that use a link. */
const ofForm = browserProblems(
  'invalid_request',
  'forbidden',
  'connect_link_invalid',
  'store_unavailable',
  'provider_unavailable',
)

export interface ConnectRoutesDeps {
  readonly connectLinks: ConnectLinks
  readonly pages: Pages
  /** Returns the name by which people know the company of a credential; `null` if it has none, or is not stored. */
  readonly nameOf: (name: string) => Promise<string | null>
  /** The setting `REDIRECT`: the URL of this service to which the provider redirects browsers. */
  readonly redirectUri: URL
}

/**
 * The routes of a connect link for browsers: its page, and the form on the page, which uses the
 * link.
 */
export function connectRoutes({
  connectLinks,
  nameOf,
  pages,
  redirectUri,
}: ConnectRoutesDeps): Hono {
  const { forBrowser, formPolicy, page, productOr } = pages
  const tags = ['authorization']
  const cookie = createBrowserCookie(redirectUri)
  const parameters = [
    { name: 'ticket', in: 'path' as const, required: true, schema: { type: 'string' as const } },
  ]
  return new Hono()
    .get(
      '/connect/:ticket',
      describeRoute({
        operationId: 'showConnectLink',
        tags,
        parameters,
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
          const own = atOwnOrigin(c, redirectUri)
          if (own !== null) return c.redirect(own, 302)
          const link = await connectLinks.find(c.req.param('ticket'), cookie.read(c))
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
        parameters,
        summary:
          'Uses a connect link: starts an authorization and sends this browser to the provider',
        responses: {
          303: { description: 'to the provider' },
          ...ofForm,
        },
      }),
      (c) =>
        forBrowser(c, async () => {
          rejectSubresource(c)
          requireSameOrigin(c)
          return cookie.authorize(c, (browser) => connectLinks.use(c.req.param('ticket'), browser))
        }),
    )
    .post(
      '/connect/again/:id',
      describeRoute({
        operationId: 'useConnectLinkAgain',
        tags,
        parameters: [
          { name: 'id', in: 'path' as const, required: true, schema: { type: 'string' as const } },
        ],
        summary: 'Starts another authorization of a connect link, in the browser that has used it',
        description:
          'The page of a failed authorization sends this form. The id of the link is not its ticket.',
        responses: {
          303: { description: 'to the provider' },
          ...ofForm,
        },
      }),
      (c) =>
        forBrowser(c, async () => {
          rejectSubresource(c)
          requireSameOrigin(c)
          return cookie.authorize(c, (browser) => connectLinks.useAgain(c.req.param('id'), browser))
        }),
    )
}
