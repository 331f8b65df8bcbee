import { openAccessKeys } from '@integration-host/shared/access/access-keys'
import type { Health } from '@integration-host/shared/observability/health'
import {
  chooseProxy,
  logForwardProxies,
} from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { tunnelTo } from '@integration-host/shared/http/forward-proxy/tunnel'
import { honoListener, listen } from '@integration-host/shared/http/http-server'
import { isLoopback } from '@integration-host/shared/http/origin-guard'
import { type Clock, systemClock } from '@integration-host/shared/process/clock'
import type { RunningService } from '@integration-host/shared/process/lifecycle'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { createMetrics, type Metrics } from '@integration-host/shared/observability/metrics'
import { discoverAccountingUrl } from './adapters/discovery/accounting-url.ts'
import { consumeCredentialEvents } from './adapters/message-bus/credential-events.ts'
import { connectTokenService } from './adapters/token-service/token-source.ts'
import { connectUpstream } from './adapters/http/upstream.ts'
import { createMemoryUsageStore, startUsage, type UsageStore } from './usage/usage.ts'
import { createApp } from './app.ts'
import { type Config, limitsOf } from './config.ts'
import { createGatewayMetrics } from './gateway-metrics.ts'
import { createRealmActivityLog } from './realm/realm-activity.ts'
import { createFastPath } from '@integration-host/fast-http/fast-path'
import { createListener } from './listener.ts'
import { createPostMarker } from './proxy/repeatable-post.ts'
import { upstreamBase } from './proxy/target.ts'
import { createTokenCache } from './realm/token-cache.ts'
import { createGatewayLimits } from './realm/process-rate-limiter.ts'
import type { GatewayLimits } from './realm/throttle.ts'

export interface Adapters {
  readonly logger: Logger
  readonly health: Health
  readonly bus: MessageBus
  readonly metrics?: Metrics
  /** The rate limits in Redis, which all gateway replicas share. If absent, this process limits only its own calls. */
  readonly limits?: GatewayLimits
  /** The usage in Redis, which all gateway replicas share. If absent, this process counts only its own calls. */
  readonly usage?: UsageStore
  /** The clock of the gateway. Tests set a fake clock. */
  readonly clock?: Clock
}

/**
 * Timeout of a whole request. The first 10 s are for the headers (`headersTimeout`), and the rest is for uploads over
 * slow connections.
 */
const REQUEST_TIMEOUT_MS = 120_000
/**
 * How long calls in flight may continue during shutdown. The value is below the 10 s after which the gateway process
 * exits in any case.
 */
const DRAIN_MS = 8_000

/**
 * Starts the gateway. The gateway listens at once, even if its dependencies are unavailable. Disposing first rejects
 * the calls that have no request in flight upstream, then completes the other calls, and finally closes the server. The
 * adapters stay open.
 *
 * @throws {StartupError} if neither the settings nor the discovery document contain the address of the accounting API.
 */
