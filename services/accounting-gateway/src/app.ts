import type { Health } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import type { AccessKeys } from '@integration-host/shared/access/access-keys'
import { createServiceApp, problems } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { type RealmRouteDeps, realmRoutes } from './routes/realms.ts'
import { type UsageRouteDeps, usageRoutes } from './routes/usage.ts'
import { IntegrationError } from '@integration-host/shared/errors'
import { Realm } from '@integration-host/shared/contracts/realm'
import type { Scope } from '@integration-host/shared/access/scope'
import { needs } from '@integration-host/shared/http/request'
import { describeRoute, validator } from 'hono-openapi'
import { z } from 'zod'

export interface AppDeps extends UsageRouteDeps, RealmRouteDeps {
  readonly logger: Logger
  readonly health: Health
  readonly metrics: Metrics
  readonly keys: AccessKeys
}

/**
 * Creates the app that serves every request that is not forwarded to the accounting API: health, metrics, usage,
 * activity and API documentation. The app responds 401 or 404 on all other paths.
 */
export const createApp = (deps: AppDeps): Hono =>
  createServiceApp(
    {
      name: 'accounting-gateway',
      purpose: "Proxies accounting API calls and injects the realm's current bearer token.",
      ...deps,
    },
    (app) => {
      app.route('/', companyRoutes())
      app.route('/', usageRoutes(deps))
      app.route('/', realmRoutes(deps))
    },
  )

/** The scope that calls of each method require. `listener.ts` checks this scope. */
const SCOPES = {
  GET: 'gateway:read',
  POST: 'gateway:write',
  PUT: 'gateway:write',
  PATCH: 'gateway:write',
  DELETE: 'gateway:write',
} as const satisfies Record<string, Scope>

/**
 * Describes in the OpenAPI document the calls that the gateway forwards to the accounting API. This app never serves
 * these calls, because `listener.ts` forwards them first.
 */
function companyRoutes(): Hono {
  const app = new Hono()
  for (const [method, scope] of Object.entries(SCOPES))
    app.on(
      method,
      '/v3/company/:realm/*',
      needs(scope),
      describeRoute({
        operationId: `forward${method.charAt(0)}${method.slice(1).toLowerCase()}`,
        tags: ['accounting'],
        summary: "Forwards the call to the accounting API with the realm's bearer token",
        description:
          'Same method, path, query and body, streamed both ways; the response is returned as upstream sent it. A POST to …/query requires only gateway:read.',
        responses: {
          default: { description: "the accounting API's response", content: { '*/*': {} } },
          ...problems(
            'target_invalid',
            'unauthorized',
            'credential_not_found',
            'request_timeout',
            'payload_too_large',
            'credential_faulted',
            'throttled',
            'transfer_coding_unsupported',
            'upstream_unreachable',
            'token_service_unavailable',
            'provider_unavailable',
            'provider_client_rejected',
            'shutting_down',
            'upstream_timeout',
          ),
        },
      }),
      validator('param', z.object({ realm: Realm })),
      () => {
        throw new IntegrationError('not_found', 'no such path')
      },
    )
  return app
}
