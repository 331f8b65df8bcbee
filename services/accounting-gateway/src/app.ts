import type { Health } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import type { AccessKeys } from '@integration-host/shared/access/access-keys'
import { createServiceApp } from '@integration-host/shared/http/service-app'
import type { Hono } from 'hono'
import { companyRoutes } from './routes/company.ts'
import { type RealmRouteDeps, realmRoutes } from './routes/realms.ts'
import { type UsageRouteDeps, usageRoutes } from './routes/usage.ts'

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
