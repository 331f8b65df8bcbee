/**
 * Functions for all routes that browsers use: the authorization cookie, the checks of a navigation, and the error
 * pages.
 */
import { randomBytes } from 'node:crypto'
import type { Context } from 'hono'
import { getCookie, setCookie } from 'hono/cookie'
import type { CredentialView } from '@integration-host/shared/contracts/credential'
import { type ErrorCode, IntegrationError } from '@integration-host/shared/errors'
import { problems, textResponse } from '@integration-host/shared/http/service-app'
import { DecryptionError, type KeyRing } from '@integration-host/shared/secrets/envelope'
import { isLoopback } from '@integration-host/shared/http/origin-guard'
import {
  AUTHORIZATION_TTL_MS,
  type StartedAuthorization,
} from '../authorization/authorization-request.ts'

/** The cookie that binds an authorization to the browser that started it. */
export interface BrowserCookie {
  /** Returns the value of the cookie in a request; `null` if there is none. */
  read(c: Context): string | null
  /**
   * Starts an authorization that is bound to the browser of the request, and redirects the browser to the provider. The
   * cookie expires together with the authorization.
   */
  authorize(
    c: Context,
    start: (browser: string) => Promise<StartedAuthorization>,
  ): Promise<Response>
}

/**
 * Returns the functions for the authorization cookie. If `redirectUri` is an https URL, the cookie is bound to this host
 * and sent over https only.
 *
 * @param redirectUri - the setting `REDIRECT`, which is the URL of this service as browsers see it
 */
export function createBrowserCookie(redirectUri: URL): BrowserCookie {
  const isSecure = redirectUri.protocol === 'https:'
  // A browser accepts a __Host- cookie only from this host and over https. Neither a sibling domain nor an attacker in
  // the network can therefore set this cookie.
  const name = isSecure ? '__Host-authorization' : 'authorization'
  const read = (c: Context): string | null => {
    const cookie = getCookie(c, name)
    return cookie !== undefined && /^[A-Za-z0-9_-]{43}$/.test(cookie) ? cookie : null
  }
  return {
    read,
    async authorize(c, start) {
      // All authorizations of a browser share one cookie, so that a second tab does not invalidate the authorization of
      // the first.
      const browser = read(c) ?? randomBytes(32).toString('base64url')
      const { url } = await start(browser)
      setCookie(c, name, browser, {
        httpOnly: true,
        sameSite: 'Lax', // Browsers do not send a Strict cookie when the provider's site redirects to the callback.
        secure: isSecure,
        path: '/',
        maxAge: AUTHORIZATION_TTL_MS / 1_000,
      })
      // After a submitted form, status 303 makes the browser follow the redirect with GET (RFC 9110 §15.4.4).
      return c.redirect(url, c.req.method === 'POST' ? 303 : 302)
    },
  }
}

/** Which company a browser has just connected, for the page at the end of the authorization. */
export interface ConnectedCompany {
  /** Notes in the browser, for ten minutes, that it has connected the company of this credential. */
  remember(c: Context, credential: Pick<CredentialView, 'Name'>): void
  /** Returns whether this browser has just connected the company of the credential with this name. */
  isRemembered(c: Context, name: string): boolean
}

const REMEMBERED_MS = 600_000

/**
 * Returns the functions for the connected company. Everybody can open `/connected?name=…`, so a client that guesses realm
 * ids would get the names of companies. The page therefore shows a name only to a browser with a cookie that this service
 * has sealed.
 */
export function createConnectedCompany(
  keys: KeyRing,
  redirectUri: URL,
  now: () => number,
): ConnectedCompany {
  const ring = keys.derive('connected-company')
  const place = (name: string) => ({ name, field: 'connected', version: 1 })
  const isSecure = redirectUri.protocol === 'https:'
  const cookie = isSecure ? '__Host-connected' : 'connected'
  const options = { httpOnly: true, sameSite: 'Lax', secure: isSecure, path: '/' } as const
  return {
    remember(c, { Name }) {
      const sealed = ring.seal(String(now() + REMEMBERED_MS), place(Name))
      setCookie(c, cookie, sealed, { ...options, maxAge: REMEMBERED_MS / 1_000 })
    },
    isRemembered(c, name) {
      const sealed = getCookie(c, cookie) ?? ''
      try {
        return Number(ring.open(sealed, place(name))) > now()
      } catch (error) {
        if (error instanceof DecryptionError) return false
        throw error
      }
    },
  }
}

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
 * Returns the URL of the request with its origin replaced by the origin of `REDIRECT`, if the two origins differ only
 * in the name of the loopback host; `null` in every other case.
 *
 * The authorization must start at the origin of `REDIRECT`, because a browser does not send a cookie of `127.0.0.1` to
 * `localhost`, and Intuit accepts only `localhost` as a loopback name. A URL is returned only if the ports are equal.
 * Otherwise the redirect would loop behind a proxy that rewrites `Host`.
 */
export function atOwnOrigin(c: Context, redirectUri: URL): string | null {
  const requested = new URL(c.req.url)
  const isSameService =
    isLoopback(requested.hostname) &&
    isLoopback(redirectUri.hostname) &&
    requested.port === redirectUri.port
  return isSameService && requested.hostname !== redirectUri.hostname
    ? `${redirectUri.origin}${requested.pathname}${requested.search}`
    : null
}
