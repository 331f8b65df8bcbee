import type { TransactionEvent } from '@integration-host/shared/contracts/transaction-event'

export interface FeedEntry {
  /** The same on every replica: one transition, one id. */
  readonly id: string
  readonly event: TransactionEvent
}

/** The last transitions, for whoever watches; a watcher that comes back goes on where it stopped. */
export interface TransitionFeed {
  add(event: TransactionEvent): void
  /** What came after the entry `id`; null when that one is not kept any more. */
  after(id: string): readonly FeedEntry[] | null
  /** @returns how to stop watching. */
  watch(listener: (entry: FeedEntry) => void): () => void
}

const KEPT = 10_000

export const eventId = ({ Process, TransactionID, ReplayID, Version }: TransactionEvent): string =>
  [Process, TransactionID, ReplayID, Version].map(encodeURIComponent).join('/')

/** Transitions come in twice (our own, and over the broker): the second is dropped. */
export function createTransitionFeed(kept = KEPT): TransitionFeed {
  // Insertion order is the order of the feed.
  const entries = new Map<string, FeedEntry>()
  const listeners = new Set<(entry: FeedEntry) => void>()
  return {
    add(event) {
      const entry = { id: eventId(event), event }
      if (entries.has(entry.id)) return
      entries.set(entry.id, entry)
      for (const oldest of entries.keys()) {
        if (entries.size <= kept) break
        entries.delete(oldest)
      }
      for (const listener of listeners) listener(entry)
    },
    after(id) {
      if (!entries.has(id)) return null
      const all = [...entries.values()]
      return all.slice(all.findIndex((entry) => entry.id === id) + 1)
    },
    watch(listener) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
  }
}
