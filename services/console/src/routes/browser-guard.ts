/**
 * The checks of every request to `/api`. A site is a scheme and a domain, but not a port: a page on another port of
 * 127.0.0.1 can send requests with the cookie of the console (`Sec-Fetch-Site: same-site`). Therefore the cookie alone
 * is never sufficient.
 */
import { IntegrationError } from '@integration-host/shared/errors'
import type { Context, MiddlewareHandler } from 'hono'
import { getCookie } from 'hono/cookie'
import { actOnce } from './repeated-requests.ts'
import { cookieName } from './session-cookie.ts'
import { allows } from '../session/authorize.ts'
import type { Role } from '@integration-host/shared/access/scope'
import type { Session } from '../session/stores.ts'
import type { Sessions } from '../session/sessions.ts'

const changesState = (c: Context): boolean => c.req.method !== 'GET' && c.req.method !== 'HEAD'

/**
 * Responds 403 to a request that a page of another origin caused. A request that changes something also needs the
 * header `Origin` and a JSON body, which a form cannot send.
 */
export const onlyOwnPages =
  (isHttps: boolean): MiddlewareHandler =>
  async (c, next) => {
    const site = c.req.header('Sec-Fetch-Site')
    const origin = c.req.header('Origin')
    const isOwn = origin === `${isHttps ? 'https' : 'http'}://${c.req.header('Host') ?? ''}`
    const changes = changesState(c)
    // A browser that does not send Sec-Fetch-Site is recognized by its Origin.
    const isFromOwnPage = site === undefined ? isOwn : site === 'same-origin'
    if (!isFromOwnPage || (changes && !isOwn) || (origin !== undefined && !isOwn))
      throw new IntegrationError('forbidden', 'Only pages of the console may send this request')
    const type = c.req.header('Content-Type')?.split(';')[0]?.trim().toLowerCase()
    if (changes && c.req.method !== 'DELETE' && type !== 'application/json')
      throw new IntegrationError('unsupported_media_type', 'The body must be application/json')
    await next()
  }

/**
 * Responds 401 to a request without a valid session, and 403 to a request of a person who does not have the role. A
 * request with the `Idempotency-Key` of an earlier request gets the response to the earlier request.
 */
export const needsRole =
  (sessions: Sessions, role: Role, isHttps: boolean): MiddlewareHandler =>
  async (c, next) => {
    const isUnattended = c.req.header('Unattended') !== undefined
    const secret = getCookie(c, cookieName(isHttps))
    const session = await sessions.use(secret, isUnattended)
    if (secret === undefined || session === null)
      throw new IntegrationError('sign_in_needed', 'There is no valid session')
    if (!allows(session.role, role))
      throw new IntegrationError('forbidden', `This needs the role ${role}`)
    c.set('session', session)
    if (role === 'operator' && changesState(c)) c.set('isAction', true)
    await actOnce(c, secret, next)
  }

/** Says that a request of an operator changes nothing, so it is not announced as an action. */
export const changesNothing = (c: Context): void => c.set('isAction', false)

/**
 * Calls `acted` after each action of an operator. A rejected action has changed nothing. If a service has sent no
 * response, it may have executed the action.
 */
export const announceActions =
  (acted: () => void): MiddlewareHandler =>
  async (c, next) => {
    await next()
    const isRejected = c.res.status >= 400 && c.res.status < 500
    if (c.get('isAction') === true && !isRejected) acted()
  }

/** Returns the session that `needsRole` has found. */
export function sessionOf(c: Context): Session {
  const session = c.get('session') as Session | undefined
  if (session === undefined) throw new Error('the route is not behind needsRole')
  return session
}

const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "manifest-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ')

/**
 * Sets the security headers of every response, in addition to those that every service sends. The policy allows no
 * inline script or style, so text from a service can never become code. The documentation page keeps its own policy.
 */
export const securityHeaders: MiddlewareHandler = async (c, next) => {
  await next()
  const { headers } = c.res
  if (!headers.has('Content-Security-Policy')) headers.set('Content-Security-Policy', POLICY)
  headers.set('Cross-Origin-Opener-Policy', 'same-origin')
  headers.set('Cross-Origin-Resource-Policy', 'same-origin')
  headers.set('Permissions-Policy', 'camera=(), microphone=(), geolocation=()')
}
