/**
 * Limits what is sent for one realm: calls per second, calls per minute and concurrent calls. During a cool-down
 * (after the accounting API responded 429) nothing is sent for the realm.
 *
 * I1  A call is sent only with a permit of the rate limiter, which counts over all replicas whenever it can.
 * I2  Calls of a realm that have to wait get their permits in order of arrival.
 * I3  A call waits only while a permit before its deadline is possible, and at most `queueLimit` calls wait per
 *     realm. All others are rejected at once with the time after which to retry.
 */
import { IntegrationError } from '@integration-host/shared/errors'
import type { ProviderLimits } from '@integration-host/shared/provider-profile/provider-profile'

export interface RealmRates {
  readonly perSecond: number
  readonly perMinute: number
  readonly concurrent: number
}

/** Returns the limits of batch calls alone; each batch call counts against the limits of all calls as well. */
export const batchRates = ({ calls, batchesPerMinute }: ProviderLimits): RealmRates => ({
  perSecond: batchesPerMinute,
  perMinute: batchesPerMinute,
  concurrent: calls.concurrent,
})

export interface Permit {
  /** Frees the concurrency slot of the call. Calling it a second time has no effect. */
  release(): void
}

export interface Denial {
  readonly reason: 'cool-down' | 'rate' | 'concurrency'
  /** Milliseconds after which to try again; for `concurrency` an estimate. */
  readonly waitMs: number
}

export type Reservation = { readonly permit: Permit } | { readonly denial: Denial }

/** The port to the component that counts: this process alone, or Redis for all replicas. Never throws or rejects. */
export interface RateLimiter {
  reserve(realm: string): Reservation | Promise<Reservation>
  /** Denies permits for this realm for `ms` milliseconds. Never shortens a cool-down. */
  coolDown(realm: string, ms: number): void
}

export interface WaitLimit {
  /** Epoch ms after which a permit is useless to the call. */
  readonly until: number
  readonly signal: AbortSignal
}

export interface RealmLimits {
  /**
   * Returns a permit at once if one is available, else a promise that resolves when it is the call's turn.
   *
   * @throws {IntegrationError} `throttled`, with the seconds after which a permit is likely.
   * @throws the signal's reason if it aborts first.
   */
  acquire(realm: string, waitLimit: () => WaitLimit): Permit | Promise<Permit>
  coolDown(realm: string, ms: number): void
}

/** The limits that a gateway observes: those of all calls, and in addition those of calls to `…/batch`. */
export interface GatewayLimits {
  readonly calls: RealmLimits
  readonly batches: RealmLimits
}

/**
 * Returns the permit of one call. A batch call needs two permits and acquires that of the batch limit first, for which
 * it may wait long: in the other order it would occupy a slot of the general limit during that wait.
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
  /** Epoch ms until which the rate limiter denies every permit. */
  blockedUntil: number
  /** Ends the pause between two attempts to reserve a permit. */
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

  // One loop per realm that has waiters. It reserves a permit for the first of them, then for the next (I2).
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

  // I3
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

// Returns the epoch ms until which no permit is possible. 0 for a concurrency slot, which can become free at any time.
const blockedBy = ({ reason, waitMs }: Denial, now: number): number =>
  reason === 'concurrency' ? 0 : now + waitMs

const throttled = (waitMs: number): IntegrationError =>
  new IntegrationError('throttled', 'no permit of the realm is available before the deadline', {
    retryAfterSeconds: Math.ceil(waitMs / 1_000),
  })
