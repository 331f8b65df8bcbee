import type { Health } from '@integration-host/shared/observability/health'
import { honoListener, listen } from '@integration-host/shared/http/http-server'
import type { RunningService } from '@integration-host/shared/process/lifecycle'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { createMetrics, type Metrics } from '@integration-host/shared/observability/metrics'
import { discoverAccountingUrl } from './adapters/discovery/accounting-url.ts'
import { consumeCredentialEvents } from './adapters/rabbitmq/credential-events.ts'
import { connectTokenService } from './adapters/token-service/token-source.ts'
import { connectUpstream } from './adapters/http/upstream.ts'
import { createApp } from './app.ts'
import { type Config, limitsOf } from './config.ts'
import { createGatewayMetrics } from './gateway-metrics.ts'
import { createListener } from './listener.ts'
import { createForward } from './proxy/forward.ts'
import { createPostMarker } from './proxy/repeatable-post.ts'
import { upstreamBase } from './proxy/target.ts'
import { createAccessTokens } from './realm/access-token.ts'
import { createGatewayLimits } from './realm/process-ledger.ts'
import type { GatewayLimits } from './realm/throttle.ts'

export interface Adapters {
  readonly logger: Logger
  readonly health: Health
  readonly bus: MessageBus
  readonly metrics?: Metrics
  /** Counted in Redis for all replicas; without, this process counts alone. */
  readonly limits?: GatewayLimits
}

/** A big upload over a thin line takes its time; headers do not (408 after 10 s). */
const REQUEST_TIMEOUT_MS = 120_000
/** What calls in hand get at shutdown; the process is ended after 10 s. */
const DRAIN_MS = 8_000

/**
 * Starts the gateway and listens at once, whatever is reachable. Disposing lets go of the calls that only
 * wait, finishes those that are under way and closes; the adapters stay open.
 *
 * @throws {StartupError} when nothing says where the accounting API is.
 */
export async function startAccountingGateway(
  config: Config,
  { logger, health, bus, limits, metrics = createMetrics('accounting-gateway') }: Adapters,
): Promise<RunningService> {
  await using stack = new AsyncDisposableStack()
  const tokenService = stack.use(
    connectTokenService({
      url: config.TOKEN_SERVICE_URL,
      key: config.SERVICE_API_KEY[0],
      dependency: health.dependency('token-service'),
    }),
  )
  const upstream = await locateUpstream(config, health, stack)
  const tokens = createAccessTokens({ source: tokenService.source, now: Date.now })
  const events = await consumeCredentialEvents(bus, (realm, kind) =>
    tokens.drop(realm, kind === 'stored'),
  )
  stack.defer(() => events.cancel())

  const gatewayMetrics = createGatewayMetrics(metrics, {
    byRealm: config.METRICS_BY_REALM,
    now: () => performance.now(),
  })
  const keys = config.SERVICE_API_KEY
  const listener = createListener({
    app: honoListener(createApp({ logger, health, metrics, keys })),
    forward: createForward({
      tokens,
      limits: gatewayMetrics.watched(limits ?? createGatewayLimits(limitsOf(config))),
      upstream,
      deadlineMs: config.DEADLINE_SECONDS * 1_000,
      longestBody: config.LONGEST_BODY_MB * 1_048_576,
      holdMs: limitsOf(config).coolDownSeconds * 1_000,
      now: Date.now,
      random: Math.random,
      markPost: createPostMarker(config.PROVIDER_PROFILE.accounting, () => crypto.randomUUID()),
      onRetry: (reason) => gatewayMetrics.retry(reason),
      onHold: () => gatewayMetrics.hold(),
    }),
    keys,
    logger,
    metrics: gatewayMetrics,
  })
  const http = stack.use(
    await listen(listener.listener, { host: config.HOST, port: config.PORT, drainMs: DRAIN_MS }),
  )
  http.server.requestTimeout = REQUEST_TIMEOUT_MS
  listener.attach(http.server)
  const owned = stack.move()
  return {
    url: http.url,
    async [Symbol.asyncDispose]() {
      listener.leave()
      await owned.disposeAsync()
    },
  }
}

/** The accounting API of the settings; else of the discovery document or the profile, once that is fetched. */
async function locateUpstream(config: Config, health: Health, stack: AsyncDisposableStack) {
  const { ACCOUNTING_URL, DISCOVERY_URL } = config
  const connections = stack.use(new AsyncDisposableStack())
  const connect = (url: string) => {
    const base = upstreamBase(url)
    return { base, api: connections.use(connectUpstream(base.origin)).upstream }
  }
  if (ACCOUNTING_URL !== undefined) {
    const known = connect(ACCOUNTING_URL)
    return () => known
  }
  if (DISCOVERY_URL === undefined) throw new TypeError('the settings let neither be missing')
  const discovered = stack.use(
    await discoverAccountingUrl(DISCOVERY_URL, {
      dependency: health.dependency('discovery'),
      addressOf: config.PROVIDER_PROFILE.accounting.addressOf,
    }),
  )
  let known: ReturnType<typeof connect> | null = null
  return () => (known ??= connect(discovered.current()))
}
