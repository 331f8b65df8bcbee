/**
 * What one realm may send: so many calls a second, a minute, and at a time; nothing while it is held.
 *
 * I1  A call goes out only with a permit of the ledger, which counts over all replicas when it can.
 * I2  Calls of a realm that must wait get their permits in the order they came.
 * I3  A call waits only while a permit before its deadline is possible, and only `queueLimit` of them do;
 *     the others are told at once when to come back.
 */
import { IntegrationError } from '@integration-host/shared/errors'
import type { ProviderLimits } from '@integration-host/shared/provider-profile/provider-profile'

export interface RealmRates {
  readonly perSecond: number
  readonly perMinute: number
  readonly concurrent: number
}

/** The limits of batches alone: they count against the limits of all calls as well. */
export const batchRates = ({ calls, batchesPerMinute }: ProviderLimits): RealmRates => ({
  perSecond: batchesPerMinute,
  perMinute: batchesPerMinute,
  concurrent: calls.concurrent,
})

export interface Permit {
  /** Says that the call is over; a second time does nothing. */
  release(): void
}

export interface Denial {
  readonly reason: 'held' | 'rate' | 'concurrency'
  /** Milliseconds until another try makes sense; for `concurrency` a guess. */
  readonly waitMs: number
}

export type Claim = { readonly permit: Permit } | { readonly denial: Denial }

/** The port to whoever counts: this process, or Redis for all replicas. Never throws, never rejects. */
export interface Ledger {
  claim(realm: string): Claim | Promise<Claim>
  /** No permit for this realm for `ms`; never shortens a hold. */
  hold(realm: string, ms: number): void
}

export interface Patience {
  /** Epoch ms after which a permit is of no use. */
  readonly until: number
  readonly signal: AbortSignal
}

export interface RealmLimits {
  /**
   * A permit, at once or when the realm's turn comes.
   *
   * @throws {IntegrationError} `throttled`, with the seconds after which a permit is likely.
   * @throws the signal's reason when it aborts first.
   */
  acquire(realm: string, patience: () => Patience): Permit | Promise<Permit>
  hold(realm: string, ms: number): void
}

/** What a gateway keeps to: the limits of all calls, and beside them those of calls to `…/batch`. */
export interface GatewayLimits {
  readonly calls: RealmLimits
  readonly batches: RealmLimits
}

interface Waiter extends Patience {
  readonly settle: (claim: Permit | Error) => void
}

interface Queue {
  readonly waiters: Waiter[]
  /** Epoch ms before which the ledger gives nobody a permit. */
  blockedUntil: number
  /** Ends the pause between two tries. */
  wake: () => void
}

export interface RealmLimitsDeps {
  readonly ledger: Ledger
  readonly now: () => number
  readonly queueLimit?: number
}

export function createRealmLimits({ ledger, now, queueLimit = 100 }: RealmLimitsDeps): RealmLimits {
  const queues = new Map<string, Queue>()

  const waking = (realm: string, permit: Permit): Permit => ({
    release() {
      permit.release()
      queues.get(realm)?.wake()
    },
  })

  function enqueue(realm: string, patience: Patience, denial: Denial | null): Promise<Permit> {
    const waiting = queues.get(realm)
    const blockedUntil = denial === null ? (waiting?.blockedUntil ?? 0) : blockedBy(denial, now())
    if (blockedUntil > patience.until) return Promise.reject(throttled(blockedUntil - now()))
    if (waiting !== undefined && waiting.waiters.length >= queueLimit)
      return Promise.reject(throttled(Math.max(1_000, blockedUntil - now())))
    return new Promise<Permit>((resolve, reject) => {
      const queue = waiting ?? { waiters: [], blockedUntil, wake: () => {} }
      const onAbort = (): void => {
        const index = queue.waiters.indexOf(waiter)
        if (index !== -1) queue.waiters.splice(index, 1)
        queue.wake()
        waiter.settle(patience.signal.reason as Error)
      }
      const waiter: Waiter = {
        ...patience,
        settle(outcome) {
          patience.signal.removeEventListener('abort', onAbort)
          if (outcome instanceof Error) reject(outcome)
          else resolve(outcome)
        },
      }
      patience.signal.addEventListener('abort', onAbort, { once: true })
      queue.waiters.push(waiter)
      if (waiting === undefined) {
        queues.set(realm, queue)
        void pump(realm, queue, denial?.waitMs ?? 0)
      }
    })
  }

  // One per realm that has waiters: asks for the first of them, then the next (I2).
  async function pump(realm: string, queue: Queue, firstPauseMs: number): Promise<void> {
    let pauseMs = firstPauseMs
    while (queue.waiters.length > 0) {
      if (pauseMs > 0) await pause(queue, pauseMs)
      if (queue.waiters.length === 0) break
      const claim = await ledger.claim(realm)
      if ('permit' in claim) {
        const permit = waking(realm, claim.permit)
        const first = queue.waiters.shift()
        if (first === undefined) permit.release()
        else first.settle(permit)
        pauseMs = 0
        continue
      }
      queue.blockedUntil = blockedBy(claim.denial, now())
      giveUp(queue)
      pauseMs = Math.max(1, claim.denial.waitMs)
    }
    queues.delete(realm)
  }

  // I3
  function giveUp({ waiters, blockedUntil }: Queue): void {
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
    acquire(realm, patience) {
      if (queues.has(realm)) return enqueue(realm, patience(), null)
      const decide = (claim: Claim): Permit | Promise<Permit> =>
        'permit' in claim ? waking(realm, claim.permit) : enqueue(realm, patience(), claim.denial)
      const claim = ledger.claim(realm)
      return claim instanceof Promise ? claim.then(decide) : decide(claim)
    },
    hold: (realm, ms) => ledger.hold(realm, ms),
  }
}

// A place may become free at any moment; a hold and a rate end when they end.
const blockedBy = ({ reason, waitMs }: Denial, now: number): number =>
  reason === 'concurrency' ? 0 : now + waitMs

const throttled = (waitMs: number): IntegrationError =>
  new IntegrationError('throttled', 'the realm has no call left before the deadline', {
    retryAfterSeconds: Math.ceil(waitMs / 1_000),
  })
