import type { ProviderLimits } from '@integration-host/shared/provider-profile/provider-profile'
import {
  batchRates,
  type Claim,
  createRealmLimits,
  type GatewayLimits,
  type Ledger,
  type RealmLimits,
  type RealmRates,
} from './throttle.ts'

const SECOND_MS = 1_000
const MINUTE_MS = 60_000
/** How soon to look again for a free place; a release in this process wakes the queue before. */
const CONCURRENCY_POLL_MS = 50
const SMALLEST_RING = 16
/** Realms remembered before those at rest are forgotten. */
const SWEEP_AT = 1_000

interface Account {
  /** When the last calls went out (epoch ms), as a ring: it holds those of a minute, or as many as any rule looks back. */
  sentAt: Float64Array
  /** Of the newest. */
  last: number
  count: number
  open: number
  heldUntil: number
}

export interface ProcessLedger extends Ledger {
  claim(realm: string): Claim
  /** Counts a call that somebody else permitted, so that this ledger is right when it must decide alone. */
  record(realm: string): void
  /** Milliseconds for which the realm is still held; 0 when it is not. */
  heldMs(realm: string): number
}

/** Counts the calls of this process alone: exact sliding windows, no timers. */
export function createProcessLedger(rates: RealmRates, now: () => number): ProcessLedger {
  const { perSecond, perMinute, concurrent } = rates
  const mostCounted = Math.max(perSecond, perMinute)
  const accounts = new Map<string, Account>()
  let sweepAt = SWEEP_AT

  function accountOf(realm: string): Account {
    const known = accounts.get(realm)
    if (known !== undefined) return known
    if (accounts.size >= sweepAt) sweep()
    const sentAt = new Float64Array(Math.min(SMALLEST_RING, mostCounted))
    const account: Account = { sentAt, last: -1, count: 0, open: 0, heldUntil: 0 }
    accounts.set(realm, account)
    return account
  }

  function sweep(): void {
    for (const [realm, account] of accounts) {
      const isResting =
        account.open === 0 && account.heldUntil <= now() && nthLast(account, 1) <= now() - MINUTE_MS
      if (isResting) accounts.delete(realm)
    }
    sweepAt = Math.max(SWEEP_AT, accounts.size * 2)
  }

  // When the n-th call before now went out; long ago when there were fewer.
  const nthLast = ({ sentAt, last, count }: Account, n: number): number =>
    n > count
      ? Number.NEGATIVE_INFINITY
      : (sentAt[(last + 1 - n + sentAt.length) % sentAt.length] ?? Number.NEGATIVE_INFINITY)

  function note(account: Account): void {
    const at = now()
    const { count, sentAt } = account
    const isFull = count === sentAt.length
    if (isFull && count < mostCounted && nthLast(account, count) > at - MINUTE_MS) grow(account)
    account.last = (account.last + 1) % account.sentAt.length
    account.sentAt[account.last] = at
    if (account.count < account.sentAt.length) account.count += 1
  }

  function grow(account: Account): void {
    const larger = new Float64Array(Math.min(account.count * 2, mostCounted))
    for (let n = account.count; n > 0; n -= 1) larger[account.count - n] = nthLast(account, n)
    account.sentAt = larger
    account.last = account.count - 1
  }

  return {
    claim(realm) {
      const account = accountOf(realm)
      const at = now()
      if (account.heldUntil > at)
        return { denial: { reason: 'held', waitMs: account.heldUntil - at } }
      if (account.open >= concurrent)
        return { denial: { reason: 'concurrency', waitMs: CONCURRENCY_POLL_MS } }
      const waitMs = Math.max(
        nthLast(account, perSecond) + SECOND_MS - at,
        nthLast(account, perMinute) + MINUTE_MS - at,
      )
      if (waitMs > 0) return { denial: { reason: 'rate', waitMs } }
      note(account)
      account.open += 1
      let isOpen = true
      return {
        permit: {
          release() {
            if (isOpen) account.open -= 1
            isOpen = false
          },
        },
      }
    },
    record: (realm) => note(accountOf(realm)),
    heldMs: (realm) => Math.max(0, (accounts.get(realm)?.heldUntil ?? 0) - now()),
    hold(realm, ms) {
      const account = accountOf(realm)
      account.heldUntil = Math.max(account.heldUntil, now() + ms)
    },
  }
}

export const createProcessLimits = (rates: RealmRates, now: () => number): RealmLimits =>
  createRealmLimits({ ledger: createProcessLedger(rates, now), now })

/** The limits of a gateway that is alone: the embedded host, or one without Redis. */
export const createGatewayLimits = (
  limits: ProviderLimits,
  now: () => number = Date.now,
): GatewayLimits => ({
  calls: createProcessLimits(limits.calls, now),
  batches: createProcessLimits(batchRates(limits), now),
})
