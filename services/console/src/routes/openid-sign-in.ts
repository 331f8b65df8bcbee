/**
 * The sign-in at an OpenID provider. The browser navigates to both routes, so their responses are pages. The cookie of
 * the flow is `SameSite=Lax`, because the browser comes back from another site.
 */
import { hash } from 'node:crypto'
import { IntegrationError } from '@integration-host/shared/errors'
import { rejectHead, rejectSubresource } from '@integration-host/shared/http/origin-guard'
import { problemOf } from '@integration-host/shared/http/problem'
import { problemResponses, textResponse } from '@integration-host/shared/http/service-app'
import { createRateLimit } from '@integration-host/shared/process/limits'
import { type Context, Hono } from 'hono'
import { deleteCookie, getCookie, setCookie } from 'hono/cookie'
import { html } from 'hono/html'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { describeRoute } from 'hono-openapi'
import { browserName } from '../session/known-browsers.ts'
import type { OpenIdProvider } from '../adapters/openid/openid-provider.ts'
import { personOf } from '../session/authorize.ts'
import { FLOW_SECONDS } from '../session/sign-in-flow.ts'
import type { RouteDeps } from './guarded-route.ts'
import { cookieName, setSessionCookie } from './session-cookie.ts'

/** The path to which the provider sends the browser back. */
export const CALLBACK_PATH = '/sign-in/callback'
const WAY = 'oidc'
const START_PATH = '/sign-in/oidc'
const MAX_RETURN_TO = 500
/** The number of rejected sign-ins that are logged per minute. Anyone can cause them; the metric counts all of them. */
const LOGGED_PER_MINUTE = 30

export interface OpenIdSignInDeps extends RouteDeps {
  readonly openId: OpenIdProvider
  /** The path of the style sheet of the browser's program. */
  readonly stylesheet: string
}

/** `GET /sign-in/oidc` sends the browser to the provider, and `GET /sign-in/callback` begins the session. */
export function openIdSignInRoutes(deps: OpenIdSignInDeps): Hono {
  const { openId, flows, requests, sessions, isHttps, consoleUrl, stylesheet, logger } = deps
  const cookie = isHttps ? '__Host-console-sign-in' : 'console-sign-in'
  const tags = ['session']
  const logged = createRateLimit({
    count: LOGGED_PER_MINUTE,
    intervalMs: 60_000,
    now: () => performance.now(),
  })

  /** Responds to a rejected sign-in with a page that has a link to the sign-in page. */
  async function asPage(c: Context, work: () => Promise<Response>): Promise<Response> {
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof IntegrationError)) throw error
      deps.onSignIn(WAY, 'rejected')
      if (logged.take()) logger.warn({ way: WAY, code: error.code }, 'sign-in was rejected')
      const { status, detail = '' } = problemOf(error)
      return c.html(
        document(
          stylesheet,
          'Not signed in',
          html`<p class="failure" role="alert">${detail}.</p>
            <p><a href="/sign-in">Try again</a></p>`,
        ),
        status as ContentfulStatusCode,
      )
    }
  }

  return new Hono()
    .get(
      START_PATH,
      describeRoute({
        operationId: 'startOpenIdSignIn',
        tags,
        summary: 'Sends the browser to the OpenID provider',
        parameters: [{ name: 'to', in: 'query', required: false, schema: { type: 'string' } }],
        responses: {
          302: {
            description:
              'to the provider; to the page `to` at the address of CONSOLE_URL if the request comes from another site or host',
          },
          ...problemResponses({ 400: 'the request does not come from a navigation', 405: 'HEAD' }),
          503: textResponse('the provider does not respond, as a page', 'text/html'),
        },
      }),
      async (c) => {
        rejectHead(c, 'GET')
        rejectSubresource(c)
        const returnTo = ownPath(c.req.query('to'))
        // A browser sends the cookie of the flow only to the host that has set this cookie. Therefore the sign-in must
        // begin at the address to which the provider sends the browser back. Another site may not begin a sign-in: the
        // new cookie would end the sign-in that the person has begun. The page `to` has a button that begins one.
        const own = new URL(consoleUrl())
        if (c.req.header('Host') !== own.host || isFromOtherSite(c))
          return c.redirect(own.origin + returnTo)
        return asPage(c, async () => {
          // The browser of a person who has signed in sends the cookie of the session, because the navigation comes
          // from a page of the console. The provider then confirms this session.
          const session = await sessions.toConfirm(getCookie(c, cookieName(isHttps)))
          const { url, flow } = await openId.begin(session?.user)
          const confirmed = session !== null && { session: session.digest }
          setCookie(c, cookie, flows.seal({ ...flow, returnTo, ...confirmed }), {
            path: '/',
            httpOnly: true,
            sameSite: 'Lax',
            secure: isHttps,
            maxAge: FLOW_SECONDS,
          })
          return c.redirect(url)
        })
      },
    )
    .get(
      CALLBACK_PATH,
      describeRoute({
        operationId: 'completeOpenIdSignIn',
        tags,
        summary: 'The provider sends the browser back here; begins a session',
        responses: {
          200: textResponse('signed in: a page that leads to the console', 'text/html'),
          401: textResponse('the response does not belong to the sign-in, as a page', 'text/html'),
          403: textResponse('neither list names the person, as a page', 'text/html'),
          503: textResponse('the provider does not respond, as a page', 'text/html'),
          ...problemResponses({ 400: 'the request does not come from a navigation', 405: 'HEAD' }),
        },
      }),
      async (c) => {
        rejectHead(c, 'GET')
        rejectSubresource(c)
        return asPage(c, async () => {
          const flow = flows.open(getCookie(c, cookie) ?? '')
          if (flow === null)
            throw new IntegrationError(
              'sign_in_rejected',
              'This sign-in did not begin in this browser within the last ten minutes',
            )
          const claims = await openId.complete(flow, new URL(c.req.url).search)
          const person = claims === null ? null : personOf(claims, deps.people)
          if (flow.session !== undefined) {
            // A session that has ended meanwhile is not begun again without the person.
            const isConfirmed = person !== null && (await sessions.confirm(flow.session, person))
            if (!isConfirmed) await sessions.endByDigest(flow.session)
            deleteCookie(c, cookie, { path: '/', secure: isHttps })
            if (isConfirmed || claims === null)
              return c.html(continuePage(stylesheet, 'Signed in', flow.returnTo))
          }
          if (person === null)
            throw new IntegrationError(
              'forbidden',
              'This account may not use the console. An administrator can add its verified e-mail address, or one of its groups',
            )
          // Only now something is stored: for a person whom a list names, and whom the provider has signed in.
          if ((await requests.begin(`sign-in:${hash('sha256', flow.state)}`, '')) !== null)
            throw new IntegrationError('sign_in_rejected', 'This sign-in was completed before')
          const session = await sessions.begin({
            ...person,
            way: WAY,
            browser: browserName(c.req.header('User-Agent')),
          })
          deps.onSignIn(WAY, 'accepted')
          logger.info({ user: person.user, role: person.role, way: WAY }, 'person signed in')
          deleteCookie(c, cookie, { path: '/', secure: isHttps })
          setSessionCookie(c, session.secret, deps)
          // The response is a page and not a redirect. A redirect would belong to the navigation from another site, so
          // the browser would not send the strict cookie.
          return c.html(continuePage(stylesheet, 'Signed in', flow.returnTo))
        })
      },
    )
}

