import type { TransactionEvent } from '@integration-host/shared/contracts/events'

const KEPT = 10_000
/**
 * When a client reconnects, the events of this many milliseconds before the last event of the client are sent again.
 * Transitions reach the other replicas in much less time.
 */
const OVERLAP_MS = 1_000

/** Returns the id of an event. It is the same on every replica, because it is derived from the transition. */
export const eventId = ({ Process, TransactionID, ReplayID, Version }: TransactionEvent): string =>
  `${encodeURIComponent(Process)}/${encodeURIComponent(TransactionID)}/${ReplayID}/${Version}`

export type TransitionFeed = ReturnType<typeof createTransitionFeed>

/**
 * The latest transitions, for the clients of `GET /events`. A client that reconnects continues after its last event.
 *
 * Each replica receives its own transitions at once, and the transitions of other replicas a moment later. Therefore
 * two events may have a different order on two replicas.
 */
export function createTransitionFeed(kept = KEPT) {
  let events: TransactionEvent[] = []
  const listeners = new Set<(event: TransactionEvent) => void>()
  return {
    add(event: TransactionEvent): void {
      events.push(event)
      // The feed is trimmed only occasionally, because this function runs for every transition.
      if (events.length >= 2 * kept) events = events.slice(-kept)
      for (const listener of listeners) listener(event)
    },
    /**
     * Returns the events after the event with this id, preceded by the events of the last 1,000 ms before that event. The
     * earlier events are repeated because the replica that served the client before may have sent them in a different
     * order. Returns `null` if the event with this id has not arrived on this replica yet, or is no longer stored.
     */
    after(id: string): readonly TransactionEvent[] | null {
      const index = events.findLastIndex((event) => eventId(event) === id)
      const last = events[index]
      if (last === undefined) return null
      const since = Date.parse(last.At) - OVERLAP_MS
      return events.filter(
        (event, at) => at > index || (at < index && Date.parse(event.At) >= since),
      )
    },
    /** Calls `listener` for each new event until the returned function is called. */
    watch(listener: (event: TransactionEvent) => void): () => void {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
  }
}
