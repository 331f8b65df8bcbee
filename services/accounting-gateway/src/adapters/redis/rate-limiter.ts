import { randomBytes } from 'node:crypto'
import type { Redis, Result } from 'ioredis'
import { createProcessRateLimiter } from '../../realm/process-rate-limiter.ts'
import type { Denial, RateLimiter, RealmRates, Reservation } from '../../realm/throttle.ts'
import { RESERVE_PERMITS, START_COOL_DOWN } from './rate-limiter-scripts.ts'
import type { RedisAvailability } from './redis-availability.ts'

/**
 * The rate limiter that all replicas of the gateway share. Redis stores sliding windows and concurrency slots for each
 * realm.
 *
 * I1  All times of the windows are from the clock of Redis, so the clocks of the gateway replicas need not agree.
 * I2  A gateway replica has a lease on its concurrency slots, and renews the lease while it uses them. The slots of a
 *     dead replica become free when its lease expires.
 * I3  While Redis is unavailable, each gateway replica counts its own calls, including those that it sent before Redis
 *     failed. No call is rejected because Redis is unavailable.
 * I4  While a realm is far from its limits, a gateway replica prefetches permits and later grants them without a
 *     request to Redis. Until the replica reports when a prefetched permit was used, Redis counts the permit at the
 *     last moment at which it may be used. So over all replicas no window of any length contains more calls than
 *     allowed. While a realm is far from its limit per second, the use of its permits is not reported, because the
 *     reports are half of the work of Redis.
 * I5  Each gateway replica has at most one Redis command in flight per realm. A command states how many slots the
 *     replica uses. If two commands were in flight, neither would include the slots that the other one reserves.
 */

type Verdict = 'granted' | Denial['reason']
/**
 * The reply of the reservation script. `granted`: the number of permits for waiting calls. `prefetched`: the number of
 * permits for later calls. `slots`: the number of concurrency slots of the gateway replica after the command. `isFar`: 1
 * if the realm is far from its limit per second.
 */
type Reply = [
  verdict: Verdict,
  waitMs: number,
  granted: number,
  prefetched: number,
  slots: number,
  isFar: 0 | 1,
]

declare module 'ioredis' {
  interface RedisCommander<Context> {
    reservePermits(
      calls: string,
      leases: string,
      slots: string,
      coolDown: string,
      ...args: (string | number)[]
    ): Result<Reply, Context>
    startCoolDown(coolDown: string, ms: number): Result<number, Context>
  }
}

const LEASE_MS = 30_000
const RENEW_EVERY_MS = 10_000
/**
 * How long a gateway replica may use a prefetched permit. During this time, no other gateway replica can use the
 * permit.
 */
const PREFETCH_TTL_MS = 2_000
const SWEEP_EVERY_MS = 1_000
const CONCURRENCY_POLL_MS = 50

export interface RedisRateLimiterDeps {
  readonly redis: Redis
  /** Prefix of this rate limiter's Redis keys. */
  readonly name: string
  readonly rates: RealmRates
  readonly availability: RedisAvailability
  readonly now?: () => number
  /** Returns a random number in [0, 1). */
  readonly random?: () => number
}

/**
 * A rate limiter that counts in Redis. Disposing returns the unused prefetched permits to Redis. Used permits stay in
 * Redis for a minute.
 */
export interface RedisRateLimiter extends RateLimiter, AsyncDisposable {}

/**
 * The permits and concurrency slots that this gateway replica has reserved for one realm. All times are milliseconds of
 * the monotonic clock.
 */
interface RealmWindow {
  /** Unused prefetched permits, oldest first. A permit may be used until its time `until`. */
  prefetched: { readonly id: string; readonly until: number }[]
  /** If no more than this number of prefetched permits remain, further permits are reserved. */
  refillBelow: number
  /** Whether the realm is far from its limit per second, so that the use of its permits need not be reported (I4). */
  isFar: boolean
  /** Prefetched permits whose use was not yet reported to Redis. `usedAt` is `null` if the permit expired unused. */
  usage: { readonly id: string; readonly usedAt: number | null }[]
  /** The number of concurrency slots that Redis has recorded for this gateway replica. */
  slots: number
  /** The number of calls that currently occupy concurrency slots of this gateway replica. */
  inFlight: number
  /** The waiting calls. The next command to Redis requests one permit for each of them. */
  waiting: ((reservation: Reservation) => void)[]
  isRequesting: boolean
  /**
   * True if this gateway replica must report to Redis, because Redis has recorded more permits or slots for the replica
   * than the replica needs.
   */
  mustReport: boolean
  lastUsedAt: number
  lastReportedAt: number
}

