import { IntegrationError } from '@integration-host/shared/errors'
import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import {
  createRateLimit,
  createSemaphore,
  type Semaphore,
} from '@integration-host/shared/process/limits'
import type { Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { SessionView, SignIn, SignInOptions, type SignInWay } from '../contracts/session.ts'
import { browserName } from '../session/known-browsers.ts'
import { isPasswordOf, lineDigest, type User } from '../session/password.ts'
import type { Role } from '@integration-host/shared/access/scope'
import type { Session } from '../session/stores.ts'
import { sessionOf } from './browser-guard.ts'
import { guardedRoutes, OWN_PROBLEMS, type RouteDeps } from './guarded-route.ts'
import {
  deleteSessionCookie,
  readKnownBrowser,
  setKnownBrowser,
  setSessionCookie,
} from './session-cookie.ts'

/**
 * One password is checked at a time in each queue, because a check needs 32 MiB. At most `queueLength` other requests wait, of which
 * `laneLength` come from the same network or browser, each for at most `waitMs` milliseconds. A request that exceeds one
 * of these limits is rejected with 429. Networks and known browsers get their turns one after the other.
 */
const WAITING_CHECKS = { queueLength: 1_024, laneLength: 256, waitMs: 15_000 } as const
/** The user name of a person who signed in by a one-time link. */
const LINK_USER = 'operator'
const timeOf = (at: number | null): string | null =>
  at === null ? null : new Date(at).toISOString()

/** The routes that begin, show and end the session of a browser. */
export function sessionRoutes(deps: RouteDeps): Hono {
  const { sessions, isHttps, logger } = deps
  // Known browsers have a queue of their own, which unknown clients cannot fill, however many networks they have.
  const checks = { unknown: createSemaphore(1), known: createSemaphore(1) }
  // Anyone can try to sign in. The metric counts all attempts.
  const logged = createRateLimit({ count: 30, intervalMs: 60_000, now: () => performance.now() })
  const tags = ['session']
  const { routes, withRole } = guardedRoutes(deps, 'session')
  const view = (session: Session): SessionView => ({
    User: session.user,
    Role: session.role,
    ExpiresAt: new Date(session.expiresAt).toISOString(),
    CheckAt: timeOf(sessions.checkAt(session)),
    Now: new Date().toISOString(),
    SeesData: session.role === 'operator' || deps.viewersSeeData,
    TracesUrl: deps.tracesUrl,
    Sandbox: deps.sandbox !== null,
    CommandLine: deps.commandLine,
  })

  function rejected(way: SignInWay, message: string): IntegrationError {
    deps.onSignIn(way, 'rejected')
    if (logged.take()) logger.warn({ way }, 'sign-in was rejected')
    return new IntegrationError('sign_in_rejected', message)
  }

  async function personOf(
    c: Context,
    body: SignIn,
  ): Promise<{ user: string; role: Role; way: SignInWay; line?: string }> {
    if ('Link' in body) {
      if (!deps.ways.includes('link') || !deps.links.use(body.Link))
        throw rejected('link', 'This link was used already, or it is older than ten minutes')
      return { user: LINK_USER, role: 'operator', way: 'link' }
    }
    const browser = deps.knownBrowsers.idOf(body.User, readKnownBrowser(c, isHttps))
    const place = browser === null ? deps.networkOf(c) : `browser ${browser}`
    const queue = checks[browser === null ? 'unknown' : 'known']
    const user = await checkedUser(body.User, body.Password, place, queue)
    return { user: user.name, role: user.role, way: 'password', line: lineDigest(user) }
  }

  async function checkedUser(
    name: string,
    password: string,
    place: string,
    queue: Semaphore,
  ): Promise<User> {
    if (!deps.ways.includes('password'))
      throw rejected('password', 'Passwords are not accepted here')
    requireNoDelay(name, place)
    const release = await queue.acquire({ ...WAITING_CHECKS, lane: place })
    if (release === null)
      throw new IntegrationError('sign_in_delayed', 'Too many sign-ins at the same time', {
        retryAfterSeconds: 5,
      })
    try {
      // The delay is checked again, because another request for the same name may have failed while this request
      // waited.
      requireNoDelay(name, place)
      const user = deps.users.get(name)
      if (!(await isPasswordOf(user, password)) || user === undefined) {
        deps.delay.failed(name, place)
        throw rejected('password', 'The user name or the password is not right')
      }
      deps.delay.succeeded(name, place)
      return user
    } finally {
      release()
    }
  }

  function requireNoDelay(name: string, place: string): void {
    const seconds = deps.delay.secondsUntil(name, place)
    if (seconds > 0)
      throw new IntegrationError(
        'sign_in_delayed',
        `After the failed sign-ins, the next one is possible in ${seconds} s`,
        { retryAfterSeconds: seconds },
      )
  }

  routes.get(
    '/sign-in',
    describeRoute({
      operationId: 'getSignInOptions',
      tags,
      summary: 'The ways in which a person can sign in',
      responses: {
        200: jsonResponse('the ways', SignInOptions),
        ...problemResponses({ 403: 'not a page of the console' }),
      },
    }),
    (c) =>
      c.json({
        Ways: [...deps.ways],
        Provider: deps.openId?.host ?? null,
      } satisfies SignInOptions),
  )
  routes.post(
    '/session',
    describeRoute({
      operationId: 'signIn',
      tags,
      summary: 'Begins a session with a one-time link, or with a user name and a password',
      responses: {
        200: jsonResponse('the session; the cookie has its secret', SessionView),
        ...problemResponses({
          400: 'the body is not valid',
          401: 'the link or the password is not accepted',
          403: 'not a page of the console',
          415: 'not application/json',
          429: 'too many sign-ins, or too soon after a failed one',
        }),
      },
    }),
    validate('json', SignIn),
    async (c) => {
      const person = await personOf(c, c.req.valid('json'))
      const { user, role, way } = person
      const { session, secret } = await sessions.begin({
        ...person,
        browser: browserName(c.req.header('User-Agent')),
      })
      deps.onSignIn(way, 'accepted')
      logger.info({ user, role, way }, 'person signed in')
      setSessionCookie(c, secret, deps)
      if (way === 'password') setKnownBrowser(c, deps.knownBrowsers.issue(user), isHttps)
      return c.json(view(session))
    },
  )
  withRole(
    'GET',
    'viewer',
    OWN_PROBLEMS,
  )('/session', {
    operationId: 'getSession',
    summary: 'The session of this browser',
    view: ['the session', SessionView],
    respond: ({ c }) => view(sessionOf(c)),
  })
  withRole(
    'DELETE',
    'viewer',
    OWN_PROBLEMS,
  )('/session', {
    operationId: 'signOut',
    summary: 'Ends the session of this browser, in all its tabs',
    responses: { 204: { description: 'signed out' } },
    async respond({ c }) {
      const session = sessionOf(c)
      await sessions.end(session)
      logger.info({ user: session.user }, 'person signed out')
      deleteSessionCookie(c, isHttps)
    },
  })
  return routes
}
