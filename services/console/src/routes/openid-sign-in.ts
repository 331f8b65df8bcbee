/**
 * The sign-in at an OpenID provider. The browser navigates to both routes, so their responses are pages. The cookie of
 * the flow is `SameSite=Lax`, because the browser comes back from another site.
 */
import { hash, randomBytes } from 'node:crypto'
import { IntegrationError } from '@integration-host/shared/errors'
import { problemOf } from '@integration-host/shared/http/problem'
import { textResponse } from '@integration-host/shared/http/service-app'
import type { Logger } from '@integration-host/shared/observability/logger'
import { type Context, Hono } from 'hono'
import { deleteCookie, getCookie, setCookie } from 'hono/cookie'
import { html } from 'hono/html'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { describeRoute } from 'hono-openapi'
import type { SignInWay } from '../contracts/session.ts'
import { browserName } from '../session/browser-name.ts'
import type { OpenIdProvider } from '../session/openid-provider.ts'
import { type OpenIdPeople, personOf } from '../session/openid-role.ts'
import type { Sessions } from '../session/sessions.ts'
import { FLOW_SECONDS, type SignInFlowStore } from '../session/sign-in-flow-store.ts'
import { setSessionCookie } from './session-cookie.ts'

/** The path to which the provider sends the browser back. */
export const CALLBACK_PATH = '/sign-in/callback'
const WAY = 'oidc'
const START_PATH = '/sign-in/oidc'
const MAX_RETURN_TO = 500

export interface OpenIdSignInDeps {
  readonly openId: OpenIdProvider
  readonly people: OpenIdPeople
  readonly flows: SignInFlowStore
  readonly sessions: Sessions
  readonly isHttps: boolean
  readonly sessionHours: number
  readonly consoleUrl: () => string
  /** The path of the style sheet of the browser's program. */
  readonly stylesheet: string
  readonly logger: Logger
  readonly onSignIn: (way: SignInWay, outcome: 'accepted' | 'rejected') => void
}

const digestOf = (secret: string): string => hash('sha256', secret, 'hex')

/** `GET /sign-in/oidc` sends the browser to the provider, and `GET /sign-in/callback` begins the session. */
export function openIdSignInRoutes(deps: OpenIdSignInDeps): Hono {
  const { openId, flows, sessions, isHttps, consoleUrl, stylesheet, logger } = deps
  const cookie = isHttps ? '__Host-console-sign-in' : 'console-sign-in'
  const tags = ['session']

  /** Responds to a rejected sign-in with a page that has a link to the sign-in page. */
  async function asPage(c: Context, work: () => Promise<Response>): Promise<Response> {
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof IntegrationError)) throw error
      deps.onSignIn(WAY, 'rejected')
      logger.warn({ way: WAY, code: error.code }, 'sign-in was rejected')
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
            description: 'to the provider, or to the same route at the address of CONSOLE_URL',
          },
          503: textResponse('the provider does not respond, as a page', 'text/html'),
        },
      }),
      (c) =>
        asPage(c, async () => {
          // A browser sends the cookie of the flow only to the host that has set this cookie. Therefore the sign-in
          // must begin at the address to which the provider sends the browser back.
          const own = new URL(consoleUrl())
          if (c.req.header('Host') !== own.host)
            return c.redirect(own.origin + START_PATH + new URL(c.req.url).search)
          const { url, flow } = await openId.begin()
          const secret = randomBytes(32).toString('base64url')
          await flows.put(digestOf(secret), { ...flow, returnTo: ownPath(c.req.query('to')) })
          setCookie(c, cookie, secret, {
            path: '/',
            httpOnly: true,
            sameSite: 'Lax',
            secure: isHttps,
            maxAge: FLOW_SECONDS,
          })
          return c.redirect(url)
        }),
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
        },
      }),
      (c) =>
        asPage(c, async () => {
          const secret = getCookie(c, cookie)
          deleteCookie(c, cookie, { path: '/', secure: isHttps })
          const flow = secret === undefined ? null : await flows.take(digestOf(secret))
          if (flow === null)
            throw new IntegrationError(
              'sign_in_rejected',
              'This sign-in did not begin in this browser within the last ten minutes',
            )
          const claims = await openId.complete(flow, new URL(c.req.url).search)
          const person = personOf(claims, deps.people)
          if (person === null)
            throw new IntegrationError(
              'forbidden',
              'This account may not use the console. An administrator can add its verified e-mail address, or one of its groups',
            )
          const session = await sessions.begin({
            ...person,
            way: WAY,
            browser: browserName(c.req.header('User-Agent')),
          })
          deps.onSignIn(WAY, 'accepted')
          logger.info({ ...person, way: WAY }, 'person signed in')
          setSessionCookie(c, session.secret, deps)
          // The response is a page and not a redirect. A redirect would belong to the navigation from another site, so
          // the browser would not send the strict cookie.
          const refresh = `0;url=${flow.returnTo}`
          return c.html(
            document(
              stylesheet,
              'Signed in',
              html`<p><a href="${flow.returnTo}">Continue</a></p>`,
              html`<meta http-equiv="refresh" content="${refresh}" />`,
            ),
          )
        }),
    )
}

/** Returns a text of the browser if it is the path of a page of the console; returns `/` for any other text. */
function ownPath(to: string | undefined): string {
  const base = 'http://console.invalid'
  if (to === undefined || to.length > MAX_RETURN_TO || !URL.canParse(to, base)) return '/'
  const { origin, pathname, search, hash: fragment } = new URL(to, base)
  // A browser would interpret `//host` and `/\host` as the address of another host.
  return origin !== base || pathname.startsWith('//') || pathname.startsWith('/sign-in')
    ? '/'
    : pathname + search + fragment
}

type Html = ReturnType<typeof html>

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
