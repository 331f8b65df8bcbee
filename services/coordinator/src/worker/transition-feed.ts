import type { TransactionEvent } from '@integration-host/shared/contracts/transaction-event'

/**
 * The most recent transitions, for clients that watch; a client that reconnects continues where it stopped.
 *
 * Each replica has its own transitions at once and those of the others a moment later, so no two replicas have
 * them in the same order: an event that precedes another one here may follow it elsewhere.
 */
export interface TransitionFeed {
  add(event: TransactionEvent): void
  /**
   * The events after the one of that id, and those of the second before it: the client may have read from a
   * replica where they followed it, so it may know some of them. `null` if that event has not arrived here yet,
   * or is not kept any more.
   */
  after(id: string): readonly TransactionEvent[] | null
  /** @returns how to stop watching. */
  watch(listener: (event: TransactionEvent) => void): () => void
}

const KEPT = 10_000
/** Many times the duration in which a transition reaches the other replicas. */
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
      // Trimmed rarely and not for each event, because every transition passes here.
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
