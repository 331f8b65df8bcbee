import { IntegrationError } from '@integration-host/shared/errors'
import type { Health } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import { allowOwnHosts, rejectCrossSite } from '@integration-host/shared/http/origin-guard'
import { createServiceApp } from '@integration-host/shared/http/service-app'
import type { Hono, MiddlewareHandler } from 'hono'
import { describeRoute } from 'hono-openapi'
import { SERVICE_TITLE } from './config.ts'
import { TEXT_ERRORS, textResponses } from './routes/text-response.ts'
import { orderAndReportRoutes } from './routes/order-and-report.ts'
import { transactionRoutes } from './routes/transactions.ts'
import type { TransactionQueue } from './adapters/coordinator/transaction-queue.ts'

export interface AppDeps {
  readonly logger: Logger
  readonly health: Health
  readonly metrics: Metrics
  readonly transactions: TransactionQueue
  readonly allowedHosts: readonly string[]
  /** Returns epoch ms. */
  readonly now: () => number
}

/**
 * Creates the HTTP app. Users call `/queue` and `/replay`. The steps of the demo's business process `OrderProcess` call
 * `/order` and `/report`. Error responses are plain text.
 */
export const createApp = (deps: AppDeps): Hono =>
  createServiceApp(
    {
      name: SERVICE_TITLE,
      purpose: 'Queues and replays demo transactions, and serves the calls of their steps.',
      logger: deps.logger,
      health: deps.health,
      metrics: deps.metrics,
      keys: null,
      // Only steps of the business process call `/order` and `/report`, so only these two paths continue the trace that
      // the request headers name. The other paths are called by browsers, whose trace headers are not trusted.
      continuesTraces: (path) => path === '/order' || path === '/report',
      errorResponses: TEXT_ERRORS,
    },
    (app) => {
      app.use(
        describeRoute({
          responses: textResponses({
            403: 'the request was initiated by another site',
            421: 'the host name is not served',
          }),
        }),
        allowOwnHosts(deps.allowedHosts, 'ALLOWED_HOSTS'),
        rejectCrossSite,
      )
      app.use('/queue', allowMethods('GET', 'POST'))
      app.use('/replay', allowMethods('GET', 'POST'))
      app.use('/order', allowMethods('GET'))
      app.use('/report', allowMethods('GET'))
      app.route('/', transactionRoutes(deps))
      app.route('/', orderAndReportRoutes(deps))
    },
  )

/**
 * Responds 405 to every method that is not listed. HEAD is rejected as well: the router would run the GET route for
 * HEAD, and the GET routes of this API have effects.
 */
function allowMethods(...methods: readonly string[]): MiddlewareHandler {
  return async (c, next) => {
    if (methods.includes(c.req.method)) return next()
    c.header('Allow', methods.join(', ')) // RFC 9110 §15.5.6
    throw new IntegrationError('method_not_allowed', `Use ${methods.join(' or ')}`)
  }
}
