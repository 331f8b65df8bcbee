/**
 * The requests that wait for the end of a run: those that queue a transaction with `Prefer: wait=30` (RFC 7240 §4.3).
 * The transition feed of each replica receives the transitions of all replicas, so each replica can send such a
 * response, whichever replica ends the run.
 */
import { type Caller, type PlaceLimits, Places } from '@integration-host/shared/access/caller'
import type { TransactionEvent } from '@integration-host/shared/contracts/events'
import { keyText, type Run, type RunKey } from '../run/run.ts'
import { ONLY_RUN, type RunReader } from '../run/run-detail.ts'
import { isOver } from '../run/status.ts'
import type { QueueResult } from '../run/transaction-source.ts'
import type { TransitionFeed } from '../events/transaction-events.ts'

export interface RunEndsDeps {
  readonly feed: Pick<TransitionFeed, 'watch'>
  readonly source: Pick<RunReader, 'get'>
}

/** Each waiting request occupies a connection, of which the ingress accepts 500 for all replicas of a service. */
export const WAITING: PlaceLimits = { total: 200, perKey: 100 }

export type RunEnds = ReturnType<typeof createRunEnds>

export function createRunEnds({ feed, source }: RunEndsDeps) {
  type EndWait = (event: TransactionEvent | null) => void
  /** The waiting requests of each run, by the text of its key. */
  const waiting = new Map<string, Set<EndWait>>()
  const places = new Places(WAITING)
  let isClosed = false
  /** Called for each transition, from the first waiting request on. */
  const onTransition = (event: TransactionEvent): void => {
    if (places.size === 0 || !isOver(event.Status)) return
    for (const end of waiting.get(keyText(event)) ?? []) end(event)
  }
  let stopWatching: (() => void) | null = null

  /**
   * Registers a waiting request. `event` resolves with the last event of the run, or with `null` after `ms` milliseconds
   * or when `stop` is called.
   */
  function watch(run: RunKey, ms: number) {
    stopWatching ??= feed.watch(onTransition)
    const { promise, resolve } = Promise.withResolvers<TransactionEvent | null>()
    const key = keyText(run)
    const ends = waiting.get(key) ?? new Set()
    waiting.set(key, ends)
    const end: EndWait = (event) => {
      if (!ends.delete(end)) return
      if (ends.size === 0) waiting.delete(key)
      clearTimeout(timer)
      resolve(event)
    }
    const timer = setTimeout(end, ms, null)
    ends.add(end)
    return { event: promise, stop: () => end(null) }
  }

  async function read(run: Run): Promise<Run> {
    const { Process, TransactionID, ReplayID } = run
    const found = await source.get(Process, TransactionID, ReplayID, ONLY_RUN).catch(() => null)
    return found?.run ?? run
  }

  return {
    /** The number of requests that wait. */
    get size(): number {
      return places.size
    },
    /**
     * Resolves with the run when it has ended. After `ms` milliseconds or at shutdown, reads the run and resolves with its
     * current state. If this read fails, resolves with the run as it was queued, because the transaction is durable.
     * Resolves with `null` without waiting if the caller gets no place (`WAITING`), if the service shuts down, or if `ms`
     * is 0.
     *
     * @param onStop - registers the function that must be called when the client disconnects or may no longer wait; the
     *   promise then resolves at once, with the run as it was queued
     */
    async wait(
      { outcome, run, claim }: QueueResult,
      caller: Pick<Caller, 'shareOf'>,
      ms: number,
      onStop: (stopWaiting: () => void) => void,
    ): Promise<Run | null> {
      if (isOver(run.Status)) return run
      if (isClosed || ms === 0) return null
      const freePlace = places.take(caller)
      if (freePlace === null) return null
      const { event, stop } = watch(run, ms)
      let isStopped = false
      onStop(() => {
        isStopped = true
        stop()
      })
      // A run that this replica has not started itself may have ended before it was watched: it existed before, or
      // another replica was faster.
      if (claim === undefined) void read(run).then(({ Status }) => isOver(Status) && stop())
      const last = await event
      freePlace()
      if (isStopped) return run
      return (outcome === 'queued' && last && completedRun(run, last)) || read(run)
    },
    [Symbol.dispose](): void {
      isClosed = true
      stopWatching?.()
      for (const ends of waiting.values()) for (const end of ends) end(null)
    },
  }
}

/**
 * Returns the completed run, built from the queued run and its last event. Returns `null` if the row must be read: an
 * event contains no error text, and the initial data and start time of a delayed run may have changed.
 */
const completedRun = (run: Run, last: TransactionEvent): Run | null =>
  last.Status !== 'Completed' || run.NotBefore !== null || run.DebounceKey !== null
    ? null
    : {
        ...run,
        Status: last.Status,
        StepName: last.StepName,
        Version: last.Version,
        Attempt: last.Attempt,
        InDoubt: last.InDoubt,
        ErrorClass: last.ErrorClass,
        WaitingFor: last.WaitingFor,
        NextAttemptAt: last.NextAttemptAt,
        LastError: null,
        UpdatedAt: last.At,
        CompletedAt: last.At,
      }
