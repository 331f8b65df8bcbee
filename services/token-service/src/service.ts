import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { type KeyRing, watchDecryptionFailures } from '@integration-host/shared/secrets/envelope'
import { hasCode } from '@integration-host/shared/errors'
import type { Health } from '@integration-host/shared/observability/health'
import { honoListener, listen } from '@integration-host/shared/http/http-server'
import { isLoopback } from '@integration-host/shared/http/loopback'
import type { RunningService } from '@integration-host/shared/process/lifecycle'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { createMetrics, type Metrics } from '@integration-host/shared/observability/metrics'
import { tracedPort } from '@integration-host/shared/observability/telemetry'
import { createMemoryAuthorizationStore } from './adapters/memory/authorization-store.ts'
import { watchDiscovery } from './adapters/openid/discovery.ts'
import { createOpenIdProvider } from './adapters/openid/provider.ts'
import { relayCredentialEvents } from './adapters/message-bus/credential-events.ts'
import { createApp } from './app.ts'
import { createAuthorization } from './authorization/authorization-request.ts'
import type { AuthorizationStore } from './authorization/authorization-store.ts'
import { createCodeExchanges } from './authorization/code-exchange.ts'
import type { TokenServiceConfig } from './config.ts'
import { createAccessTokens } from './credential/access-token.ts'
import type { CredentialStore } from './credential/credential-store.ts'
import {
  createRefreshRoutine,
  type Failpoint,
  type RefreshReport,
  type RefreshTiming,
  refreshTiming,
} from './credential/refresh.ts'
import { createIssuanceLog } from './credential/token-issuance.ts'
import { createKeyRotation } from './credential/key-rotation.ts'
import { createRemoval } from './credential/removal.ts'
import { startSchedule } from './credential/schedule.ts'
import { createTransfers } from './credential/transfer.ts'
import { breakOnRejectedClient } from './provider/client-breaker.ts'

export interface TokenServiceAdapters {
  readonly logger: Logger
  readonly health: Health
  readonly store: CredentialStore
  readonly bus: MessageBus
  readonly metrics?: Metrics
  /** Default: in memory, which is correct only while there is one replica. */
  readonly authorizations?: AuthorizationStore
  /** Overrides the defaults of the refresh protocol. */
  readonly timing?: Partial<RefreshTiming>
  /** Awaited at each failpoint of a refresh. */
  readonly failpoint?: (point: Failpoint, name: string) => Promise<void> | void
}

/** From the start of a provider request to the last byte of its response. */
const PROVIDER_DEADLINE_MS = 10_000
const MAX_REFRESHES = 32
const MAX_SCHEDULED_REFRESHES = 16
const COUNT_INTERVAL_MS = 10_000

/** Wraps a key ring so that each stored secret that it cannot decrypt is counted. */
export function countRefusals(keys: KeyRing, metrics: Metrics): KeyRing {
  const refusals = metrics.counter(
    'envelopes_refused_total',
    'Stored secrets that could not be decrypted: changed, moved, or sealed with another key',
  )
  return watchDecryptionFailures(keys, () => refusals.inc())
}

