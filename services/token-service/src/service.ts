import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { hasCode } from '@integration-host/shared/errors'
import { openAccessKeys } from '@integration-host/shared/access/access-keys'
import type { Health } from '@integration-host/shared/observability/health'
import {
  chooseProxy,
  logForwardProxies,
  type ProxyFor,
} from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { createProxiedFetch } from '@integration-host/shared/http/forward-proxy/tunnel'
import { peerNetworks } from '@integration-host/shared/http/peer-network'
import { honoListener, listen } from '@integration-host/shared/http/http-server'
import { isLoopback } from '@integration-host/shared/http/origin-guard'
import { DecryptionError } from '@integration-host/shared/secrets/envelope'
import type { RunningService } from '@integration-host/shared/process/lifecycle'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { createMetrics, type Metrics } from '@integration-host/shared/observability/metrics'
import { tracedPort } from '@integration-host/shared/observability/telemetry'
import { createMemoryAuthorizationStore } from './adapters/memory/authorization-store.ts'
import { createMemoryConnectLinkStore } from './adapters/file/connect-link-store.ts'
import { createCompanyNameReader } from './adapters/accounting/company-name.ts'
import { watchDiscovery } from './adapters/openid/discovery.ts'
import { createOpenIdProvider } from './adapters/openid/provider.ts'
import { relayCredentialEvents } from './adapters/message-bus/credential-events.ts'
import { createApp } from './app.ts'
import { createAuthorization, createRequestSeal } from './authorization/authorization-request.ts'
import type { AuthorizationStore } from './authorization/authorization-store.ts'
import { createCallbackHandler, createExchangeAdmission } from './authorization/callback.ts'
import { createCodeExchanges } from './authorization/code-exchange.ts'
import type { ConnectLinkStore } from './authorization/connect-link-store.ts'
import { createConnectLinks } from './authorization/connect-links.ts'
import { forwardAudit, type SendAudit } from './audit-forwarding/forward-audit.ts'
import { toStdout, toSyslog, toWebhook } from './adapters/audit-sinks/sinks.ts'
import type { TokenServiceConfig } from './config.ts'
import { createAdoptions } from './credential/adoption.ts'
import { createAccessTokens } from './credential/access-token.ts'
import type { CredentialStore, StoreConnection } from './credential/credential-store.ts'
import {
  createRefreshRoutine,
  type Failpoint,
  type RefreshReport,
  type RefreshTiming,
  refreshTiming,
} from './credential/refresh.ts'
import { createCompanyNames } from './credential/company-names.ts'
import { createAuditCounter } from './credential/audit-counter.ts'
import { createActionQuota } from './credential/audit-retention.ts'
import type { CustodyDeps } from './credential/custody-deps.ts'
import { startIndexUpkeep } from './credential/index-upkeep.ts'
import { createDisconnectHints } from './credential/disconnect-hints.ts'
import { createKeyRotation } from './credential/key-rotation.ts'
import { createRecentPairs, type RestorationReport } from './credential/recent-pairs.ts'
import { createLabelling, noLabels } from './credential/labels.ts'
import { createRemoval } from './credential/removal.ts'
import type { KeptPair, RescueFolder } from './credential/restoration.ts'
import { startDueRefreshes } from './credential/due-refreshes.ts'
import { createTransfers } from './credential/transfer.ts'
import { createTokenServiceMetrics, watchCredentials } from './metrics.ts'
import { breakOnRejectedClient } from './provider/client-breaker.ts'
import { createBrowser } from './routes/browser.ts'

export interface TokenServiceAdapters {
  readonly logger: Logger
  readonly health: Health
  readonly store: CredentialStore
  /** The connection to `store`; absent if the store cannot lose writes in a failover. */
  readonly connection?: StoreConnection
  /** The folder `RESCUE_DIR`; `null` if it is not set. */
  readonly rescue?: RescueFolder | null
  readonly bus: MessageBus
  readonly metrics?: Metrics
  /** The default is a store in memory, which is correct only for a single replica. */
  readonly authorizations?: AuthorizationStore
  /** The default is a store in memory. It is correct only for a single replica, and loses the links at a restart. */
  readonly links?: ConnectLinkStore
  /** Overrides the defaults of the refresh protocol. */
  readonly timing?: Partial<RefreshTiming>
  /** Called and awaited at each failpoint, where a test can interrupt a refresh. Only tests set this function. */
  readonly failpoint?: (point: Failpoint, name: string) => Promise<void> | void
}

