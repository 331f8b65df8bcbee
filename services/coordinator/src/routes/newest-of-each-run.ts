import type {
  StreamedTransition,
  TransactionEvent,
} from '@integration-host/shared/contracts/events'

/** An event of the result, and the oldest event for which it stands. */
interface Coalesced {
  readonly newest: TransactionEvent
  first: TransactionEvent
}

/**
 * Returns the newest event of each run and its failures, in the order in which these events arrived. A client that
 * continues after one of them therefore misses none. Failures are kept, because clients count them, and because a run
 * that was resumed and failed again has a new time of its failure. A failure that arrives after a newer event of its run
 * is left out, as clients ignore outdated events.
 *
 * If an event stands for several events of its run, `First` describes the oldest of them. The versions decide which
 * event is newer, because the events of several replicas may arrive in a different order. Of two events with the same
 * version the one that arrived later is newer: settling a step in doubt does not change the version.
 */
export function newestOfEachRun(
  events: readonly TransactionEvent[],
): readonly StreamedTransition[] {
  const coalesced = new Set<Coalesced>()
  const newestOf = new Map<string, Coalesced>()
  for (const event of events) {
    const run = `${event.Process}\0${event.TransactionID}\0${event.ReplayID}`
    const known = newestOf.get(run)
    if (known !== undefined && event.Version < known.newest.Version) {
      if (event.Version < known.first.Version) known.first = event
      continue
    }
    const isReplaced =
      known !== undefined &&
      (known.newest.Status !== 'Failed' || known.newest.Version === event.Version)
    if (isReplaced) coalesced.delete(known)
    const entry = { newest: event, first: isReplaced ? known.first : event }
    coalesced.add(entry)
    newestOf.set(run, entry)
  }
  return Array.from(coalesced, ({ newest, first }) =>
    first.Version < newest.Version
      ? { ...newest, First: { Version: first.Version, At: first.At } }
      : newest,
  )
}
