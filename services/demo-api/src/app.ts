import type { Health } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import { createServiceApp } from '@integration-host/shared/http/service-app'
import type { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { SERVICE_TITLE } from './config.ts'
import { allowMethods, allowOwnHosts, refuseCrossSite } from './routes/front-door.ts'
import { TEXT_ERRORS, textResponses } from './routes/text-response.ts'
import { createKeptAnswers } from './order/kept-answers.ts'
import { orderRoutes } from './routes/order.ts'
import { queueRoutes } from './routes/queue.ts'
import { replayRoutes } from './routes/replay.ts'
import { reportRoutes } from './routes/report.ts'
import { stepCalls } from './routes/step-call.ts'
import type { TransactionQueue } from './transaction/transaction-queue.ts'

export interface DemoApiDeps {
  readonly logger: Logger
  readonly health: Health
  readonly metrics: Metrics
  readonly transactions: TransactionQueue
  readonly allowedHosts: readonly string[]
  readonly now: () => Date
}

const KEPT_ANSWERS = 10_000

/** The demo's front door (`/queue`, `/replay`) and the target of its steps (`/order`, `/report`). Answers in text. */
export function createApp(deps: DemoApiDeps): Hono {
  const kept = createKeptAnswers(KEPT_ANSWERS)
  const calls = stepCalls(deps.metrics)
  return createServiceApp(
    {
      name: SERVICE_TITLE,
      purpose: 'Queues and replays demo transactions, and answers the calls of their steps.',
      logger: deps.logger,
      health: deps.health,
      metrics: deps.metrics,
      keys: null,
      errorResponses: TEXT_ERRORS,
    },
    (app) => {
      app.use(
        describeRoute({
          responses: textResponses({
            403: 'another site makes a browser send this',
            421: 'the host name is not served here',
          }),
        }),
        allowOwnHosts(deps.allowedHosts),
        refuseCrossSite,
      )
      app.use('/queue', allowMethods('GET', 'POST'))
      app.use('/replay', allowMethods('GET', 'POST'))
      app.use('/order', allowMethods('GET'))
      app.use('/report', allowMethods('GET'))
      app.route('/', queueRoutes(deps))
      app.route('/', replayRoutes(deps))
      app.route('/', orderRoutes({ kept, calls, now: deps.now }))
      app.route('/', reportRoutes({ kept, calls }))
    },
  )
}
