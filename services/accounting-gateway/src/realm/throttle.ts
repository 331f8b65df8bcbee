/**
 * Limits the calls that are sent for one realm: calls per second, calls per minute and concurrent calls. After the
 * accounting API has responded 429, a cool-down begins in which no call is sent for the realm.
 *
 * I1  A call is sent only with a permit of the rate limiter. The rate limiter counts the calls of all gateway replicas,
 *     except while Redis is unavailable.
 * I2  The waiting calls of a realm get their permits in order of arrival.
 * I3  A call waits only while a permit before the call's deadline is possible. At most `queueLimit` calls wait per
 *     realm. Every other call is rejected at once, with the time after which the caller may retry.
 */
import { IntegrationError } from '@integration-host/shared/errors'
import type { ProviderLimits } from '@integration-host/shared/provider-profile/provider-profile'

export interface RealmRates {
  readonly perSecond: number
  readonly perMinute: number
  readonly concurrent: number
}

/** Returns the additional limits of batch calls. A batch call also counts against the limits of all calls. */
export const batchRates = ({ calls, batchesPerMinute }: ProviderLimits): RealmRates => ({
  perSecond: batchesPerMinute,
  perMinute: batchesPerMinute,
  concurrent: calls.concurrent,
})

export interface Permit {
  /** Frees the call's concurrency slot. Calling this function again has no effect. */
  release(): void
}

export interface Denial {
  readonly reason: 'cool-down' | 'rate' | 'concurrency'
  /** Milliseconds until the next attempt can succeed. The value is an estimate if the reason is `concurrency`. */
  readonly waitMs: number
}

export type Reservation = { readonly permit: Permit } | { readonly denial: Denial }

/**
 * The port to the component that counts calls: this process alone, or Redis for all gateway replicas. Its functions
 * never throw or reject.
 */
export interface RateLimiter {
  reserve(realm: string): Reservation | Promise<Reservation>
  /**
   * Starts a cool-down: no permit is granted for this realm for `ms` milliseconds. A longer cool-down that is already
   * running is not shortened.
   */
  coolDown(realm: string, ms: number): void
}

export interface WaitLimit {
  /** Time in epoch ms after which the call can no longer use a permit. */
  readonly until: number
  readonly signal: AbortSignal
}

export interface RealmLimits {
  /**
   * Returns a permit if one is available at once. Otherwise queues the call, and returns a promise of a permit.
   *
   * @throws {IntegrationError} `throttled`, with the seconds after which a permit is likely.
   * @throws the reason of `signal` if `signal` is aborted before a permit is granted.
   */
  acquire(realm: string, waitLimit: () => WaitLimit): Permit | Promise<Permit>
  coolDown(realm: string, ms: number): void
}

/** The limits of the gateway. `calls` applies to all calls, and `batches` additionally to calls of `…/batch`. */
export interface GatewayLimits {
  readonly calls: RealmLimits
  readonly batches: RealmLimits
}

/** Returns limits that behave like `limits`, and also report each call that has to wait, and each cool-down. */
export function watchLimits(
  { calls, batches }: GatewayLimits,
  {
    onWait,
    onCoolDown,
  }: {
    readonly onWait: (realm: string, permit: Promise<Permit>) => void
    readonly onCoolDown: (realm: string, ms: number) => void
  },
): GatewayLimits {
  const watched = (limits: RealmLimits): RealmLimits => ({
    acquire(realm, waitLimit) {
      const permit = limits.acquire(realm, waitLimit)
      if (permit instanceof Promise) onWait(realm, permit)
      return permit
    },
    coolDown(realm, ms) {
      limits.coolDown(realm, ms)
      onCoolDown(realm, ms)
    },
  })
  return { calls: watched(calls), batches: watched(batches) }
}

/**
 * Returns a permit for one call. A batch call needs two permits. The permit of the batch limit is acquired first,
 * because its wait may be long. In the opposite order, the call would occupy a concurrency slot during this wait.
 */
export function acquirePermit(
  { calls, batches }: GatewayLimits,
  realm: string,
  { isBatch, waitLimit }: { readonly isBatch: boolean; readonly waitLimit: () => WaitLimit },
): Permit | Promise<Permit> {
  return isBatch ? acquireBoth(batches, calls, realm, waitLimit) : calls.acquire(realm, waitLimit)
}

async function acquireBoth(
  first: RealmLimits,
  second: RealmLimits,
  realm: string,
  waitLimit: () => WaitLimit,
): Promise<Permit> {
  const firstPermit = await first.acquire(realm, waitLimit)
  try {
    const secondPermit = await second.acquire(realm, waitLimit)
    return {
      release() {
        secondPermit.release()
        firstPermit.release()
      },
    }
  } catch (error) {
    firstPermit.release()
    throw error
  }
}

interface Waiter extends WaitLimit {
  readonly settle: (outcome: Permit | Error) => void
}