/** The deadline for the last byte of a response, in milliseconds from the start of a token request. */
const PROVIDER_DEADLINE_MS = 10_000
const MAX_REFRESHES = 32
const MAX_SCHEDULED_REFRESHES = 16
/** How long the page at the end of an authorization waits for the name of its company, which is read at that time. */
const NAME_WAIT_MS = 1_500

/** Builds the service from its settings and adapters, and serves until disposed. The caller disposes the adapters. */
export async function startTokenService(
  config: TokenServiceConfig,
  adapters: TokenServiceAdapters,
): Promise<RunningService> {
  const { logger, health, bus, connection, rescue = null } = adapters
  const { authorizations = createMemoryAuthorizationStore() } = adapters
  const { links = createMemoryConnectLinkStore() } = adapters
  const metrics = adapters.metrics ?? createMetrics('token-service')
  const counted = createTokenServiceMetrics(metrics, { byRealm: config.METRICS_BY_REALM })

  const profile = config.PROVIDER_PROFILE
  const requestsIdToken = config.SCOPE.split(' ').includes('openid')
  const common: Omit<CustodyDeps, 'store'> = {
    owner: randomUUID(),
    refreshAheadMs: config.REFRESH_AHEAD_SECONDS * 1_000,
    idleLimitMs: (config.IDLE_LIMIT_DAYS ?? profile.grant.idleLimitDays) * 86_400_000,
    now: Date.now,
    sleep: (ms, signal) =>
      delay(ms, undefined, signal === undefined ? {} : { signal }).catch(() => {}),
    notifyOutbox: () => events.wake(),
    // Every error is logged here, except an unavailable store, which the health check of the store logs once.
    onError(error) {
      if (hasCode(error, 'store_unavailable') || hasCode(error, 'shutting_down')) return
      logger.error({ err: error }, 'background task of token-service failed')
    },
  }
  const { now } = common

  const proxyFor = chooseProxy(config)
  logForwardProxies(config, logger)

  await using opened = new AsyncDisposableStack()
  const discoveryUrl = new URL(config.DISCOVERY_URL)
  if (discoveryUrl.protocol === 'http:' && !isLoopback(discoveryUrl.hostname)) {
    logger.warn(
      { host: discoveryUrl.hostname },
      'DISCOVERY_URL is plain http: tokens are sent unencrypted',
    )
  }
  const discovery = opened.use(
    watchDiscovery(discoveryUrl, health.dependency('provider'), {
      needsKeys: requestsIdToken,
      proxyFor,
    }),
  )
  // The dependency `provider-client` is optional, because valid access tokens are issued even while the provider
  // rejects the client credentials. The service sends no separate request to test the client credentials. They count as
  // accepted until the provider rejects them in a refresh.
  const clientDependency = health.dependency('provider-client', 'optional')
  clientDependency.up()
  const provider = breakOnRejectedClient(
    createOpenIdProvider({
      discovery,
      profile,
      clientId: config.CLIENT_ID,
      clientSecrets: config.CLIENT_SECRET,
      redirectUri: config.REDIRECT,
      scope: config.SCOPE,
      requestsIdToken,
      now,
      deadlineMs: PROVIDER_DEADLINE_MS,
      proxyFor,
      observe: counted.observeProviderRequest,
      onIdTokenRejected: (member) => {
        counted.countRejectedIdToken()
        logger.warn(
          { member },
          'refresh returned an invalid id token: the id token is dropped, the token pair is kept',
        )
      },
    }),
    {
      // A monotonic clock, so that a change of the system clock does not change the delay of a probe.
      now: () => performance.now(),
      onChange(isRejected) {
        counted.setClientRejected(isRejected)
        if (isRejected) clientDependency.down('the provider rejects CLIENT_ID and CLIENT_SECRET')
        else clientDependency.up()
        if (isRejected)
          logger.error(
            'provider rejects CLIENT_ID and CLIENT_SECRET: only probes are sent to the token endpoint',
          )
        else logger.info('provider accepts the client credentials again')
      },
    },
  )
  const events = opened.use(relayCredentialEvents({ ...common, bus, store: adapters.store }))
  const send = auditReceiver(config, proxyFor)
  if (config.AUDIT_TO !== undefined && send !== null)
    opened.use(
      forwardAudit({
        ...common,
        store: adapters.store,
        sink: config.AUDIT_TO,
        send,
        dependency: health.dependency('audit-sink', 'optional'),
        logger,
        metrics,
      }),
    )
  const recentPairs =
    connection &&
    opened.use(
      createRecentPairs({
        ...common,
        store: adapters.store,
        connection,
        rescue,
        report(report) {
          counted.countRestoration(report)
          logRestoration(logger, report)
        },
      }),
    )
  // The token pairs that earlier processes left in RESCUE_DIR are read before any refresh can start. The refresh of a
  // company with such a token pair waits until the token pair was compared with the store.
  await recentPairs?.restoreFiles()
  const readName = createCompanyNameReader({
    profile: profile.accounting,
    accountingUrl: config.ACCOUNTING_URL,
    discovery,
    proxyFor,
  })
  const pairStore = recentPairs?.store ?? adapters.store
  const companyNames =
    readName && opened.use(createCompanyNames({ ...common, store: pairStore, read: readName }))
  const store = companyNames?.store ?? pairStore
  const custody: CustodyDeps = { ...common, store }
  const refreshing = {
    provider,
    heldBackMs: provider.heldBackMs,
    rescue: async (pair: KeptPair): Promise<boolean> => (await recentPairs?.rescue(pair)) ?? false,
    ...(adapters.failpoint !== undefined && { failpoint: adapters.failpoint }),
  }
  const refreshRoutine = opened.use(
    createRefreshRoutine({
      ...custody,
      ...refreshing,
      timing: {
        ...refreshTiming,
        graceMs: profile.grant.previousTokenGraceMs,
        rejectedGrantRetryDelaysMs: profile.grant.rejectedGrantRetryDelaysMs,
        ...adapters.timing,
      },
      concurrency: MAX_REFRESHES,
      random: Math.random,
      storeChangedAt: () => connection?.serverChangedAt() ?? null,
      report(report) {
        counted.countRefresh(report)
        logRefresh(logger, report)
      },
      // The body of the response is not logged, because it may contain any text.
      reportWithoutResult: ({ name, wasSent, status, body, traceId }) =>
        logger.warn(
          { name, wasSent, traceId, ...(status === null ? { reason: body } : { status }) },
          'a refresh got no usable response from the token endpoint',
        ),
    }),
  )
  const routine = tracedPort(refreshRoutine, { refresh: { name: 'refresh', kind: 'internal' } })
  const auditCounter = opened.use(createAuditCounter(custody))
  const { isClientRejected } = provider
  const accessTokens = createAccessTokens({ ...custody, routine, auditCounter, isClientRejected })
  const exchanges = opened.use(
    createCodeExchanges({
      ...custody,
      authorizations,
      provider,
      auditCounter,
      report: (report) =>
        logger[report.oddities === undefined ? 'info' : 'warn'](report, 'code exchange ended'),
    }),
  )
  const admission = createExchangeAdmission()
  const access = opened.use(openAccessKeys(config, { logger, health, metrics }))
  const authorization = createAuthorization({
    keys: access.keys,
    seal: createRequestSeal(config.CREDENTIAL_KEYS),
    provider,
    authorizations,
    scope: config.SCOPE,
    realmScopes: profile.authorization.realmScopes,
    returnToOrigins: config.RETURN_TO_ORIGINS ?? null,
    now,
  })
  const connectLinks = createConnectLinks({
    keys: access.keys,
    links,
    authorization,
    returnToOrigins: config.RETURN_TO_ORIGINS ?? null,
    auditCounter,
    now,
  })
  const disconnectHints = opened.use(
    createDisconnectHints({
      ...custody,
      routine,
      admit: (name, intervalMs) => authorizations.admitHint(name, intervalMs),
    }),
  )
  const redirectUri = new URL(config.REDIRECT)
  const shutdown = new AbortController()
  const adoptions = opened.use(
    createAdoptions({
      ...custody,
      ...refreshing,
      timing: { ...refreshTiming, ...adapters.timing },
      report(report) {
        const { name, outcome, traceId } = report
        if (outcome === 'rotation_rescued' || outcome === 'rotation_dropped') {
          const lost = { name, outcome, calls: 1, traceId }
          counted.countRefresh(lost)
          logRefresh(logger, lost, 'adoption')
        } else {
          const level = report.oddities === undefined ? 'info' : 'warn'
          logger[level](report, 'import of an existing grant ended')
        }
      },
    }),
  )
  const lookups = createCredentialLookups(store)
  const { CREDENTIAL_KEYS: credentialKeys } = config
  const app = createApp({
    logger,
    health,
    metrics,
    keys: access.keys,
    authorization,
    exchanges,
    admission,
    completeAuthorization: createCallbackHandler({
      authorization,
      authorizations,
      links,
      admission,
      exchanges,
      auditCounter,
      nameOf: lookups.nameOf,
      now,
      sleep: common.sleep,
    }),
    isAuthorizeOpen: config.AUTHORIZE === 'open',
    connectLinks,
    links,
    disconnectHints,
    ...lookups,
    browser: createBrowser({ product: config, keys: credentialKeys, redirectUri, now }),
    nameSettled: async (name) => companyNames?.settled(name, NAME_WAIT_MS),
    redirectUri,
    networkOf: peerNetworks(config.TRUSTED_PROXIES),
    store,
    accessTokens,
    refreshAheadMs: common.refreshAheadMs,
    takeActions: createActionQuota(store, now),
    changeLabels: createLabelling({ store, auditCounter }),
    remove: createRemoval({ ...custody, provider }),
    transfers: createTransfers({ ...custody, routine }),
    adoptions,
    rotateKeys: createKeyRotation({ ...custody, activeKeyId: credentialKeys.activeKeyId }),
    shutdown: shutdown.signal,
  })
  opened.use(startDueRefreshes({ ...custody, routine, concurrency: MAX_SCHEDULED_REFRESHES }))
  opened.use(startIndexUpkeep(custody))
  const uncommittedCount = (): number => refreshRoutine.uncommittedCount()
  opened.use(watchCredentials(metrics, { ...custody, uncommittedCount, isClientRejected }))

  const server = opened.use(
    await listen(honoListener(app), { host: config.HOST, port: config.PORT, metrics }),
  )
  opened.defer(() => shutdown.abort())
  const running = opened.move()
  return { url: server.url, [Symbol.asyncDispose]: () => running.disposeAsync() }
}

