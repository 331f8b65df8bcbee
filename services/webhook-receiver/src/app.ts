import { createServiceApp } from '@integration-host/shared/http/service-app'
import type { Health } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import type { Hono } from 'hono'
import {
  INTUIT_PATH,
  type IntuitWebhookDeps,
  intuitWebhookRoutes,
} from './routes/intuit-webhook.ts'

export interface AppDeps extends IntuitWebhookDeps {
  readonly logger: Logger
  readonly health: Health
  readonly metrics: Metrics
}

/** Creates the HTTP app. Only the paths below `/webhooks/` are meant for the public. */
export const createApp = (deps: AppDeps): Hono =>
  createServiceApp(
    {
      name: 'webhook-receiver',
      purpose:
        'Verifies the notifications of the provider, and publishes an event for each change.',
      logger: deps.logger,
      health: deps.health,
      metrics: deps.metrics,
      // The provider has no service key. Its signature is verified instead.
      keys: null,
      // Clients can send a body without a key, so the route itself limits the memory and the time of all bodies.
      pathsReadingOwnBody: [INTUIT_PATH],
    },
    (app) => app.route('/', intuitWebhookRoutes(deps)),
  )
