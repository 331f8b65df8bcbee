import type { TransactionEvent } from '@integration-host/shared/contracts/transaction-event'

/**
 * The last transitions, for whoever watches; a watcher that comes back goes on where it stopped.
 *
 * Each replica has its own transitions at once and those of the others a moment later, so no two have them in
 * the same order: what came before an event here may not have been seen with it elsewhere.
 */
export interface TransitionFeed {
  add(event: TransactionEvent): void
  /**
   * What came after the event of that id, and what may have: a watcher may know some of it. Null when that event
   * is not here yet, or not kept any more.
   */
  after(id: string): readonly TransactionEvent[] | null
  /** @returns how to stop watching. */
  watch(listener: (event: TransactionEvent) => void): () => void
}

const KEPT = 10_000
/** Many times what a transition needs to reach the other replicas. */
const OVERLAP_MS = 1_000

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
      const last = events[index]
      if (last === undefined) return null
      const since = Date.parse(last.At) - OVERLAP_MS
      return events.filter(
        (event, at) => at > index || (at < index && Date.parse(event.At) >= since),
      )
    },
    watch(listener) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
  }
}
