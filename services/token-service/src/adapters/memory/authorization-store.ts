/** Stores the short-lived records of authorizations in memory, which suffices for an installation with one process. */
import {
  type AuthorizationStore,
  type CodeClaim,
  digest,
  PENDING_LABELS,
  tooManyPending,
  tooManyPendingOfKey,
} from '../../authorization/authorization-store.ts'
import type { LabelsChange } from '../../credential/labels.ts'

const LIMIT = 10_000

export function createMemoryAuthorizationStore(now: () => number = Date.now): AuthorizationStore {
  const usedStates = createExpiringMap<true>(now)
  const labelsOf = createExpiringMap<{
    readonly labels: LabelsChange
    readonly shareOf: string | null
  }>(now)
  const hints = createExpiringMap<true>(now)
  const claims = createExpiringMap<CodeClaim>(now)
  return {
    async useState(state, ttlMs) {
      if (usedStates.get(digest(state)) !== null) return false
      usedStates.put(digest(state), true, ttlMs)
      return true
    },
    async isStateUsed(state) {
      return usedStates.get(digest(state)) !== null
    },
    async keepLabels(state, labels, ttlMs, shareOf) {
      const { total, perKey } = PENDING_LABELS
      if (labelsOf.count(() => true) >= total) throw tooManyPending()
      if (shareOf !== null && labelsOf.count((one) => one.shareOf === shareOf) >= perKey)
        throw tooManyPendingOfKey()
      labelsOf.put(digest(state), { labels, shareOf }, ttlMs)
    },
    async readLabels(state) {
      return labelsOf.get(digest(state))?.labels ?? null
    },
    async admitHint(name, intervalMs) {
      if (hints.get(name) !== null) return false
      hints.put(name, true, intervalMs)
      return true
    },
    async claimCode(code, claim, ttlMs) {
      const first = claims.get(digest(code))
      if (first === null) claims.put(digest(code), claim, ttlMs)
      return first
    },
    async readCode(code) {
      return claims.get(digest(code))
    },
    async settleCode(code, claim, ttlMs) {
      claims.put(digest(code), claim, ttlMs)
    },
  }
}

/** A map with an expiry for each entry. Above `LIMIT` entries, the oldest ones are evicted to limit the memory use. */
function createExpiringMap<T>(now: () => number) {
  const entries = new Map<string, { readonly value: T; readonly until: number }>()
  return {
    get(key: string): T | null {
      const entry = entries.get(key)
      return entry === undefined || entry.until <= now() ? null : entry.value
    },
    /** Returns the number of values that have not expired and are counted. */
    count(isCounted: (value: T) => boolean): number {
      const at = now()
      let count = 0
      for (const { value, until } of entries.values())
        if (until > at && isCounted(value)) count += 1
      return count
    },
    put(key: string, value: T, ttlMs: number): void {
      entries.delete(key)
      for (const [oldest, { until }] of entries) {
        if (until > now() && entries.size < LIMIT) break
        entries.delete(oldest)
      }
      entries.set(key, { value, until: now() + ttlMs })
    },
  }
}
