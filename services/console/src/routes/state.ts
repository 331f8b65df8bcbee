import { jsonResponse, problemResponses } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { NowView } from '../contracts/now.ts'
import { IntegrityView, ServicesView } from '../contracts/services.ts'
import type { Sessions } from '../session/sessions.ts'
import { changesNothing, needsRole } from './browser-guard.ts'

export interface StateRouteDeps {
  readonly sessions: Sessions
  readonly isHttps: boolean
  readonly now: () => NowView
  readonly services: () => ServicesView
  readonly checkIntegrity: () => Promise<IntegrityView>
}

const COMMON = { 401: 'no session', 403: 'not a page of the console, or another role is needed' }

/**
 * The routes of the pages *Now* and *Health*. Their responses come from memory, so they cause no
 * request to a service.
 */
export function stateRoutes({ sessions, isHttps, ...deps }: StateRouteDeps): Hono {
  const tags = ['state']
  return new Hono()
    .get(
      '/now',
      needsRole(sessions, 'viewer', isHttps),
      describeRoute({
        operationId: 'getNow',
        tags,
        summary: 'What needs a person, and the state of the installation',
        responses: { 200: jsonResponse('the first page', NowView), ...problemResponses(COMMON) },
      }),
      (c) => c.json(deps.now()),
    )
    .get(
      '/services',
      needsRole(sessions, 'viewer', isHttps),
      describeRoute({
        operationId: 'getServices',
        tags,
        summary: 'Each replica of each service with its dependencies',
        responses: { 200: jsonResponse('the services', ServicesView), ...problemResponses(COMMON) },
      }),
      (c) => c.json(deps.services()),
    )
    .post(
      '/integrity',
      needsRole(sessions, 'operator', isHttps),
      describeRoute({
        operationId: 'checkIntegrity',
        tags,
        summary: 'Reads the whole tables of the coordinator, at most once in 30 s',
        responses: {
          200: jsonResponse('the counts', IntegrityView),
          ...problemResponses({
            ...COMMON,
            415: 'not application/json',
            503: 'the coordinator is unavailable',
          }),
        },
      }),
      async (c) => {
        changesNothing(c)
        return c.json(await deps.checkIntegrity())
      },
    )
}
