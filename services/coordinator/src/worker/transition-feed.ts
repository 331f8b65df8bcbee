import type { TransactionEvent } from '@integration-host/shared/contracts/transaction-event'

/**
 * The most recent transitions, for the clients of `GET /events`. A client that reconnects continues where it stopped.
 *
 * Each replica receives its own transitions at once and those of other replicas a moment later. Therefore the
 * order of two events may differ between replicas.
 */
export interface TransitionFeed {
  add(event: TransactionEvent): void
  /**
   * Returns the events after the event with this id, and the events of the second before it. The earlier events are
   * repeated because they may have followed the named event on the replica from which the client has read. Returns
   * `null` if the named event has not arrived on this replica yet, or is no longer kept.
   */
  after(id: string): readonly TransactionEvent[] | null
  /** Calls `listener` for each new event until the returned function is called. */
  watch(listener: (event: TransactionEvent) => void): () => void
}

const KEPT = 10_000
/** Events of this many milliseconds before the named event are repeated. Transitions reach other replicas much faster. */
const OVERLAP_MS = 1_000

/** Returns the id of an event, which is the same on every replica because it is derived from the transition. */
export const eventId = ({ Process, TransactionID, ReplayID, Version }: TransactionEvent): string =>
  [Process, TransactionID, ReplayID, Version].map(encodeURIComponent).join('/')

export function createTransitionFeed(kept = KEPT): TransitionFeed {
  let events: TransactionEvent[] = []
  const listeners = new Set<(event: TransactionEvent) => void>()
  return {
    add(event) {
      events.push(event)
      // The feed is trimmed rarely instead of for each event, because this function runs for every transition.
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
