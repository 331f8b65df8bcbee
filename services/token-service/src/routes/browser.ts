/** What the routes for browsers share: pages, cookies, checks of a navigation and query parameters. */
import { randomBytes } from 'node:crypto'
import type { Context } from 'hono'
import { getCookie, setCookie } from 'hono/cookie'
import { html } from 'hono/html'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import type { z } from 'zod'
import { Realm } from '@integration-host/shared/contracts/realm'
import { type ErrorCode, IntegrationError } from '@integration-host/shared/errors'
import {
  isLoopback,
  rejectHead,
  rejectSubresource,
} from '@integration-host/shared/http/origin-guard'
import { problemOf, problemResponse } from '@integration-host/shared/http/problem'
import {
  createProductPages,
  PAGE_POLICY,
  PAGE_STYLE_SOURCE,
  type PageContent,
  type Product,
} from '@integration-host/shared/http/page'
import { problems, textResponse } from '@integration-host/shared/http/service-app'
import { DecryptionError, type KeyRing } from '@integration-host/shared/secrets/envelope'
import {
  AUTHORIZATION_TTL_MS,
  type StartedAuthorization,
} from '../authorization/authorization-request.ts'

const REMEMBERED_MS = 600_000

export type Browser = ReturnType<typeof createBrowser>

/** Returns the functions that depend on the settings: the pages say which product asks for access. */
export function createBrowser(options: {
  readonly product: Product
  readonly keys: KeyRing
  /** The setting `REDIRECT`: the URL of this service as browsers see it. */
  readonly redirectUri: URL
  readonly now: () => number
}) {
  const { product, redirectUri, now } = options
  const { page: productPage, withLogo } = createProductPages(product)
  const pagePolicy = withLogo(PAGE_POLICY)
  const isSecure = redirectUri.protocol === 'https:'
  // A browser accepts a __Host- cookie only from this host and over https. Neither a sibling domain nor an attacker in
  // the network can therefore set this cookie.
  const nameOf = (cookie: string): string => (isSecure ? `__Host-${cookie}` : cookie)
  const setFor = (ms: number, c: Context, cookie: string, value: string): void =>
    setCookie(c, nameOf(cookie), value, {
      httpOnly: true,
      sameSite: 'Lax', // Browsers do not send a Strict cookie when the provider's site redirects to the callback.
      secure: isSecure,
      path: '/',
      maxAge: ms / 1_000,
    })
  const ring = options.keys.derive('connected-company')
  const placeOf = (name: string) => ({ name, field: 'connected', version: 1 })

  /**
   * Returns an HTML page with a heading, one paragraph, and `content` below them. Heading and paragraph are escaped.
   *
   * The page overrides the header `Referrer-Policy: no-referrer`, under which browsers send `Origin: null` with a form
   * (Fetch, section 3.2). {@link requireSameOrigin} needs the origin if a browser does not support Fetch Metadata. The
   * policy of the page sends no referrer to other origins.
   */
  const page = (title: string, text: string, content?: PageContent): PageContent =>
    productPage(
      title,
      html`<h1>${title}</h1>
        <p>${text}</p>
        ${content ?? ''}`,
      html`<meta name="referrer" content="same-origin" />`,
    )

  /**
   * Returns the `Content-Security-Policy` of a page with a {@link button}. It has no `form-action`, because browsers
   * would also apply this directive to the redirect to the provider after the form.
   */
  const formPolicy = (scriptNonce: string): string =>
    withLogo(
      `default-src 'none'; style-src ${PAGE_STYLE_SOURCE}; script-src 'nonce-${scriptNonce}'; base-uri 'none'; frame-ancestors 'none'`,
    )

  /** Returns the value of the cookie that binds an authorization to this browser; `null` if there is none. */
  function idOf(c: Context): string | null {
    const cookie = getCookie(c, nameOf('authorization'))
    return cookie !== undefined && /^[A-Za-z0-9_-]{43}$/.test(cookie) ? cookie : null
  }

  /**
   * Responds to an error with an HTML page if the client accepts HTML, and with a problem document otherwise.
   * `nextStep` returns what the page offers below the error.
   */
  async function forBrowser(
    c: Context,
    work: () => Promise<Response>,
    nextStep?: (scriptNonce: string) => PageContent | null,
  ): Promise<Response> {
    c.header('Cache-Control', 'no-store')
    c.header('Content-Security-Policy', pagePolicy)
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof IntegrationError) || !c.req.header('accept')?.includes('text/html'))
        throw error
      const { status } = problemResponse(c, error)
      const { title, detail = '' } = problemOf(error)
      const nonce = createNonce()
      const content = nextStep?.(nonce) ?? null
      if (content !== null) c.header('Content-Security-Policy', formPolicy(nonce))
      return c.html(page(title, detail, content ?? undefined), status as ContentfulStatusCode)
    }
  }

  /**
   * Returns the URL of the request with its origin replaced by the origin of `REDIRECT`, if the two origins differ
   * only in the name of the loopback host; `null` in every other case.
   *
   * The authorization must start at the origin of `REDIRECT`, because a browser does not send a cookie of `127.0.0.1`
   * to `localhost`, and Intuit accepts only `localhost` as a loopback name. A URL is returned only if the ports are
   * equal. Otherwise the redirect would loop behind a proxy that rewrites `Host`.
   */
  function atOwnOrigin(c: Context): string | null {
    const requested = new URL(c.req.url)
    const isSameService =
      isLoopback(requested.hostname) &&
      isLoopback(redirectUri.hostname) &&
      requested.port === redirectUri.port
    return isSameService && requested.hostname !== redirectUri.hostname
      ? `${redirectUri.origin}${requested.pathname}${requested.search}`
      : null
  }

  return {
    page,
    formPolicy,
    idOf,
    forBrowser,
    atOwnOrigin,

    /** Returns the name of the product, or the words `other` if the product has no name. */
    productOr: (other: string): string => product.PRODUCT_NAME ?? other,

    /**
     * Starts an authorization that is bound to the browser of the request, and redirects the browser to the provider.
     * The cookie expires together with the authorization.
     */
    async authorize(
      c: Context,
      start: (browser: string) => Promise<StartedAuthorization>,
    ): Promise<Response> {
      // All authorizations of a browser share one cookie, so that a second tab does not invalidate the authorization of
      // the first.
      const browser = idOf(c) ?? randomBytes(32).toString('base64url')
      const { url } = await start(browser)
      setFor(AUTHORIZATION_TTL_MS, c, 'authorization', browser)
      // After a submitted form, status 303 makes the browser follow the redirect with GET (RFC 9110 §15.4.4).
      return c.redirect(url, c.req.method === 'POST' ? 303 : 302)
    },

    /**
     * Notes in the browser, for ten minutes, that it has connected the company of the credential `name`. Everybody can
     * open `/connected?name=…`, so a client that guesses realm ids would get the names of companies. The page therefore
     * shows a name only to a browser with this sealed cookie.
     */
    rememberConnected(c: Context, name: string): void {
      setFor(REMEMBERED_MS, c, 'connected', ring.seal(String(now() + REMEMBERED_MS), placeOf(name)))
    },

    /** Returns whether this browser has just connected the company of the credential `name`. */
    hasConnected(c: Context, name: string): boolean {
      try {
        return Number(ring.open(getCookie(c, nameOf('connected')) ?? '', placeOf(name))) > now()
      } catch (error) {
        if (error instanceof DecryptionError) return false
        throw error
      }
    },

    /** Responds to a navigation of a browser, at the origin of `REDIRECT`. */
    navigated: (c: Context, work: () => Promise<Response>): Promise<Response> =>
      forBrowser(c, async () => {
        rejectHead(c, 'GET')
        rejectSubresource(c)
        const own = atOwnOrigin(c)
        return own === null ? work() : c.redirect(own, 302)
      }),
  }
}

