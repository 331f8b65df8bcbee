import type { Context } from 'hono'
import { deleteCookie, getCookie, setCookie } from 'hono/cookie'
import { KNOWN_BROWSER_DAYS } from '../session/known-browsers.ts'

/**
 * Cookies with the prefix `__Host-` are sent to this host and path only (RFC 6265bis §4.1.3.2). Browsers accept such
 * cookies only over https.
 */
export const cookieName = (isHttps: boolean): string => (isHttps ? '__Host-console' : 'console')

/** Sets the cookie with the secret of a session. No script can read it, and no other site can send it. */
export function setSessionCookie(
  c: Context,
  secret: string,
  { isHttps, sessionHours }: { readonly isHttps: boolean; readonly sessionHours: number },
): void {
  setCookie(c, cookieName(isHttps), secret, {
    path: '/',
    httpOnly: true,
    sameSite: 'Strict',
    secure: isHttps,
    maxAge: sessionHours * 3_600,
  })
}

/** Removes the cookie of a session. */
export function deleteSessionCookie(c: Context, isHttps: boolean): void {
  deleteCookie(c, cookieName(isHttps), { path: '/', secure: isHttps })
}

const knownBrowserName = (isHttps: boolean): string => `${cookieName(isHttps)}-browser`

/** Sets the cookie by which a browser in which a person has signed in is recognized at the next sign-in. */
export function setKnownBrowser(c: Context, value: string, isHttps: boolean): void {
  setCookie(c, knownBrowserName(isHttps), value, {
    path: '/',
    httpOnly: true,
    sameSite: 'Strict',
    secure: isHttps,
    maxAge: KNOWN_BROWSER_DAYS * 86_400,
  })
}

export const readKnownBrowser = (c: Context, isHttps: boolean): string | undefined =>
  getCookie(c, knownBrowserName(isHttps))
