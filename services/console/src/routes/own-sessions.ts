import { IntegrationError } from '@integration-host/shared/errors'
import type { Logger } from '@integration-host/shared/observability/logger'
import { Hono } from 'hono'
import { OwnSessions } from '../contracts/session.ts'
import type { Session } from '../session/session-store.ts'
import { sessionOf } from './browser-guard.ts'
import { type GuardDeps, guardedRoutes } from './guarded-route.ts'

export interface OwnSessionRouteDeps extends GuardDeps {
  readonly logger: Logger
}

/**
 * Returns the part of the digest that the browser gets. It gives no access, because a session is
 * found only by the secret in the cookie.
 */
const idOf = ({ digest }: Session): string => digest.slice(0, 16)

/**
 * The routes of a person's sessions in all browsers. A person can see and end only sessions of
 * their own.
 */
export function ownSessionRoutes(deps: OwnSessionRouteDeps): Hono {
  const { sessions, logger } = deps
  const { withRole } = guardedRoutes(deps, 'session')
  const problems = { 401: 'no session', 403: 'not a page of the console' }
  return new Hono()
    .get(
      '/sessions',
      ...withRole(
        'viewer',
        problems,
      )({
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
              CreatedAt: new Date(session.createdAt).toISOString(),
              UsedAt: new Date(session.usedAt).toISOString(),
              ExpiresAt: new Date(session.expiresAt).toISOString(),
            })),
          } satisfies OwnSessions
        },
      }),
    )
    .delete(
      '/sessions/:id',
      ...withRole('viewer', { ...problems, 404: 'the person has no such session' })({
        operationId: 'endOwnSession',
        summary: 'Ends a session of this person, in all its tabs',
        parameters: [{ name: 'id', in: 'path', required: true, schema: { type: 'string' } }],
        responses: { 204: { description: 'ended' } },
        async respond({ c }) {
          const current = sessionOf(c)
          const id = c.req.param('id')
          const found = (await sessions.ofSamePerson(current)).find((one) => idOf(one) === id)
          if (found === undefined)
            throw new IntegrationError('not_found', 'The session has ended already')
          await sessions.end(found)
          logger.info({ user: found.user }, 'person ended a session')
        },
      }),
    )
}
