import { problemResponses } from '@integration-host/shared/http/service-app'
import { IntegrationError } from '@integration-host/shared/errors'
import { Realm } from '@integration-host/shared/contracts/realm'
import { Hono } from 'hono'
import { describeRoute, validator } from 'hono-openapi'
import { z } from 'zod'

const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'] as const

/**
 * The documentation of the proxied paths. Their calls never come here: `listener.ts` forwards them before
 * the app sees them.
 */
export function companyRoutes(): Hono {
  const app = new Hono()
  app.on(
    [...METHODS],
    '/v3/company/:realm/*',
    describeRoute({
      tags: ['accounting'],
      summary: "Forwards the call to the accounting API with the realm's bearer token",
      description:
        'Same method, path, query and body, streamed both ways; the answer comes back as upstream gave it.',
      security: [{ serviceKey: [] }],
      responses: {
        default: { description: "the accounting API's answer", content: { '*/*': {} } },
        ...problemResponses({
          400: 'target_invalid: the target or a header could be read in two ways',
          401: 'unauthorized: no valid service key',
          404: 'credential_not_found: the realm is not connected',
          408: 'request_timeout: the body took too long to arrive',
          413: 'payload_too_large: the body is longer than the gateway takes',
          424: 'credential_faulted: the company must be authorized again',
          429: 'throttled: more calls wait for the realm than can be sent before the deadline',
          502: 'upstream_unreachable',
          503: 'token_service_unavailable, provider_unavailable or shutting_down',
          504: 'upstream_timeout',
        }),
      },
    }),
    validator('param', z.object({ realm: Realm })),
    () => {
      throw new IntegrationError('not_found', 'no such path')
    },
  )
  return app
}
