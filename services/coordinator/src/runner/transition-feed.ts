import type { TransactionEvent } from '@integration-host/shared/contracts/transaction-event'

/** The last transitions, for whoever watches; a watcher that comes back goes on where it stopped. */
export interface TransitionFeed {
  add(event: TransactionEvent): void
  /** What came after the event of that id; null when that one is not kept any more. */
  after(id: string): readonly TransactionEvent[] | null
  /** @returns how to stop watching. */
  watch(listener: (event: TransactionEvent) => void): () => void
}

const KEPT = 10_000

/** The same on every replica: one transition, one id. */
export const eventId = ({ Process, TransactionID, ReplayID, Version }: TransactionEvent): string =>
  [Process, TransactionID, ReplayID, Version].map(encodeURIComponent).join('/')

export function createTransitionFeed(kept = KEPT): TransitionFeed {
  let events: TransactionEvent[] = []
  const listeners = new Set<(event: TransactionEvent) => void>()
  return {
    add(event) {
      events.push(event)
      // Not one by one: every transition comes by here.
      if (events.length >= 2 * kept) events = events.slice(-kept)
      for (const listener of listeners) listener(event)
    },
    after(id) {
      const index = events.findLastIndex((event) => eventId(event) === id)
      return index === -1 ? null : events.slice(index + 1)
    },
    watch(listener) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
  }
}
