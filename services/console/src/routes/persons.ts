/** The sessions of all persons: in the browser, where operators can end them, and for holders of a service key. */
import { type AccessKeys, unauthorized } from '@integration-host/shared/access/access-keys'
import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import type { Logger } from '@integration-host/shared/observability/logger'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { AllSessions, EndedSessions } from '../contracts/session.ts'
import { changesNothing } from './browser-guard.ts'
import { type GuardDeps, guardedRoutes } from './guarded-route.ts'

export interface PersonRouteDeps extends GuardDeps {
  readonly keys: Pick<AccessKeys, 'identify'>
  readonly logger: Logger
}

const UserQuery = z.object({ user: z.string().min(1).max(100) })
const tags = ['session']
const responses = {
  list: { 200: jsonResponse('the sessions, the last used first', AllSessions) },
  end: { 200: jsonResponse('how many sessions have ended', EndedSessions) },
}

function actionsOf({ sessions, logger }: PersonRouteDeps) {
  return {
    list: async (): Promise<AllSessions> => {
      const all = await sessions.all()
      return {
        Sessions: all
          .toSorted((one, other) => other.usedAt - one.usedAt)
          .map((session) => ({
            User: session.user,
            Role: session.role,
            Way: session.way,
            Browser: session.browser,
            CreatedAt: new Date(session.createdAt).toISOString(),
            UsedAt: new Date(session.usedAt).toISOString(),
            ExpiresAt: new Date(session.expiresAt).toISOString(),
          })),
      }
    },
    end: async (user: string, by: string): Promise<EndedSessions> => {
      const ended = await sessions.endOfUser(user)
      logger.info({ user, by, ended: ended.length }, 'sessions of a person were ended')
      return { Ended: ended.length }
    },
  }
}

/** `GET /api/persons`, and `DELETE` for operators, who can also end their own sessions. */
export function personRoutes(deps: PersonRouteDeps): Hono {
  const { list, end } = actionsOf(deps)
  const { withRole } = guardedRoutes(deps, 'session')
  const problems = { 401: 'no session', 403: 'not a page of the console' }
  return new Hono()
    .get(
      '/persons',
      ...withRole(
        'viewer',
        problems,
      )({
        operationId: 'listSessions',
        summary: 'The sessions of all persons',
        responses: responses.list,
        respond: async ({ c }) => c.json(await list()),
      }),
    )
    .delete(
      '/persons',
      ...withRole('operator', {
        ...problems,
        400: 'no user is named',
        403: 'not a page of the console, or the role is not operator',
      })({
        operationId: 'endSessions',
        summary: 'Ends all sessions of a person',
        query: UserQuery,
        responses: responses.end,
        async respond({ c, by, query: { user } }) {
          changesNothing(c) // in the services, so the pages need not be read again
          return c.json(await end(user, by.person))
        },
      }),
    )
}

/** `GET` and `DELETE /sessions`, for holders of a key of `SERVICE_API_KEY(S)`. */
export function sessionAdminRoutes(deps: PersonRouteDeps): Hono {
  const { list, end } = actionsOf(deps)
  const callerOf = (authorization: string | undefined): string => {
    const caller = deps.keys.identify(authorization)
    if (caller === null) throw unauthorized()
    return `key ${caller.keyId}`
  }
  const description = 'The request needs a key of SERVICE_API_KEY(S) as a bearer token.'
  return new Hono()
    .get(
      '/sessions',
      describeRoute({
        operationId: 'listSessionsWithKey',
        tags,
        summary: 'The sessions of all persons',
        description,
        responses: { ...responses.list, ...problemResponses({ 401: 'no valid service key' }) },
      }),
      async (c) => {
        callerOf(c.req.header('Authorization'))
        return c.json(await list())
      },
    )
    .delete(
      '/sessions',
      async (c, next) => {
        callerOf(c.req.header('Authorization'))
        await next()
      },
      describeRoute({
        operationId: 'endSessionsWithKey',
        tags,
        summary: 'Ends all sessions of a person',
        description,
        responses: {
          ...responses.end,
          ...problemResponses({ 400: 'no user is named', 401: 'no valid service key' }),
        },
      }),
      validate('query', UserQuery),
      async (c) =>
        c.json(await end(c.req.valid('query').user, callerOf(c.req.header('Authorization')))),
    )
}
