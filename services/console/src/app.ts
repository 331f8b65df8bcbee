import { PROBLEM_CONTENT } from '@integration-host/shared/http/openapi'
import { allowOwnHosts } from '@integration-host/shared/http/origin-guard'
import { createServiceApp, problemResponses } from '@integration-host/shared/http/service-app'
import type { Health } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import type { Hono } from 'hono'
import { except } from 'hono/combine'
import { describeRoute } from 'hono-openapi'
import { MAX_QUEUE_BYTES } from './contracts/queue.ts'
import type { BuiltApp } from './build-app.ts'
import { type ActivityRouteDeps, activityRoutes } from './routes/activity.ts'
import { assetRoutes, respondToFailure } from './routes/assets.ts'
import { announceActions, onlyOwnPages } from './routes/browser-guard.ts'
import { type BulkRouteDeps, bulkRoutes, MAX_BULK_BYTES } from './routes/bulk.ts'
import { type ChartRouteDeps, chartRoutes } from './routes/charts.ts'
import { createRepeatedRequests, recognizeRepeats } from './routes/repeated-requests.ts'
import { securityHeaders } from './routes/security-headers.ts'
import { type CompanyRouteDeps, companyRoutes } from './routes/companies.ts'
import { type EntryRouteDeps, entryRoutes } from './routes/entries.ts'
import { type LimitsRouteDeps, limitsRoutes } from './routes/limits.ts'
import { type ProcessRouteDeps, processRoutes } from './routes/processes.ts'
import { type OpenIdSignInDeps, openIdSignInRoutes } from './routes/openid-sign-in.ts'
import { type PersonRouteDeps, personRoutes, sessionAdminRoutes } from './routes/persons.ts'
import { type QueueRouteDeps, queueRoutes } from './routes/queue.ts'
import { type RunRouteDeps, runRoutes } from './routes/runs.ts'
import { type SandboxRouteDeps, sandboxRoutes } from './routes/sandbox.ts'
import { type SearchRouteDeps, searchRoutes } from './routes/search.ts'
import { type SessionRouteDeps, sessionRoutes } from './routes/session.ts'
import { type SignInLinkRouteDeps, signInLinkRoutes } from './routes/sign-in-links.ts'
import { type StateRouteDeps, stateRoutes } from './routes/state.ts'
import { ownSessionRoutes } from './routes/own-sessions.ts'
import { type StreamRouteDeps, streamRoutes } from './routes/stream.ts'
import type { RequestStore } from './session/request-store.ts'

export interface AppDeps
  extends
    SessionRouteDeps,
    Omit<OpenIdSignInDeps, 'openId' | 'stylesheet'>,
    SignInLinkRouteDeps,
    PersonRouteDeps,
    StateRouteDeps,
    StreamRouteDeps,
    RunRouteDeps,
    QueueRouteDeps,
    BulkRouteDeps,
    CompanyRouteDeps,
    EntryRouteDeps,
    ProcessRouteDeps,
    ActivityRouteDeps,
    SearchRouteDeps,
    LimitsRouteDeps,
    ChartRouteDeps,
    SandboxRouteDeps {
  readonly logger: Logger
  readonly health: Health
  readonly metrics: Metrics
  readonly built: BuiltApp
  readonly requests: RequestStore
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
      app.route('/', signInLinkRoutes(deps))
      app.route('/', sessionAdminRoutes(deps))
      const { openId, built } = deps
      if (openId !== null)
        app.route('/', openIdSignInRoutes({ ...deps, openId, stylesheet: stylesheetOf(built) }))
      app.route('/api', sessionRoutes(deps))
      app.route('/api', ownSessionRoutes(deps))
      app.route('/api', personRoutes(deps))
      app.route('/api', stateRoutes(deps))
      app.route('/api', streamRoutes(deps))
      app.route('/api', runRoutes(deps))
      app.route('/api', queueRoutes(deps))
      app.route('/api', bulkRoutes(deps))
      app.route('/api', companyRoutes(deps))
      app.route('/api', entryRoutes(deps))
      app.route('/api', processRoutes(deps))
      app.route('/api', activityRoutes(deps))
      app.route('/api', searchRoutes(deps))
      app.route('/api', limitsRoutes(deps))
      app.route('/api', chartRoutes(deps))
      app.route('/api', sandboxRoutes(deps))
    },
  )
}

const stylesheetOf = ({ assets }: BuiltApp): string =>
  assets.find(({ path }) => path.endsWith('.css'))?.path ?? ''