/**
 * Returns whether a page of another site, or of another port of this host, has caused the navigation. A program that is
 * not a browser, or an old browser, does not say so.
 */
const isFromOtherSite = (c: Context): boolean =>
  !['same-origin', 'none'].includes(c.req.header('Sec-Fetch-Site') ?? 'none')

/** Returns a text of the browser if it is the path of a page of the console; returns `/` for any other text. */
function ownPath(to: string | undefined): string {
  const base = 'http://console.invalid'
  if (to === undefined || to.length > MAX_RETURN_TO || !URL.canParse(to, base)) return '/'
  const { origin, pathname, search, hash: fragment } = new URL(to, base)
  const path = pathname + search + fragment // URL has percent-encoded it, so it may be longer than `to`
  // A browser would interpret `//host` and `/\host` as the address of another host.
  const isOwn = origin === base && !pathname.startsWith('//') && !pathname.startsWith('/sign-in')
  return isOwn && path.length <= MAX_RETURN_TO ? path : '/'
}

type Html = ReturnType<typeof html>

/** Returns a page that leads to a page of the console at once. */
const continuePage = (stylesheet: string, title: string, to: string) =>
  document(
    stylesheet,
    title,
    html`<p><a href="${to}">Continue</a></p>`,
    html`<meta http-equiv="refresh" content="${`0;url=${to}`}" />`,
  )

const document = (stylesheet: string, title: string, content: Html, head: Html | string = '') =>
  html`<!doctype html>
    <html lang="en" data-theme="system">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="color-scheme" content="light dark" />
        ${head}
        <title>${title} · Console</title>
        <link rel="stylesheet" href="${stylesheet}" />
      </head>
      <body>
        <main class="alone">
          <p class="brand"><span class="mark" aria-hidden="true"></span>Integration Host</p>
          <h1>${title}</h1>
          ${content}
        </main>
      </body>
    </html>`
