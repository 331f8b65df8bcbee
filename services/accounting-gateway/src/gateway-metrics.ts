import { hasCode } from '@integration-host/shared/errors'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import type { GatewayLimits, RealmLimits } from './realm/throttle.ts'

/** The gateway's own figures; a realm is a label only where the settings ask for it. */
export interface GatewayMetrics {
  /** One call that has its answer; milliseconds. `realm` is null for what was refused unread. */
  call(realm: string | null, status: number, durationMs: number, waitedMs: number): void
  retry(reason: string): void
  hold(): void
  /** The same limits, watched. */
  watched(limits: GatewayLimits): GatewayLimits
}

export function createGatewayMetrics(
  metrics: Metrics,
  { byRealm, now }: { readonly byRealm: boolean; readonly now: () => number },
): GatewayMetrics {
  const calls = metrics.counter(
    'gateway_requests_total',
    'Calls answered, by status; 499 where the caller went away',
    byRealm ? ['status', 'realm'] : ['status'],
  )
  const duration = metrics.histogram(
    'gateway_request_duration_seconds',
    "From a call's arrival to the end of upstream's answer",
  )
  const waits = metrics.histogram(
    'gateway_wait_seconds',
    'What calls that had to wait for their turn, a token or another try waited',
  )
  const retries = metrics.counter('gateway_retries_total', 'Attempts made again, by reason', [
    'reason',
  ])
  const holds = metrics.counter('gateway_holds_total', 'Answers 429 that put a realm on hold')
  const throttleWaits = metrics.histogram(
    'gateway_throttle_wait_seconds',
    "What calls waited for their realm's turn, those that had to",
  )
  const throttled = metrics.counter(
    'gateway_throttled_total',
    'Calls that the gateway itself answered 429, as their turn would have come too late',
  )
  const onHold = metrics.gauge(
    'gateway_realms_on_hold',
    'Realms that rest after a 429 which this process saw',
  )
  const heldUntil = new Map<string, number>()
  const forgetPast = (): void => {
    for (const [realm, until] of heldUntil) if (until <= now()) heldUntil.delete(realm)
  }
  metrics.beforeEach(() => {
    forgetPast()
    onHold.set(heldUntil.size)
  })

  const watchTurns = (limits: RealmLimits): RealmLimits => ({
    acquire(realm, patience) {
      const claim = limits.acquire(realm, patience)
      if (!(claim instanceof Promise)) return claim
      const from = now()
      claim.then(
        () => {
          const waitedMs = now() - from
          if (waitedMs >= 1) throttleWaits.observe(waitedMs / 1_000)
        },
        (error: unknown) => {
          if (hasCode(error, 'throttled')) throttled.inc()
        },
      )
      return claim
    },
    hold(realm, ms) {
      limits.hold(realm, ms)
      forgetPast()
      heldUntil.set(realm, Math.max(heldUntil.get(realm) ?? 0, now() + ms))
    },
  })

  return {
    watched: ({ calls: all, batches }) => ({
      calls: watchTurns(all),
      batches: watchTurns(batches),
    }),
    call(realm, status, durationMs, waitedMs) {
      calls.inc({ status: String(status), ...(byRealm && { realm: realm ?? '' }) })
      duration.observe(durationMs / 1_000)
      if (waitedMs >= 1) waits.observe(waitedMs / 1_000)
    },
    retry: (reason) => retries.inc({ reason }),
    hold: () => holds.inc(),
  }
}
