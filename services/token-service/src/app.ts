import type { Hono } from 'hono'
import type { Health } from '@integration-host/shared/observability/health'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import type { AccessKeys } from '@integration-host/shared/access/access-keys'
import { createServiceApp } from '@integration-host/shared/http/service-app'
import { auditRoutes } from './routes/audit.ts'
import { authorizationRoutes } from './routes/authorization.ts'
import { connectRoutes, reconnectRoutes } from './routes/connect.ts'
import { connectLinkRoutes, keyLinkRoutes } from './routes/connect-links.ts'
import { custodyRoutes, MAX_IMPORT_BYTES } from './routes/custody.ts'
import { credentialListRoutes, SUMMARY_PATH } from './routes/credential-lists.ts'
import { credentialRoutes } from './routes/credentials.ts'
import { grantRoutes, MAX_GRANTS_BYTES } from './routes/grants.ts'
import type { RouteDeps } from './routes/route-deps.ts'

export interface AppDeps extends RouteDeps {
  readonly health: Health
  readonly metrics: Metrics
  readonly keys: AccessKeys
}

/** The size limit of a request body. Except for imports, a body contains only a few identifiers. */
const MAX_BODY_BYTES = 16_384

export const createApp = (deps: AppDeps): Hono =>
  createServiceApp(
    {
      name: 'token-service',
      purpose: 'Keeps the OAuth 2.0 credential of each realm and issues valid access tokens.',
      logger: deps.logger,
      health: deps.health,
      metrics: deps.metrics,
      keys: deps.keys,
      // These paths require no service key, because browsers have none. The redirect of the provider is GET /callback.
      // POST /callback has the same path, but its route requires a scope and therefore a service key.
      openPaths: [
        '/callback',
        '/authorize',
        '/connected',
        '/connect/*',
        '/reconnect',
        '/disconnected',
      ],
      fixedPaths: [SUMMARY_PATH],
      maxBodyBytes: MAX_BODY_BYTES,
      maxBodyBytesAt: { '/imports': MAX_IMPORT_BYTES, '/imports/grants': MAX_GRANTS_BYTES },
    },
    (app) => {
      app.route('/', authorizationRoutes(deps))
      app.route('/', connectRoutes(deps))
      app.route('/', connectLinkRoutes(deps))
      app.route('/', keyLinkRoutes(deps))
      app.route('/', credentialListRoutes(deps))
      app.route('/', reconnectRoutes(deps))
      app.route('/', credentialRoutes(deps))
      app.route('/', custodyRoutes(deps))
      app.route('/', grantRoutes(deps))
      app.route('/', auditRoutes(deps))
    },
  )
