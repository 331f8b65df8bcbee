import { PROBLEM_CONTENT } from '@integration-host/shared/http/openapi'
import { allowOwnHosts } from '@integration-host/shared/http/origin-guard'
import { createServiceApp, problemResponses } from '@integration-host/shared/http/service-app'
import type { Health } from '@integration-host/shared/observability/health'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import type { Hono } from 'hono'
import { except } from 'hono/combine'
import { describeRoute } from 'hono-openapi'
import { MAX_QUEUE_BYTES } from './contracts/runs.ts'
import type { BuiltApp } from './build-app.ts'
import { activityRoutes } from './routes/activity.ts'
import { assetRoutes, respondToFailure } from './routes/assets.ts'
import { announceActions, onlyOwnPages, securityHeaders } from './routes/browser-guard.ts'
import { bulkRoutes, MAX_BULK_BYTES } from './routes/bulk.ts'
import { chartRoutes } from './routes/charts.ts'
import { createRepeatedRequests, recognizeRepeats } from './routes/repeated-requests.ts'
import { companyRoutes } from './routes/companies.ts'
import { entryRoutes } from './routes/entries.ts'
import type { RouteDeps } from './routes/guarded-route.ts'
import { limitsRoutes } from './routes/limits.ts'
import { processRoutes } from './routes/processes.ts'
import { openIdSignInRoutes } from './routes/openid-sign-in.ts'
import { keyRoutes, personRoutes } from './routes/sessions.ts'
import { queueRoutes } from './routes/queue.ts'
import { runRoutes } from './routes/runs.ts'
import { sandboxRoutes } from './routes/sandbox.ts'
import { searchRoutes } from './routes/search.ts'
import { sessionRoutes } from './routes/session.ts'
import { stateRoutes } from './routes/state.ts'
import { streamRoutes } from './routes/stream.ts'

export interface AppDeps extends RouteDeps {
  readonly health: Health
  readonly metrics: Metrics
  readonly built: BuiltApp
  /** Called after an action of a person that was executed, or whose outcome is unknown. */
  readonly acted: () => void
  /** The host names at which browsers reach the console, in addition to the loopback names. */
  readonly hostNames: readonly string[]
}

const MAX_BODY_BYTES = 65_536
/**
 * Prometheus and the probes of an orchestrator use the address of a container as the host name. Therefore these paths
 * accept any host name. A page that reads them by DNS rebinding gets counts and the states of dependencies, but no data
 * of a company or a person.
 */
const SCRAPED = ['/metrics', '/metrics/summary', '/health/live', '/health/ready']

/** Creates the HTTP app of the console: the pages for browsers, and the JSON API that only these pages can call. */
export function createApp(deps: AppDeps): Hono {
  return createServiceApp(
    {
      name: 'console',
      purpose:
        'The web console: a back end for the browser, which keeps every key and token on the server.',
      logger: deps.logger,
      health: deps.health,
      metrics: deps.metrics,
      keys: null,
      maxBodyBytes: MAX_BODY_BYTES,
      maxBodyBytesAt: {
        '/api/bulk': MAX_BULK_BYTES,
        '/api/queue': MAX_QUEUE_BYTES,
      },
      responseHeaders: securityHeaders,
      errorResponses: { respond: respondToFailure(deps.built), content: PROBLEM_CONTENT },
    },
    (app) => {
      app.use(
        describeRoute({
          responses: {
            421: {
              description: 'the host name is not served',
              content: { 'text/plain': { schema: { type: 'string' } } },
            },
          },
        }),
        except(SCRAPED, allowOwnHosts(deps.hostNames, 'CONSOLE_URL')),
      )
      app.use(
        '/api/*',
        describeRoute({
          responses: problemResponses({
            503: 'the store of the sessions does not respond',
            504: 'the action may have been executed',
          }),
        }),
        onlyOwnPages(deps.isHttps),
        announceActions(deps.acted),
        recognizeRepeats(createRepeatedRequests(deps.requests, Date.now)),
      )
      app.route('/', assetRoutes(deps.built))
      app.route('/', keyRoutes(deps))
      const { openId, built } = deps
      if (openId !== null)
        app.route('/', openIdSignInRoutes({ ...deps, openId, stylesheet: stylesheetOf(built) }))
      for (const routes of [
        sessionRoutes,
        personRoutes,
        stateRoutes,
        streamRoutes,
        runRoutes,
        queueRoutes,
        bulkRoutes,
        companyRoutes,
        entryRoutes,
        processRoutes,
        activityRoutes,
        searchRoutes,
        limitsRoutes,
        chartRoutes,
        sandboxRoutes,
      ])
        app.route('/api', routes(deps))
    },
  )
}

const stylesheetOf = ({ assets }: BuiltApp): string =>
  assets.find(({ path }) => path.endsWith('.css'))?.path ?? ''