interface Queue {
  readonly waiters: Waiter[]
  /** Time in epoch ms until which the rate limiter grants no permit. */
  blockedUntil: number
  /** Ends the pause before the next attempt to get a permit for the first call of the queue. */
  wake: () => void
}

export interface RealmLimitsDeps {
  readonly limiter: RateLimiter
  readonly now: () => number
  readonly queueLimit?: number
}

export function createRealmLimits({
  limiter,
  now,
  queueLimit = 100,
}: RealmLimitsDeps): RealmLimits {
  const queues = new Map<string, Queue>()

  const wakingPermit = (realm: string, permit: Permit): Permit => ({
    release() {
      permit.release()
      queues.get(realm)?.wake()
    },
  })

  function enqueue(realm: string, waitLimit: WaitLimit, denial: Denial | null): Promise<Permit> {
    const waiting = queues.get(realm)
    const blockedUntil = denial === null ? (waiting?.blockedUntil ?? 0) : blockedBy(denial, now())
    if (blockedUntil > waitLimit.until) return Promise.reject(throttled(blockedUntil - now()))
    if (waiting !== undefined && waiting.waiters.length >= queueLimit)
      return Promise.reject(throttled(Math.max(1_000, blockedUntil - now())))
    return new Promise<Permit>((resolve, reject) => {
      const queue = waiting ?? { waiters: [], blockedUntil, wake: () => {} }
      const onAbort = (): void => {
        const index = queue.waiters.indexOf(waiter)
        if (index !== -1) queue.waiters.splice(index, 1)
        queue.wake()
        waiter.settle(waitLimit.signal.reason as Error)
      }
      const waiter: Waiter = {
        ...waitLimit,
        settle(outcome) {
          waitLimit.signal.removeEventListener('abort', onAbort)
          if (outcome instanceof Error) reject(outcome)
          else resolve(outcome)
        },
      }
      waitLimit.signal.addEventListener('abort', onAbort, { once: true })
      queue.waiters.push(waiter)
      if (waiting === undefined) {
        queues.set(realm, queue)
        void serveQueue(realm, queue, denial?.waitMs ?? 0)
      }
    })
  }

  // Runs a loop while calls of the realm wait. The loop gets a permit for the first call of the queue, and then for the
  // next call (I2).
  async function serveQueue(realm: string, queue: Queue, firstPauseMs: number): Promise<void> {
    let pauseMs = firstPauseMs
    while (queue.waiters.length > 0) {
      if (pauseMs > 0) await pause(queue, pauseMs)
      if (queue.waiters.length === 0) break
      const reservation = await limiter.reserve(realm)
      if ('permit' in reservation) {
        const permit = wakingPermit(realm, reservation.permit)
        const first = queue.waiters.shift()
        if (first === undefined) permit.release()
        else first.settle(permit)
        pauseMs = 0
        continue
      }
      queue.blockedUntil = blockedBy(reservation.denial, now())
      rejectLate(queue)
      pauseMs = Math.max(1, reservation.denial.waitMs)
    }
    queues.delete(realm)
  }

  // Rejects the waiting calls that cannot get a permit before their deadline (I3).
  function rejectLate({ waiters, blockedUntil }: Queue): void {
    const at = now()
    const late = waiters.filter(({ until }) => until <= at || until < blockedUntil)
    for (const waiter of late) {
      waiters.splice(waiters.indexOf(waiter), 1)
      waiter.settle(throttled(Math.max(1_000, blockedUntil - at)))
    }
  }

  function pause(queue: Queue, ms: number): Promise<void> {
    const earliest = Math.min(...queue.waiters.map(({ until }) => until)) - now()
    return new Promise((resolve) => {
      const timer = setTimeout(() => queue.wake(), Math.max(1, Math.min(ms, earliest)))
      queue.wake = () => {
        clearTimeout(timer)
        queue.wake = () => {}
        resolve()
      }
    })
  }

  return {
    acquire(realm, waitLimit) {
      if (queues.has(realm)) return enqueue(realm, waitLimit(), null)
      const decide = (reservation: Reservation): Permit | Promise<Permit> =>
        'permit' in reservation
          ? wakingPermit(realm, reservation.permit)
          : enqueue(realm, waitLimit(), reservation.denial)
      const reservation = limiter.reserve(realm)
      return reservation instanceof Promise ? reservation.then(decide) : decide(reservation)
    },
    coolDown: (realm, ms) => limiter.coolDown(realm, ms),
  }
}

// Returns the epoch ms until which no permit is possible. Returns 0 if a concurrency slot is missing, because a slot
// can become free at any time.
const blockedBy = ({ reason, waitMs }: Denial, now: number): number =>
  reason === 'concurrency' ? 0 : now + waitMs

const throttled = (waitMs: number): IntegrationError =>
  new IntegrationError('throttled', 'no permit of the realm is available before the deadline', {
    retryAfterSeconds: Math.ceil(waitMs / 1_000),
  })
