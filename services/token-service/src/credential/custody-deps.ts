import type { CredentialStore } from './credential-store.ts'

/** What the code that keeps credentials shares: the store, the clock, and the settings of the process. */
export interface CustodyDeps {
  readonly store: CredentialStore
  /** Identifies this process in leases and claims. */
  readonly owner: string
  readonly refreshAheadMs: number
  /** The idle limit: the provider ends a grant that was not refreshed for this time. */
  readonly idleLimitMs: number
  /** Returns the current time in epoch milliseconds. */
  readonly now: () => number
  /** Resolves after `ms`, or as soon as the signal aborts. */
  readonly sleep: (ms: number, signal?: AbortSignal) => Promise<void>
  /** Called when the outbox has a new entry to relay. */
  readonly notifyOutbox: () => void
  /** Receives errors of background work, for which no caller waits. */
  readonly onError: (error: unknown) => void
}
