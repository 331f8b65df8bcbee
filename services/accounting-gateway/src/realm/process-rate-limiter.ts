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
/**
 * The pause between two attempts of a waiting call to get a concurrency slot, in milliseconds. The pause ends earlier
 * if another call in this process ends.
 */
const CONCURRENCY_POLL_MS = 50
const INITIAL_RING_SIZE = 16
/** When at least this many realms are in memory, idle realms are evicted before a new realm is added. */
const SWEEP_AT = 1_000

/** The calls that this process has sent for one realm. */
interface RealmWindow {
  /**
   * Ring buffer with the times of the most recent calls (epoch ms). It grows until it contains the calls of the last
   * minute. Its maximum size is the larger of the two rate limits.
   */
  sentAt: Float64Array
  /** Index of the newest entry in `sentAt`. */
  last: number
  count: number
  inFlight: number
  /** End of the realm's cool-down in epoch ms. A time in the past means that there is no cool-down. */
  coolDownUntil: number
}

export interface ProcessRateLimiter extends RateLimiter {
  reserve(realm: string): Reservation
  /**
   * Counts a call that the Redis rate limiter permitted, so that this limiter knows the recent calls if Redis becomes
   * unavailable.
   */
  count(realm: string): void
  /** Returns the milliseconds until the realm's cool-down ends; 0 if the realm has no cool-down. */
  coolDownMs(realm: string): number
}

/** Creates a rate limiter that counts only the calls of this process, with exact sliding windows and without timers. */
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

  // Returns the time at which the n-th most recent call was sent; -Infinity if fewer than n calls were sent.
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

/**
 * Creates the limits of a gateway without Redis, for example in the embedded host. The limits count the calls of this
 * process only.
 */
export const createGatewayLimits = (
  limits: ProviderLimits,
  now: () => number = Date.now,
): GatewayLimits => ({
  calls: createProcessLimits(limits.calls, now),
  batches: createProcessLimits(batchRates(limits), now),
})
