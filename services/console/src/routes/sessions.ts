/** The sessions: those of a person, those of all persons, and the same for holders of a service key. */
import { unauthorized } from '@integration-host/shared/access/access-keys'
import { IntegrationError } from '@integration-host/shared/errors'
import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import { Hono, type MiddlewareHandler } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { AllSessions, EndedSessions, OwnSessions, SignInLink } from '../contracts/session.ts'
import { pages } from '../isomorphic/pages.ts'
import type { Session } from '../session/stores.ts'
import { changesNothing, sessionOf } from './browser-guard.ts'
import { guardedRoutes, OWN_PROBLEMS, type RouteDeps } from './guarded-route.ts'

const UserQuery = z.object({ user: z.string().min(1).max(100) })
const ALL = ['the sessions, the last used first', AllSessions] as const
const ENDED = ['how many sessions have ended', EndedSessions] as const

/**
 * Returns the part of the digest that the browser gets. It gives no access, because a session is
 * found only by the secret in the cookie.
 */
const idOf = ({ digest }: Session): string => digest.slice(0, 16)

const timesOf = ({ createdAt, usedAt, expiresAt }: Session) => ({
  CreatedAt: new Date(createdAt).toISOString(),
  UsedAt: new Date(usedAt).toISOString(),
  ExpiresAt: new Date(expiresAt).toISOString(),
})

async function listAll({ sessions }: RouteDeps): Promise<AllSessions> {
  const all = await sessions.all()
  return {
    Sessions: all
      .toSorted((one, other) => other.usedAt - one.usedAt)
      .map((session) => ({
        User: session.user,
        Role: session.role,
        Way: session.way,
        Browser: session.browser,
        ...timesOf(session),
      })),
  }
}

async function endOf(
  { sessions, logger }: RouteDeps,
  user: string,
  by: string,
): Promise<EndedSessions> {
  const ended = await sessions.endOfUser(user)
  logger.info({ user, by, ended: ended.length }, 'sessions of a person were ended')
  return { Ended: ended.length }
}

/**
 * The routes of sessions for browsers. A person sees the sessions of all persons. An operator can end all of them, and
 * everyone those of their own.
 */
export function personRoutes(deps: RouteDeps): Hono {
  const { sessions, logger } = deps
  const { routes, withRole } = guardedRoutes(deps, 'session')
  const read = withRole('GET', 'viewer', OWN_PROBLEMS)
  read('/sessions', {
    operationId: 'listOwnSessions',
    summary: 'The sessions of this person, the newest first',
    view: ['the sessions', OwnSessions],
    async respond({ c }) {
      const current = sessionOf(c)
      const all = await sessions.ofSamePerson(current)
      return {
        Sessions: all.map((session) => ({
          Id: idOf(session),
          Browser: session.browser,
          IsCurrent: session.digest === current.digest,
          ...timesOf(session),
        })),
      } satisfies OwnSessions
    },
  })
  withRole('DELETE', 'viewer', { ...OWN_PROBLEMS, 404: 'the person has no such session' })(
    '/sessions/:id',
    {
      operationId: 'endOwnSession',
      summary: 'Ends a session of this person, in all its tabs',
      parameters: [{ name: 'id', in: 'path', required: true, schema: { type: 'string' } }],
      responses: { 204: { description: 'ended' } },
      async respond({ c }) {
        const id = c.req.param('id')
        const own = await sessions.ofSamePerson(sessionOf(c))
        const found = own.find((one) => idOf(one) === id)
        if (found === undefined)
          throw new IntegrationError('not_found', 'The session has ended already')
        await sessions.end(found)
        logger.info({ user: found.user }, 'person ended a session')
      },
    },
  )
  read('/persons', {
    operationId: 'listSessions',
    summary: 'The sessions of all persons',
    view: ALL,
    respond: () => listAll(deps),
  })
  withRole('DELETE', 'operator', {
    400: 'no user is named',
    401: 'no session',
    403: 'not a page of the console, or the role is not operator',
  })('/persons', {
    operationId: 'endSessions',
    summary: 'Ends all sessions of a person',
    query: UserQuery,
    view: ENDED,
    respond({ c, by, query: { user } }) {
      changesNothing(c) // in the services, so the pages need not be read again
      return endOf(deps, user, by.person)
    },
  })
  return routes
}

/** Returns the address of a one-time link. Its secret is in the fragment, which browsers never send. */
export const linkUrl = (consoleUrl: string, secret: string): string =>
  `${consoleUrl}${pages.signIn}#${secret}`

/** What `needsKey` has found out about a request. */
interface Called {
  readonly Variables: { caller: string }
}

/** The routes for the command line, whose callers have a key of `SERVICE_API_KEY(S)`. */
export function keyRoutes(deps: RouteDeps): Hono<Called> {
  const { keys, links, ways, consoleUrl } = deps
  const tags = ['session']
  const description = 'The request needs a key of SERVICE_API_KEY(S) as a bearer token.'
  const needsKey: MiddlewareHandler<Called> = async (c, next) => {
    const caller = keys.identify(c.req.header('Authorization'))
    if (caller === null) throw unauthorized()
    c.set('caller', `key ${caller.keyId}`)
    await next()
  }
  return new Hono<Called>()
    .get(
      '/sessions',
      needsKey,
      describeRoute({
        operationId: 'listSessionsWithKey',
        tags,
        summary: 'The sessions of all persons',
        description,
        responses: {
          200: jsonResponse(...ALL),
          ...problemResponses({ 401: 'no valid service key' }),
        },
      }),
      async (c) => c.json(await listAll(deps)),
    )
    .delete(
      '/sessions',
      needsKey,
      describeRoute({
        operationId: 'endSessionsWithKey',
        tags,
        summary: 'Ends all sessions of a person',
        description,
        responses: {
          200: jsonResponse(...ENDED),
          ...problemResponses({ 400: 'no user is named', 401: 'no valid service key' }),
        },
      }),
      validate('query', UserQuery),
      async (c) => c.json(await endOf(deps, c.req.valid('query').user, c.get('caller'))),
    )
    .post(
      '/sign-in-links',
      needsKey,
      describeRoute({
        operationId: 'createSignInLink',
        tags,
        summary: 'Creates a link that signs an operator in once, within ten minutes',
        description,
        responses: {
          201: jsonResponse('the link', SignInLink),
          ...problemResponses({
            401: 'no valid service key',
            403: 'SIGN_IN does not contain link',
          }),
        },
      }),
      (c) => {
        if (!ways.includes('link'))
          throw new IntegrationError('forbidden', 'SIGN_IN does not contain link')
        const { secret, expiresAt } = links.create()
        return c.json(
          { Url: linkUrl(consoleUrl(), secret), ExpiresAt: new Date(expiresAt).toISOString() },
          201,
        )
      },
    )
}
