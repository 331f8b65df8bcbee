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

/** Creates the HTTP app. Only the paths below `/webhooks/` are meant to be reachable from the internet. */
export const createApp = (deps: AppDeps): Hono =>
  createServiceApp(
    {
      name: 'webhook-receiver',
      purpose:
        'Verifies the notifications of the provider, and publishes an event for each change.',
      logger: deps.logger,
      health: deps.health,
      metrics: deps.metrics,
      // The provider has no service key, so its requests are authenticated by their signature.
      keys: null,
      // This route needs no service key. Therefore the route itself limits how much memory the request bodies use, and
      // how long a body may take to arrive.
      pathsReadingOwnBody: [INTUIT_PATH],
    },
    (app) => app.route('/', intuitWebhookRoutes(deps)),
  )
