import { hasCode } from '@integration-host/shared/errors'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import { type GatewayLimits, watchLimits } from './realm/throttle.ts'
import { type CallCounts, type CallKind, meteredOf } from './usage/usage.ts'

/** How many of the last calls the summary takes into account, and for how long. */
const TIMED_CALLS = 1_000
const TIMED_MS = 60_000

/** The metrics that only the gateway has. They have the label `realm` only if `METRICS_BY_REALM` is on. */
export interface GatewayMetrics {
  /**
   * Counts a completed call. The times are in ms. `realm` is `null` if the request was rejected before it was
   * forwarded.
   */
  callCompleted(realm: string | null, status: number, durationMs: number, waitedMs: number): void
  retry(reason: string): void
  coolDownStarted(): void
  /** Counts a successful call by kind. */
  usageCounted(kind: CallKind): void
  /** Records how many metered calls all gateway replicas together have made this month, for all companies. */
  usageTotal(total: CallCounts): void
  /** Returns limits that behave like `limits` and also record metrics for waits, rejections and cool-downs. */
  measured(limits: GatewayLimits): GatewayLimits
}

export function createGatewayMetrics(
  metrics: Metrics,
  {
    byRealm,
    budget,
    now,
  }: { readonly byRealm: boolean; readonly budget: number | null; readonly now: () => number },
): GatewayMetrics {
  const calls = metrics.counter(
    'gateway_requests_total',
    'Calls by response status; 499 if the caller closed the connection first',
    byRealm ? ['status', 'realm'] : ['status'],
  )
  const duration = metrics.histogram(
    'gateway_request_duration_seconds',
    "From a call's arrival to the end of the response",
  )
  const waits = metrics.histogram(
    'gateway_wait_seconds',
    'Time that calls waited for a permit, a token or the next attempt, if they waited',
  )
  const retries = metrics.counter(
    'gateway_retries_total',
    'Attempts that were repeated, by reason',
    ['reason'],
  )
  const coolDowns = metrics.counter(
    'gateway_holds_total',
    '429 responses that started a cool-down of a realm',
  )
  const throttleWaits = metrics.histogram(
    'gateway_throttle_wait_seconds',
    'Time that calls waited for a permit of their realm, if they waited',
  )
  const throttled = metrics.counter(
    'gateway_throttled_total',
    'Calls that the gateway rejected with 429, because no permit was possible before their deadline',
  )
  const coolingDown = metrics.gauge(
    'gateway_realms_on_hold',
    'Realms in a cool-down after a 429 that this process received',
  )
  const usage = metrics.counter(
    'gateway_successful_calls_total',
    'Calls to which the accounting API responded with 2xx, by kind',
    ['kind'],
  )
  const metered = metrics.gauge(
    'gateway_metered_calls_this_month',
    'Metered calls of this month (UTC) over all companies and replicas',
  )
  if (budget !== null)
    metrics
      .gauge('gateway_monthly_budget', 'MONTHLY_BUDGET: the metered calls that the plan allows')
      .set(budget)
  const callsByClass: Record<string, number> = {}
  const times = new Float64Array(TIMED_CALLS)
  const endedAt = new Float64Array(TIMED_CALLS).fill(Number.NEGATIVE_INFINITY)
  let completed = 0
  let meteredCalls: number | null = null

  /** Returns the quantiles of the times of the calls that have ended within the last minute. */
  function callTimes(): { readonly P50Seconds: number; readonly P95Seconds: number } | null {
    const since = now() - TIMED_MS
    const recent = times.filter((_, index) => (endedAt[index] ?? 0) > since).toSorted()
    const secondsAt = (share: number): number =>
      (recent[Math.min(recent.length - 1, Math.floor(share * recent.length))] ?? 0) / 1_000
    return recent.length === 0 ? null : { P50Seconds: secondsAt(0.5), P95Seconds: secondsAt(0.95) }
  }

  const coolDownUntil = new Map<string, number>()
  const removeEnded = (): void => {
    for (const [realm, until] of coolDownUntil) if (until <= now()) coolDownUntil.delete(realm)
  }
  metrics.beforeEach(() => {
    removeEnded()
    coolingDown.set(coolDownUntil.size)
  })
  metrics.summarize(() => {
    removeEnded()
    return {
      Gateway: {
        Calls: callsByClass,
        CallTimes: callTimes(),
        CoolingDown: coolDownUntil.size,
        MeteredCalls: meteredCalls,
        MonthlyBudget: budget,
      },
    }
  })

  return {
    measured: (limits) =>
      watchLimits(limits, {
        onWait(_, permit) {
          const from = now()
          permit.then(
            () => {
              const waitedMs = now() - from
              if (waitedMs >= 1) throttleWaits.observe(waitedMs / 1_000)
            },
            (error: unknown) => {
              if (hasCode(error, 'throttled')) throttled.inc()
            },
          )
        },
        onCoolDown(realm, ms) {
          removeEnded()
          coolDownUntil.set(realm, Math.max(coolDownUntil.get(realm) ?? 0, now() + ms))
        },
      }),
    callCompleted(realm, status, durationMs, waitedMs) {
      calls.inc({ status: String(status), ...(byRealm && { realm: realm ?? '' }) })
      duration.observe(durationMs / 1_000)
      const name = `${Math.floor(status / 100)}xx`
      callsByClass[name] = (callsByClass[name] ?? 0) + 1
      times[completed % TIMED_CALLS] = durationMs
      endedAt[completed % TIMED_CALLS] = now()
      completed += 1
      if (waitedMs >= 1) waits.observe(waitedMs / 1_000)
    },
    retry: (reason) => retries.inc({ reason }),
    coolDownStarted: () => coolDowns.inc(),
    usageCounted: (kind) => usage.inc({ kind }),
    usageTotal(total) {
      meteredCalls = meteredOf(total)
      metered.set(meteredCalls)
    },
  }
}