/** Where a form is sent, and its hidden fields. */
export interface FormTarget {
  readonly method: 'get' | 'post'
  /** The path of another page. Without it, the form is sent to the URL of its own page. */
  readonly action?: string
  readonly fields?: Readonly<Record<string, string>>
}

/** Returns a new nonce for {@link button} and `formPolicy`. */
export const createNonce = (): string => randomBytes(16).toString('base64')

/**
 * Returns a form with one button. A script disables the button after the first click, because a second click would
 * cancel the request and send it again. `scriptNonce` is the nonce in the page's policy (`formPolicy`).
 */
export const button = (
  label: string,
  scriptNonce: string,
  { method, action, fields = {} }: FormTarget = { method: 'post' },
): PageContent =>
  html`<form method="${method}" ${action === undefined ? '' : html`action="${action}"`}>
      ${Object.entries(fields).map(
        ([name, value]) => html`<input type="hidden" name="${name}" value="${value}" />`,
      )}
      <button>${label}</button>
    </form>
    <script nonce="${scriptNonce}">
      document.forms[0].addEventListener('submit', (event) => {
        event.submitter.disabled = true
      })
    </script>`

/**
 * Returns the `responses` entries of routes for browsers: an HTML page if the client accepts HTML, and a problem
 * document otherwise.
 */
export const browserProblems = (...codes: readonly ErrorCode[]) =>
  Object.fromEntries(
    Object.entries(problems(...codes)).map(([status, { description, content }]) => [
      status,
      { description, content: { ...content, ...textResponse(description, 'text/html').content } },
    ]),
  )

/**
 * Rejects a form from another site. Browsers send `Sec-Fetch-Site` with each POST, and older browsers send `Origin`. A
 * client that sends neither is not a browser, so no other site can control it.
 */
export function requireSameOrigin(c: Context): void {
  const site = c.req.header('Sec-Fetch-Site')
  const origin = c.req.header('Origin')
  const isOwn = (from: string): boolean => URL.parse(from)?.host === c.req.header('Host')
  const isAllowed =
    site === undefined ? origin === undefined || isOwn(origin) : site === 'same-origin'
  if (isAllowed) return
  throw new IntegrationError(
    'forbidden',
    'The request comes from another site. Open the link itself in the browser, and press the button on its page.',
  )
}

/**
 * Returns the realm in a query; `null` if it is absent. The name of the parameter is read without case, because Intuit's
 * documents write `realmId`, `realmid` and `RealmID`.
 *
 * @throws {IntegrationError} `invalid_request` if the query has several realms, or an unusable one.
 */
export function realmParameter(c: Context): string | null {
  const spellings = Object.keys(c.req.queries()).filter((name) => name.toLowerCase() === 'realmid')
  return single(c, ['realmId', ...spellings.filter((name) => name !== 'realmId')], Realm)
}

/**
 * Returns a query parameter that has one of several names; `null` if it is absent or empty.
 *
 * @throws {IntegrationError} `invalid_request` if the request has more than one parameter with one of these names, or
 * if the value does not match the schema.
 */
export function single(
  c: Context,
  names: readonly string[],
  schema: z.ZodType<string>,
): string | null {
  const all = names.flatMap((name) => c.req.queries(name) ?? [])
  const [value] = all
  const label = names[0] ?? ''
  if (all.length < 2 && (value === undefined || value === '')) return null
  const parsed = schema.safeParse(value)
  const problem = all.length > 1 ? 'occurs more than once' : parsed.error?.issues[0]?.message
  if (problem !== undefined) throw new IntegrationError('invalid_request', `${label}: ${problem}`)
  return value ?? null
}
