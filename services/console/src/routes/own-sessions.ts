import { IntegrationError } from '@integration-host/shared/errors'
import { jsonResponse, problemResponses } from '@integration-host/shared/http/service-app'
import type { Logger } from '@integration-host/shared/observability/logger'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { OwnSessions } from '../contracts/session.ts'
import type { Session } from '../session/session-store.ts'
import type { Sessions } from '../session/sessions.ts'
import { needsRole, sessionOf } from './browser-guard.ts'

export interface OwnSessionRouteDeps {
  readonly sessions: Sessions
  readonly isHttps: boolean
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
export function ownSessionRoutes({ sessions, isHttps, logger }: OwnSessionRouteDeps): Hono {
  const tags = ['session']
  return new Hono()
    .get(
      '/sessions',
      needsRole(sessions, 'viewer', isHttps),
      describeRoute({
        operationId: 'listOwnSessions',
        tags,
        summary: 'The sessions of this person, the newest first',
        responses: {
          200: jsonResponse('the sessions', OwnSessions),
          ...problemResponses({ 401: 'no session', 403: 'not a page of the console' }),
        },
      }),
      async (c) => {
        const current = sessionOf(c)
        const all = await sessions.ofSamePerson(current)
        return c.json({
          Sessions: all.map((session) => ({
            Id: idOf(session),
            Browser: session.browser,
            IsCurrent: session.digest === current.digest,
            CreatedAt: new Date(session.createdAt).toISOString(),
            UsedAt: new Date(session.usedAt).toISOString(),
            ExpiresAt: new Date(session.expiresAt).toISOString(),
          })),
        } satisfies OwnSessions)
      },
    )
    .delete(
      '/sessions/:id',
      needsRole(sessions, 'viewer', isHttps),
      describeRoute({
        operationId: 'endOwnSession',
        tags,
        summary: 'Ends a session of this person, in all its tabs',
        parameters: [{ name: 'id', in: 'path', required: true, schema: { type: 'string' } }],
        responses: {
          204: { description: 'ended' },
          ...problemResponses({
            401: 'no session',
            403: 'not a page of the console',
            404: 'the person has no such session',
          }),
        },
      }),
      async (c) => {
        const current = sessionOf(c)
        const id = c.req.param('id')
        const found = (await sessions.ofSamePerson(current)).find((one) => idOf(one) === id)
        if (found === undefined)
          throw new IntegrationError('not_found', 'The session has ended already')
        await sessions.end(found)
        logger.info({ user: found.user }, 'person ended a session')
        return c.body(null, 204)
      },
    )
}