export function createRedisRateLimiter(deps: RedisRateLimiterDeps): RedisRateLimiter {
  const { redis, name, rates, availability, now = Date.now, random = Math.random } = deps
  redis.defineCommand('reservePermits', { numberOfKeys: 4, lua: RESERVE_PERMITS })
  redis.defineCommand('startCoolDown', { numberOfKeys: 1, lua: START_COOL_DOWN })
  const local = createProcessRateLimiter(rates, now)
  /** The id of this gateway replica. It is short, because Redis stores it in the id of each permit for a minute. */
  const replica = randomBytes(8).toString('base64url')
  const windows = new Map<string, RealmWindow>()
  let commandCount = 0

  // Redis Cluster hashes only the part of a key in braces, so all keys of one realm are in the same hash slot.
  const key = (realm: string, suffix: string): string => `${name}:{${realm}}:${suffix}`

  function windowOf(realm: string): RealmWindow {
    const known = windows.get(realm)
    if (known !== undefined) return known
    const window: RealmWindow = {
      prefetched: [],
      refillBelow: 0,
      isFar: false,
      usage: [],
      slots: 0,
      inFlight: 0,
      waiting: [],
      isRequesting: false,
      mustReport: false,
      lastUsedAt: 0,
      lastReportedAt: 0,
    }
    windows.set(realm, window)
    return window
  }

  function sendReserve(realm: string, window: RealmWindow, prefetch: boolean): Promise<Reply> {
    const at = performance.now()
    const usage = window.usage.flatMap(({ id, usedAt }) => [
      id,
      usedAt === null ? -1 : Math.floor(at - usedAt),
    ])
    window.usage = []
    window.mustReport = false
    window.lastReportedAt = at
    // This command sets the number of slots that Redis records for this gateway replica. Until Redis replies, the
    // replica must not use more slots than that number.
    const idleSlots = prefetch
      ? Math.min(window.slots - window.inFlight, window.prefetched.length)
      : 0
    window.slots = window.inFlight + idleSlots
    return redis.reservePermits(
      key(realm, 'calls'),
      key(realm, 'open'),
      key(realm, 'places'),
      key(realm, 'hold'),
      rates.perSecond,
      rates.perMinute,
      rates.concurrent,
      replica,
      LEASE_MS,
      PREFETCH_TTL_MS,
      window.inFlight,
      idleSlots,
      window.waiting.length,
      prefetch ? 1 : 0,
      `${replica}:${(commandCount += 1)}`,
      ...usage,
    )
  }

  /**
   * Reserves permits for all waiting calls and reports the use of prefetched permits. Sends each command only after the
   * reply to the previous command (I5). Ends when no call waits and nothing is left to report.
   */
  async function request(realm: string, window: RealmWindow, prefetch: boolean): Promise<void> {
    if (window.isRequesting) return
    window.isRequesting = true
    do {
      const requested = window.waiting.length
      const id = `${replica}:${commandCount + 1}`
      const until = performance.now() + PREFETCH_TTL_MS
      try {
        const [verdict, waitMs, granted, prefetched, slots, isFar] = await sendReserve(
          realm,
          window,
          prefetch,
        )
        availability.succeeded()
        window.slots = slots
        for (let n = granted + 1; n <= granted + prefetched; n += 1)
          window.prefetched.push({ id: `${id}:${n}`, until })
        window.isFar = isFar === 1
        // Realms with the same load would otherwise all be refilled at the same moment. The commands for 100 realms keep
        // Redis busy for 8 ms, in which calls would wait for the processor.
        const share = window.isFar ? 0.25 + random() / 2 : 0.5
        window.refillBelow = Math.floor(prefetched * share)
        if (verdict === 'cool-down') local.coolDown(realm, waitMs)
        window.waiting.splice(0, requested).forEach((settle, index) => {
          settle(
            index < granted ? occupySlot(realm, window) : { denial: denialOf(verdict, waitMs) },
          )
        })
      } catch (error) {
        availability.failed(error)
        for (const settle of window.waiting.splice(0)) settle(local.reserve(realm))
        break
      }
    } while (window.waiting.length > 0 || window.mustReport)
    window.isRequesting = false
  }

  /** Occupies one of this gateway replica's concurrency slots for a call that has been granted a permit. */
  function occupySlot(realm: string, window: RealmWindow): Reservation {
    local.count(realm)
    window.inFlight += 1
    window.lastUsedAt = performance.now()
    let isOpen = true
    return {
      permit: {
        release() {
          if (!isOpen) return
          isOpen = false
          window.inFlight -= 1
          // A gateway replica with prefetched permits keeps the released slot for its next call. Otherwise it returns
          // the slot to Redis, because another replica may need the slot.
          if (window.prefetched.length === 0) reportUsage(realm, window)
        },
      },
    }
  }

  /**
   * Reports used permits and returns unused slots to Redis. If the command is lost, the slots become free when the
   * gateway replica's lease expires (I2).
   */
  function reportUsage(realm: string, window: RealmWindow): void {
    window.mustReport = true
    if (isAvailable()) void request(realm, window, false)
  }

  function usePrefetched(realm: string, window: RealmWindow): Reservation | null {
    discardExpired(window)
    const permit = window.inFlight < window.slots ? window.prefetched.shift() : undefined
    if (permit === undefined) return null
    if (!window.isFar) window.usage.push({ id: permit.id, usedAt: performance.now() })
    const reservation = occupySlot(realm, window)
    if (window.prefetched.length <= window.refillBelow) void request(realm, window, true)
    return reservation
  }

  function discardExpired(window: RealmWindow): void {
    const at = performance.now()
    for (let [oldest] = window.prefetched; oldest !== undefined && oldest.until <= at;) {
      window.usage.push({ id: oldest.id, usedAt: null })
      window.prefetched.shift()
      ;[oldest] = window.prefetched
    }
  }

  const isAvailable = (): boolean => redis.status === 'ready' && !availability.isUnavailable()

  // Renews this gateway replica's leases on concurrency slots (I2). Gives back to Redis the prefetched permits and
  // slots that stay unused.
  const sweeping = setInterval(() => {
    const at = performance.now()
    for (const [realm, window] of windows) {
      discardExpired(window)
      const { prefetched, usage, slots, inFlight, waiting, isRequesting } = window
      const isIdle = slots > inFlight && at - window.lastUsedAt > PREFETCH_TTL_MS
      if (isIdle || (slots > 0 && at - window.lastReportedAt > RENEW_EVERY_MS))
        reportUsage(realm, window)
      else if (slots + inFlight + prefetched.length + waiting.length === 0 && !isRequesting) {
        if (usage.length > 0) reportUsage(realm, window)
        else windows.delete(realm)
      }
    }
  }, SWEEP_EVERY_MS)
  sweeping.unref()

  return {
    reserve(realm) {
      const coolDownMs = local.coolDownMs(realm)
      if (coolDownMs > 0) return { denial: { reason: 'cool-down', waitMs: coolDownMs } }
      if (!isAvailable()) {
        if (redis.status !== 'ready') availability.failed(new Error('not connected'))
        // While Redis is unavailable, this process counts only its own calls (I3).
        return local.reserve(realm)
      }
      const window = windowOf(realm)
      // A prefetched permit needs no request to Redis (I4).
      const reservation = usePrefetched(realm, window)
      if (reservation !== null) return reservation
      return new Promise((resolve) => {
        window.waiting.push(resolve)
        void request(realm, window, true)
      })
    },
    coolDown(realm, ms) {
      local.coolDown(realm, ms)
      if (ms > 0)
        redis.startCoolDown(key(realm, 'hold'), Math.ceil(ms)).catch((error: unknown) => {
          availability.failed(error)
        })
    },
    async [Symbol.asyncDispose]() {
      clearInterval(sweeping)
      if (!isAvailable()) return
      const reports = [...windows].map(([realm, window]) => {
        for (const { id } of window.prefetched.splice(0)) window.usage.push({ id, usedAt: null })
        return request(realm, window, false)
      })
      await Promise.all(reports)
    },
  }
}

const denialOf = (verdict: Verdict, waitMs: number): Denial =>
  verdict === 'cool-down' || verdict === 'rate'
    ? { reason: verdict, waitMs }
    : { reason: 'concurrency', waitMs: CONCURRENCY_POLL_MS }
