/** The metrics that only this service has. The metrics that every service has are in shared/http/service-app.ts. */
import { type KeyRing, watchDecryptionFailures } from '@integration-host/shared/secrets/envelope'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import type { CustodyDeps } from './credential/custody-deps.ts'
import type { RestorationReport } from './credential/recent-pairs.ts'
import type { RefreshReport } from './credential/refresh.ts'

export function createTokenServiceMetrics(
  metrics: Metrics,
  /** If `byRealm` is true, the metric of refreshes has the label `realm`, and therefore one time series per company. */
  { byRealm }: { readonly byRealm: boolean },
) {
  const refreshes = metrics.counter(
    'credential_refreshes_total',
    'Refreshes by outcome (refreshed, failed, superseded, rotation_rescued, rotation_dropped) and, of those that failed, class',
    byRealm ? ['outcome', 'class', 'realm'] : ['outcome', 'class'],
  )
  const restored = metrics.counter(
    'credential_pairs_restored_total',
    'Token pairs that the store lacked and that were stored again, from memory or from a file of RESCUE_DIR',
    ['source'],
  )
  const rejectedIdTokens = metrics.counter(
    'id_tokens_refused_total',
    'Id tokens of a refresh that were not valid',
  )
  const latency = metrics.histogram(
    'provider_request_duration_seconds',
    'Duration of requests to the provider',
    ['call', 'outcome'],
  )
  const clientRejected = metrics.gauge(
    'provider_client_refused',
    '1 while the provider rejects the client credentials',
  )
  return {
    countRefresh(report: RefreshReport): void {
      refreshes.inc({
        ...refreshLabels(report),
        ...(byRealm && { realm: report.name.slice('ACC-'.length) }),
      })
    },
    countRestoration({ source, outcome }: RestorationReport): void {
      if (outcome === 'restored') restored.inc({ source })
    },
    countRejectedIdToken: (): void => rejectedIdTokens.inc(),
    /** Records the duration of a token request. `durationMs` is in milliseconds, and the metric is in seconds. */
    observeProviderRequest: (call: string, outcome: string, durationMs: number): void =>
      latency.observe({ call, outcome }, durationMs / 1_000),
    setClientRejected: (isRejected: boolean): void => clientRejected.set(isRejected ? 1 : 0),
  }
}

const NOT_FAILED: readonly string[] = [
  'refreshed',
  'superseded',
  'rotation_rescued',
  'rotation_dropped',
] satisfies RefreshReport['outcome'][]

/** The labels of the refresh metric. `class` is the class of the failure; empty if the refresh did not fail. */
const refreshLabels = ({ outcome }: RefreshReport): { outcome: string; class: string } =>
  NOT_FAILED.includes(outcome) ? { outcome, class: '' } : { outcome: 'failed', class: outcome }

const COUNT_INTERVAL_MS = 10_000

/**
 * Publishes the gauges about stored credentials. Their values are read from the store every 10 s, so that a scrape does
 * not wait for the store. Disposing stops the reads.
 */
export function watchCredentials(
  metrics: Metrics,
  deps: Pick<CustodyDeps, 'store' | 'now' | 'onError'> & {
    /** Returns the number of rotated token pairs in this process that the store has not accepted yet. */
    readonly uncommittedCount: () => number
    readonly isClientRejected: () => boolean
  },
): Disposable {
  const { store, uncommittedCount, isClientRejected, now, onError } = deps
  const stored = metrics.gauge('credentials_stored', 'Credentials in the store')
  const faulted = metrics.gauge('credentials_faulted', 'Credentials with a fault')
  const nearestExpiry = metrics.gauge(
    'credential_nearest_expiry_seconds',
    'Time until the next access token of a living grant expires; negative if it has, NaN if there is none',
  )
  const uncommitted = metrics.gauge(
    'credential_rotations_uncommitted',
    'Rotated token pairs that only this process has, because the store did not accept them yet',
  )
  let nextExpiryAt: number | null = null
  const secondsUntilExpiry = (): number | null =>
    nextExpiryAt === null ? null : (nextExpiryAt - now()) / 1_000
  metrics.beforeEach(() => {
    uncommitted.set(uncommittedCount())
    nearestExpiry.set(secondsUntilExpiry() ?? Number.NaN)
  })
  metrics.summarize(() => ({
    TokenService: {
      ClientRejected: isClientRejected(),
      NearestExpirySeconds: secondsUntilExpiry(),
    },
  }))
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
  void count()
  return { [Symbol.dispose]: () => clearInterval(counting) }
}

/** Returns a key ring that behaves like `keys`, and also counts the stored secrets that cannot be decrypted. */
export function countDecryptionFailures(keys: KeyRing, metrics: Metrics): KeyRing {
  const failures = metrics.counter(
    'envelopes_refused_total',
    'Stored secrets that could not be decrypted: changed, moved, or sealed with another key',
  )
  return watchDecryptionFailures(keys, () => failures.inc())
}