export async function startAccountingGateway(
  config: Config,
  {
    logger,
    health,
    bus,
    limits,
    usage: usageStore = createMemoryUsageStore(),
    clock = systemClock,
    metrics = createMetrics('accounting-gateway'),
  }: Adapters,
): Promise<RunningService> {
  await using stack = new AsyncDisposableStack()
  const tokenService = stack.use(
    connectTokenService({
      url: config.TOKEN_SERVICE_URL,
      key: config.SERVICE_API_KEY[0],
      dependency: health.dependency('token-service'),
    }),
  )
  warnOfPlainHttp(config, logger)
  logForwardProxies(config, logger)
  const upstream = await locateUpstream(config, health, stack)
  const tokens = createTokenCache({ source: tokenService.source, now: Date.now })
  const events = await consumeCredentialEvents(bus, (realm, kind) =>
    tokens.evict(realm, kind === 'stored'),
  )
  stack.defer(() => events.cancel())

  const budget = config.MONTHLY_BUDGET ?? null
  const gatewayMetrics = createGatewayMetrics(metrics, {
    byRealm: config.METRICS_BY_REALM,
    budget,
    now: () => performance.now(),
  })
  const usage = stack.use(
    startUsage({
      store: usageStore,
      clock,
      onCall: (kind) => gatewayMetrics.usageCounted(kind),
      onTotal: (total) => gatewayMetrics.usageTotal(total),
      onError: (error) =>
        logger.warn(
          { err: error },
          'usage could not be stored; counts stay in memory until the next attempt',
        ),
    }),
  )
  const { keys } = stack.use(openAccessKeys(config, { logger, health, metrics }))
  const activity = createRealmActivityLog(Date.now)
  const listener = createListener({
    app: honoListener(
      createApp({
        logger,
        health,
        metrics,
        keys,
        usage: usageStore,
        budget,
        activity,
        rates: limitsOf(config).calls,
        now: clock.now,
      }),
    ),
    proxy: {
      tokens,
      limits: activity.observed(
        gatewayMetrics.measured(limits ?? createGatewayLimits(limitsOf(config))),
      ),
      upstream,
      deadlineMs: config.DEADLINE_SECONDS * 1_000,
      maxBodyBytes: config.LONGEST_BODY_MB * 1_048_576,
      defaultCoolDownMs: limitsOf(config).coolDownSeconds * 1_000,
      now: Date.now,
      random: Math.random,
      markPost: createPostMarker(config.PROVIDER_PROFILE.accounting, () => crypto.randomUUID()),
      onRetry: (reason) => gatewayMetrics.retry(reason),
      onCoolDown: () => gatewayMetrics.coolDownStarted(),
      onSuccess: ({ request: { method = 'GET' }, target: { realm, path } }) =>
        usage.count(realm, method, path),
    },
    keys,
    logger,
    metrics: gatewayMetrics,
    activity,
    faultOf: config.PROVIDER_PROFILE.accounting.faultOf,
  })
  const fastPath = config.FAST_PATH
    ? createFastPath({ serve: listener.onFastPathRequest, mayBuffer: listener.isFastPathRequest })
    : undefined
  const http = stack.use(
    await listen(listener.onRequest, {
      host: config.HOST,
      port: config.PORT,
      drainMs: DRAIN_MS,
      metrics,
      ...(fastPath && { onSocket: (socket, serve) => fastPath.accept(socket, serve) }),
    }),
  )
  http.server.requestTimeout = REQUEST_TIMEOUT_MS
  listener.attach(http.server)
  const owned = stack.move()
  return {
    url: http.url,
    async [Symbol.asyncDispose]() {
      listener.shutDown()
      fastPath?.shutDown()
      await owned.disposeAsync()
    },
  }
}

/**
 * Logs a warning if the address of the accounting API or of the discovery document is on another machine and uses plain
 * http. An attacker in the network could read bearer tokens on such a connection. The attacker could also change the
 * discovery document, and with it the address to which tokens are sent.
 */
function warnOfPlainHttp(config: Config, logger: Logger): void {
  const { ACCOUNTING_URL, DISCOVERY_URL } = config
  // With ACCOUNTING_URL, the discovery document is not fetched, so DISCOVERY_URL need not be checked.
  const [setting, address] =
    ACCOUNTING_URL === undefined
      ? ['DISCOVERY_URL', DISCOVERY_URL]
      : ['ACCOUNTING_URL', ACCOUNTING_URL]
  if (address === undefined) return
  const { protocol, hostname } = new URL(address)
  if (protocol === 'http:' && !isLoopback(hostname))
    logger.warn({ setting, host: hostname }, 'address uses plain http: tokens are sent unencrypted')
}

/**
 * Returns a function that returns the accounting API. Its address is the setting ACCOUNTING_URL. If this setting is
 * absent, the address comes from the discovery document.
 */
async function locateUpstream(config: Config, health: Health, stack: AsyncDisposableStack) {
  const { ACCOUNTING_URL, DISCOVERY_URL } = config
  const connections = stack.use(new AsyncDisposableStack())
  const proxyFor = chooseProxy(config, [config.TOKEN_SERVICE_URL])
  const connect = (url: string) => {
    const base = upstreamBase(url)
    const options = { connect: tunnelTo(proxyFor, new URL(base.origin)) }
    return { base, api: connections.use(connectUpstream(base.origin, options)).upstream }
  }
  if (ACCOUNTING_URL !== undefined) {
    const known = connect(ACCOUNTING_URL)
    return () => known
  }
  if (DISCOVERY_URL === undefined)
    throw new TypeError('readConfig requires one of ACCOUNTING_URL and DISCOVERY_URL')
  const discovered = stack.use(
    await discoverAccountingUrl(DISCOVERY_URL, {
      dependency: health.dependency('discovery'),
      addressOf: config.PROVIDER_PROFILE.accounting.addressOf,
      proxyFor,
    }),
  )
  let known: ReturnType<typeof connect> | null = null
  return () => (known ??= connect(discovered.current()))
}
