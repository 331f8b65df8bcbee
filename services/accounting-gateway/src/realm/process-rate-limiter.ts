import type { ProviderLimits } from '@integration-host/shared/provider-profile/provider-profile'
import {
  batchRates,
  createRealmLimits,
  type GatewayLimits,
  type RateLimiter,
  type RealmLimits,
  type RealmRates,
  type Reservation,
} from './throttle.ts'

const SECOND_MS = 1_000
const MINUTE_MS = 60_000
/** Milliseconds after which a waiting call tries again. A release in this process wakes the queue earlier. */
const CONCURRENCY_POLL_MS = 50
const INITIAL_RING_SIZE = 16
/** Number of realms in memory from which idle ones are evicted. */
const SWEEP_AT = 1_000

/** The calls that this process has sent for one realm. */
interface RealmWindow {
  /**
   * Send times of the most recent calls (epoch ms) as a ring buffer. It grows until it covers one minute, or
   * as many calls as the larger of the two rate limits has to look back.
   */
  sentAt: Float64Array
  /** Index of the newest entry. */
  last: number
  count: number
  inFlight: number
  /** Epoch ms at which the realm's cool-down ends; in the past if there is none. */
  coolDownUntil: number
}

export interface ProcessRateLimiter extends RateLimiter {
  reserve(realm: string): Reservation
  /** Counts a call that another limiter permitted, so that this limiter is accurate if it has to take over. */
  count(realm: string): void
  /** Returns the milliseconds until the realm's cool-down ends; 0 if there is none. */
  coolDownMs(realm: string): number
}

/** Builds a rate limiter that counts the calls of this process only: exact sliding windows, no timers. */
export function createProcessRateLimiter(rates: RealmRates, now: () => number): ProcessRateLimiter {
  const { perSecond, perMinute, concurrent } = rates
  const maxCounted = Math.max(perSecond, perMinute)
  const windows = new Map<string, RealmWindow>()
  let sweepAt = SWEEP_AT

  function windowOf(realm: string): RealmWindow {
    const known = windows.get(realm)
    if (known !== undefined) return known
    if (windows.size >= sweepAt) sweep()
    const sentAt = new Float64Array(Math.min(INITIAL_RING_SIZE, maxCounted))
    const window: RealmWindow = { sentAt, last: -1, count: 0, inFlight: 0, coolDownUntil: 0 }
    windows.set(realm, window)
    return window
  }

  function sweep(): void {
    for (const [realm, window] of windows) {
      const isIdle =
        window.inFlight === 0 &&
        window.coolDownUntil <= now() &&
        nthLast(window, 1) <= now() - MINUTE_MS
      if (isIdle) windows.delete(realm)
    }
    sweepAt = Math.max(SWEEP_AT, windows.size * 2)
  }

  // Send time of the n-th most recent call; -Infinity if there were fewer than n.
  const nthLast = ({ sentAt, last, count }: RealmWindow, n: number): number =>
    n > count
      ? Number.NEGATIVE_INFINITY
      : (sentAt[(last + 1 - n + sentAt.length) % sentAt.length] ?? Number.NEGATIVE_INFINITY)

  function recordCall(window: RealmWindow): void {
    const at = now()
    const { count, sentAt } = window
    const isFull = count === sentAt.length
    if (isFull && count < maxCounted && nthLast(window, count) > at - MINUTE_MS) grow(window)
    window.last = (window.last + 1) % window.sentAt.length
    window.sentAt[window.last] = at
    if (window.count < window.sentAt.length) window.count += 1
  }

  function grow(window: RealmWindow): void {
    const larger = new Float64Array(Math.min(window.count * 2, maxCounted))
    for (let n = window.count; n > 0; n -= 1) larger[window.count - n] = nthLast(window, n)
    window.sentAt = larger
    window.last = window.count - 1
  }

  return {
    reserve(realm) {
      const window = windowOf(realm)
      const at = now()
      if (window.coolDownUntil > at)
        return { denial: { reason: 'cool-down', waitMs: window.coolDownUntil - at } }
      if (window.inFlight >= concurrent)
        return { denial: { reason: 'concurrency', waitMs: CONCURRENCY_POLL_MS } }
      const waitMs = Math.max(
        nthLast(window, perSecond) + SECOND_MS - at,
        nthLast(window, perMinute) + MINUTE_MS - at,
      )
      if (waitMs > 0) return { denial: { reason: 'rate', waitMs } }
      recordCall(window)
      window.inFlight += 1
      let isOpen = true
      return {
        permit: {
          release() {
            if (isOpen) window.inFlight -= 1
            isOpen = false
          },
        },
      }
    },
    count: (realm) => recordCall(windowOf(realm)),
    coolDownMs: (realm) => Math.max(0, (windows.get(realm)?.coolDownUntil ?? 0) - now()),
    coolDown(realm, ms) {
      const window = windowOf(realm)
      window.coolDownUntil = Math.max(window.coolDownUntil, now() + ms)
    },
  }
}

export const createProcessLimits = (rates: RealmRates, now: () => number): RealmLimits =>
  createRealmLimits({ limiter: createProcessRateLimiter(rates, now), now })

/** Builds the limits of a single gateway process: the embedded host, or a gateway without Redis. */
export const createGatewayLimits = (
  limits: ProviderLimits,
  now: () => number = Date.now,
): GatewayLimits => ({
  calls: createProcessLimits(limits.calls, now),
  batches: createProcessLimits(batchRates(limits), now),
})
