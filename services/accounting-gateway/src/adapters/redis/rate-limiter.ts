import type { Logger } from '@integration-host/shared/observability/logger'
import type { Redis, Result } from 'ioredis'
import { createProcessRateLimiter } from '../../realm/process-rate-limiter.ts'
import type { Denial, RateLimiter, RealmRates, Reservation } from '../../realm/throttle.ts'
import { RESERVE_PERMITS, START_COOL_DOWN } from './rate-limiter-scripts.ts'

/**
 * The rate limiter that all replicas share: per realm, sliding windows and concurrency slots in Redis.
 *
 * I1  The clock is that of Redis, so the replicas' clocks need not agree.
 * I2  A replica's concurrency slots are a lease, which it renews while it uses them. The slots of a dead replica
 *     become free when its lease expires.
 * I3  While Redis is unavailable this process counts alone, including what it sent before. No call is rejected
 *     because Redis is unavailable.
 * I4  Far from the limits of a realm a replica reserves permits ahead and grants them without a request to Redis.
 *     Such a permit counts as used at the last moment at which it may be used, until the replica reports when it
 *     was. So no window of any length ever contains more calls than allowed, over all replicas.
 * I5  One command is in flight per realm and replica. Each command states how many slots the replica uses, so two
 *     concurrent commands would each state a number that does not include the other's slots.
 */

type Verdict = 'granted' | Denial['reason']
/** `granted` permits for waiting calls and `prefetched` ones for later; `slots` is the replica's total afterwards. */
type Reply = [verdict: Verdict, waitMs: number, granted: number, prefetched: number, slots: number]

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
/** How long a prefetched permit may be used; until then the other replicas cannot use it. */
const PREFETCH_TTL_MS = 2_000
const SWEEP_EVERY_MS = 1_000
const CONCURRENCY_POLL_MS = 50
/** After a failure Redis is not called for this time, so that not every call waits for its timeout. */
const RETRY_AFTER_FAILURE_MS = 1_000

/** Whether Redis is in use; shared by all rate limiters of the process. Logs each change once. */
export interface RedisAvailability {
  isUnavailable(): boolean
  failed(error: unknown): void
  succeeded(): void
}

export function createRedisAvailability(
  logger: Logger,
  now: () => number = Date.now,
): RedisAvailability {
  let unavailableUntil = 0
  let isCountingAlone = false
  return {
    isUnavailable: () => now() < unavailableUntil,
    failed(error) {
      unavailableUntil = now() + RETRY_AFTER_FAILURE_MS
      if (!isCountingAlone)
        logger.warn({ err: error }, 'redis is unavailable: limits hold per replica')
      isCountingAlone = true
    },
    succeeded() {
      if (isCountingAlone) logger.info('redis is available again: limits hold over all replicas')
      isCountingAlone = false
    },
  }
}

export interface RedisRateLimiterDeps {
  readonly redis: Redis
  /** Prefix of its keys. */
  readonly name: string
  readonly rates: RealmRates
  readonly availability: RedisAvailability
  readonly now?: () => number
}

/** Disposing returns the prefetched permits. Permits in use leave the window by age. */
export interface RedisRateLimiter extends RateLimiter, AsyncDisposable {}

/** What this replica has reserved for a realm. All times are of the monotonic clock. */
interface RealmWindow {
  /** Prefetched permits that are not used yet, oldest first, and until when they may be used. */
  prefetched: { readonly id: string; readonly until: number }[]
  /** With fewer prefetched permits than this more are reserved: half of the last batch. */
  refillBelow: number
  /** Prefetched permits whose usage is not reported to Redis yet: when each was used, `null` if it was not. */
  usage: { readonly id: string; readonly usedAt: number | null }[]
  /** Concurrency slots that Redis has recorded for this replica. */
  slots: number
  /** The slots of these that calls occupy. */
  inFlight: number
  /** Calls whose permits the next command requests. */
  waiting: ((reservation: Reservation) => void)[]
  isRequesting: boolean
  /** Redis has recorded more for this replica than it needs. */
  mustReport: boolean
  lastUsedAt: number
  lastReportedAt: number
}

export function createRedisRateLimiter(deps: RedisRateLimiterDeps): RedisRateLimiter {
  const { redis, name, rates, availability, now = Date.now } = deps
  redis.defineCommand('reservePermits', { numberOfKeys: 4, lua: RESERVE_PERMITS })
  redis.defineCommand('startCoolDown', { numberOfKeys: 1, lua: START_COOL_DOWN })
  const local = createProcessRateLimiter(rates, now)
  const replica = crypto.randomUUID()
  const windows = new Map<string, RealmWindow>()
  let commandCount = 0

  // The hash tag in braces keeps the keys of a realm in one slot of a Redis cluster.
  const key = (realm: string, suffix: string): string => `${name}:{${realm}}:${suffix}`

  function windowOf(realm: string): RealmWindow {
    const known = windows.get(realm)
    if (known !== undefined) return known
    const window: RealmWindow = {
      prefetched: [],
      refillBelow: 0,
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
    // Until Redis replies, only the slots that this command states belong to this replica.
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

  /** Reserves permits for all waiting calls, and reports usage. Repeats while there is more to do (I5). */
  async function request(realm: string, window: RealmWindow, prefetch: boolean): Promise<void> {
    if (window.isRequesting) return
    window.isRequesting = true
    do {
      const requested = window.waiting.length
      const id = `${replica}:${commandCount + 1}`
      const until = performance.now() + PREFETCH_TTL_MS
      try {
        const [verdict, waitMs, granted, prefetched, slots] = await sendReserve(
          realm,
          window,
          prefetch,
        )
        availability.succeeded()
        window.slots = slots
        for (let n = granted + 1; n <= granted + prefetched; n += 1)
          window.prefetched.push({ id: `${id}:${n}`, until })
        window.refillBelow = Math.floor(prefetched / 2)
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

  /** Occupies one of the replica's slots for a call that has its permit. */
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
          // The slot is kept for the next call while a permit is prefetched for it; else another replica may need it.
          if (window.prefetched.length === 0) reportUsage(realm, window)
        },
      },
    }
  }

  /** Reports usage and returns unused slots. If the command is lost, the lease ends them (I2). */
  function reportUsage(realm: string, window: RealmWindow): void {
    window.mustReport = true
    if (isAvailable()) void request(realm, window, false)
  }

  function usePrefetched(realm: string, window: RealmWindow): Reservation | null {
    discardExpired(window)
    const permit = window.inFlight < window.slots ? window.prefetched.shift() : undefined
    if (permit === undefined) return null
    window.usage.push({ id: permit.id, usedAt: performance.now() })
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

  // Renews leases (I2), and returns permits and slots that this replica does not use.
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
        return local.reserve(realm) // I3
      }
      const window = windowOf(realm)
      const reservation = usePrefetched(realm, window) // I4
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