/** Builds the service from its settings and adapters and serves until disposed. The caller disposes the adapters. */
export async function startTokenService(
  config: TokenServiceConfig,
  adapters: TokenServiceAdapters,
): Promise<RunningService> {
  const { logger, health, store, bus, authorizations = createMemoryAuthorizationStore() } = adapters
  const metrics = adapters.metrics ?? createMetrics('token-service')
  const byRealm = config.METRICS_BY_REALM
  const refreshes = metrics.counter(
    'credential_refreshes_total',
    'Refreshes by outcome (refreshed, failed, superseded, rotation_dropped) and, of those that failed, class',
    byRealm ? ['outcome', 'class', 'realm'] : ['outcome', 'class'],
  )
  const uncommitted = metrics.gauge(
    'credential_rotations_uncommitted',
    'Rotated token pairs that only this process has, because the store did not accept them yet',
  )
  const refusedIdTokens = metrics.counter(
    'id_tokens_refused_total',
    'Id tokens of a refresh that were not valid',
  )
  const latency = metrics.histogram(
    'provider_request_duration_seconds',
    'Duration of requests to the provider',
    ['call', 'outcome'],
  )
  const stored = metrics.gauge('credentials_stored', 'Credentials in the store')
  const faulted = metrics.gauge('credentials_faulted', 'Credentials with a fault')
  const nearestExpiry = metrics.gauge(
    'credential_nearest_expiry_seconds',
    'Time until the next access token of a living grant expires; negative if it has, NaN if there is none',
  )
  const refused = metrics.gauge(
    'provider_client_refused',
    '1 while the provider rejects the client credentials',
  )

  const owner = randomUUID()
  const now = Date.now
  const sleep = (ms: number, signal?: AbortSignal): Promise<void> =>
    delay(ms, undefined, signal === undefined ? {} : { signal }).catch(() => {})
  const refreshAheadMs = config.REFRESH_AHEAD_SECONDS * 1_000
  const profile = config.PROVIDER_PROFILE
  const idleLimitMs = (config.IDLE_LIMIT_DAYS ?? profile.grant.idleLimitDays) * 86_400_000
  // An unavailable store is logged once, by its health check; every other error is logged here.
  const onError = (error: unknown): void => {
    if (hasCode(error, 'store_unavailable') || hasCode(error, 'shutting_down')) return
    logger.error({ err: error }, 'background work failed')
  }

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
      needsKeys: config.SCOPE.split(' ').includes('openid'),
    }),
  )
  const provider = breakOnRejectedClient(
    createOpenIdProvider({
      discovery,
      profile,
      clientId: config.CLIENT_ID,
      clientSecrets: config.CLIENT_SECRET,
      redirectUri: config.REDIRECT,
      scope: config.SCOPE,
      now,
      deadlineMs: PROVIDER_DEADLINE_MS,
      observe: (call, outcome, ms) => latency.observe({ call, outcome }, ms / 1_000),
      onIdTokenRejected: (member) => {
        refusedIdTokens.inc()
        logger.warn(
          { member },
          'id token of a refresh is not valid: the id token is dropped, the token pair is kept',
        )
      },
    }),
    {
      // Monotonic: the delay of a probe must not change when the system clock is set.
      now: () => performance.now(),
      onChange(isRejected) {
        refused.set(isRejected ? 1 : 0)
        if (isRejected)
          logger.error(
            'provider rejects CLIENT_ID and CLIENT_SECRET: only probes are sent to the token endpoint',
          )
        else logger.info('provider accepts the client credentials again')
      },
    },
  )
  const events = opened.use(relayCredentialEvents({ bus, store, owner, sleep, onError }))
  const notifyOutbox = (): void => events.wake()
  const refreshRoutine = opened.use(
    createRefreshRoutine({
      store,
      provider,
      heldBackMs: provider.heldBackMs,
      owner,
      refreshAheadMs,
      idleLimitMs,
      timing: {
        ...refreshTiming,
        graceMs: profile.grant.previousTokenGraceMs,
        rejectedGrantRetryDelaysMs: profile.grant.rejectedGrantRetryDelaysMs,
        ...adapters.timing,
      },
      concurrency: MAX_REFRESHES,
      now,
      random: Math.random,
      sleep,
      notifyOutbox,
      report(report) {
        refreshes.inc({
          ...refreshLabels(report),
          ...(byRealm && { realm: report.name.slice('ACC-'.length) }),
        })
        logRefresh(logger, report)
      },
      onError,
      ...(adapters.failpoint !== undefined && { failpoint: adapters.failpoint }),
    }),
  )
  const routine = tracedPort(refreshRoutine, { refresh: { name: 'refresh', kind: 'internal' } })
  const issuanceLog = opened.use(createIssuanceLog({ store, now, notifyOutbox }))
  const accessTokens = createAccessTokens({ store, routine, refreshAheadMs, issuanceLog, now })
  const exchanges = opened.use(
    createCodeExchanges({
      authorizations,
      provider,
      store,
      refreshAheadMs,
      idleLimitMs,
      now,
      sleep,
      notifyOutbox,
      report: (report) => logger.info(report, 'code exchange'),
    }),
  )
  const shutdown = new AbortController()
  const leaseDeps = {
    store,
    owner,
    leaseMs: refreshTiming.leaseMs,
    waitTimeoutMs: refreshTiming.leaseMs,
    now,
    sleep,
    notifyOutbox,
  }
  const app = createApp({
    logger,
    health,
    metrics,
    keys: config.SERVICE_API_KEY,
    authorization: createAuthorization({
      authorizations,
      provider,
      scope: config.SCOPE,
      realmScopes: profile.authorization.realmScopes,
      returnToOrigins: config.RETURN_TO_ORIGINS ?? null,
      now,
      sleep,
    }),
    exchanges,
    redirectUri: new URL(config.REDIRECT),
    store,
    accessTokens,
    remove: createRemoval({ ...leaseDeps, provider }),
    transfers: createTransfers({ ...leaseDeps, routine, refreshAheadMs }),
    rotateKeys: createKeyRotation({
      store,
      activeKeyId: config.CREDENTIAL_KEYS.activeKeyId,
      now,
      notifyOutbox,
    }),
    auditLog: store,
    keyCheck: store,
    shutdown: shutdown.signal,
  })
  opened.use(
    startSchedule({ store, routine, now, sleep, concurrency: MAX_SCHEDULED_REFRESHES, onError }),
  )

  metrics.beforeEach(() => uncommitted.set(refreshRoutine.uncommittedCount()))
  let nextExpiryAt: number | null = null
  metrics.beforeEach(() =>
    nearestExpiry.set(nextExpiryAt === null ? Number.NaN : (nextExpiryAt - now()) / 1_000),
  )
  const count = async (): Promise<void> => {
    try {
      const counts = await store.counts()
      stored.set(counts.stored)
      faulted.set(counts.faulted)
      nextExpiryAt = counts.nextExpiryAt
    } catch (error) {
      onError(error)
    }
  }
  const counting = setInterval(() => void count(), COUNT_INTERVAL_MS)
  opened.defer(() => clearInterval(counting))
  void count()

  const server = opened.use(
    await listen(honoListener(app), { host: config.HOST, port: config.PORT }),
  )
  opened.defer(() => shutdown.abort())
  const running = opened.move()
  return { url: server.url, [Symbol.asyncDispose]: () => running.disposeAsync() }
}

/** The labels of a refresh. `class` is empty unless it failed: then it is the class of the failure. */
function refreshLabels({ outcome }: RefreshReport): { outcome: string; class: string } {
  if (outcome === 'refreshed' || outcome === 'superseded' || outcome === 'rotation_dropped')
    return { outcome, class: '' }
  return { outcome: 'failed', class: outcome }
}

function logRefresh(logger: Logger, report: RefreshReport): void {
  if (report.outcome === 'rotation_dropped') {
    const remediation = `Reconnect ${report.name} unless its next refresh succeeds: the provider has rotated the refresh token, and the new one is lost.`
    logger.error({ ...report, remediation }, 'rotated token pair dropped: the store is unavailable')
  } else logger[report.outcome === 'refreshed' ? 'info' : 'warn'](report, 'refresh')
}