/**
 * Returns two functions that read a stored credential for the pages of the authorization. The name of a company is its
 * label, or else its name at the provider. A record that cannot be decrypted counts as stored and has no name, so that
 * its company can be connected again.
 */
function createCredentialLookups(store: Pick<CredentialStore, 'get'>) {
  const find = (name: string) =>
    store.get(name).catch((error: unknown) => {
      if (error instanceof DecryptionError) return noLabels
      throw error
    })
  return {
    isKnown: async (name: string): Promise<boolean> => (await find(name)) !== null,
    nameOf: async (name: string): Promise<string | null> => {
      const { label, company } = (await find(name)) ?? noLabels
      return label ?? company?.name ?? null
    },
  }
}

/**
 * Logs the outcome of a refresh. If a token pair was dropped, `retry` names the operation that sends the previous
 * refresh token again.
 */
function logRefresh(
  logger: Logger,
  report: RefreshReport,
  retry: 'refresh' | 'adoption' = 'refresh',
): void {
  if (report.outcome === 'rotation_dropped') {
    const remedy = `Reconnect ${report.name} unless its next ${retry} succeeds: the provider has rotated the refresh token, and the new one is lost.`
    logger.error({ ...report, remedy }, 'rotated token pair dropped: the store is unavailable')
  } else if (report.outcome === 'rotation_rescued') {
    const remedy =
      'Start token-service again with the same RESCUE_DIR and CREDENTIAL_KEYS. Until then the only copy of the pair is the file.'
    logger.error({ ...report, remedy }, 'rotated token pair written to RESCUE_DIR')
  } else {
    const isOrdinary = report.outcome === 'refreshed' && report.oddities === undefined
    logger[isOrdinary ? 'info' : 'warn'](report, 'credential refresh ended')
  }
}

function logRestoration(logger: Logger, report: RestorationReport): void {
  if (report.outcome === 'restored')
    logger.warn(report, 'token pair stored again: the store did not have it')
  else logger.info(report, 'token pair deleted from RESCUE_DIR: the store does not need it')
}

/** Returns the function that sends audit entries to the sink of `AUDIT_TO`; `null` if there is none. */
function auditReceiver(config: TokenServiceConfig, proxyFor: ProxyFor): SendAudit | null {
  const { AUDIT_WEBHOOK_URL: url, AUDIT_WEBHOOK_SECRET: key } = config
  if (config.AUDIT_TO === 'stdout') return toStdout()
  if (config.AUDIT_TO === 'syslog') return toSyslog(config.AUDIT_SYSLOG)
  return config.AUDIT_TO === 'webhook' && url !== undefined && key !== undefined
    ? toWebhook(url, key, createProxiedFetch(proxyFor))
    : null
}
