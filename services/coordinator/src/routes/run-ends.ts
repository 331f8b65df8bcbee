/**
 * The requests that wait for the end of a run. A client that queues a transaction with `Prefer: wait=30` (RFC 7240
 * §4.3) gets its response when the run has ended. The transition feed of this replica contains the last transition,
 * whichever replica has made it.
 */
import type { TransactionEvent } from '@integration-host/shared/contracts/transaction-event'
import { keyText, type Run, type RunKey } from '../transaction/run.ts'
import type { RunReader } from '../transaction/run-detail.ts'
import { isOver } from '../transaction/status.ts'
import type { QueueResult } from '../transaction/transaction-source.ts'
import type { TransitionFeed } from '../worker/transition-feed.ts'

export interface RunEnds extends Disposable {
  /** The number of requests that wait. */
  readonly size: number
  /**
   * Resolves with the run when it has ended. Resolves with its current state after `ms` milliseconds, when this service
   * shuts down, when the client has gone, and at once if `MAX_WAITING` requests wait already. If the store is
   * unavailable then, the promise resolves with the run as it was queued, because the transaction is durable.
   *
   * @param onGone - gets a function that must be called when the client has closed its connection
   */
  reached(queued: QueueResult, ms: number, onGone: (giveUp: () => void) => void): Promise<Run>
}

export interface RunEndsDeps {
  readonly feed: Pick<TransitionFeed, 'watch'>
  readonly source: Pick<RunReader, 'get'>
}

/** The limit leaves connections for other requests: a service accepts 4,096, and each waiting request occupies one. */
export const MAX_WAITING = 1_000

const ONLY_RUN = { attempts: 0, bodies: false }

export function createRunEnds({ feed, source }: RunEndsDeps): RunEnds {
  type End = (event: TransactionEvent | null) => void
  const waiting = new Map<string, Set<End>>()
  let size = 0
  let isClosed = false
  const stopWatching = feed.watch((event) => {
    if (size === 0 || !isOver(event.Status)) return
    for (const end of waiting.get(keyText(event)) ?? []) end(event)
  })

  /** `event` resolves with the last event of the run, or with `null` after `ms` milliseconds or a call of `giveUp`. */
  function watch(run: RunKey, ms: number) {
    const { promise, resolve } = Promise.withResolvers<TransactionEvent | null>()
    const key = keyText(run)
    const ends = waiting.get(key) ?? new Set()
    waiting.set(key, ends)
    const end: End = (event) => {
      if (!ends.delete(end)) return
      size -= 1
      if (ends.size === 0) waiting.delete(key)
      clearTimeout(timer)
      resolve(event)
    }
    const timer = setTimeout(end, ms, null)
    ends.add(end)
    size += 1
    return { event: promise, giveUp: () => end(null) }
  }

  async function read(run: Run): Promise<Run> {
    const { Process, TransactionID, ReplayID } = run
    const found = await source.get(Process, TransactionID, ReplayID, ONLY_RUN).catch(() => null)
    return found?.run ?? run
  }

  return {
    get size() {
      return size
    },
    async reached({ outcome, run }, ms, onGone) {
      if (isOver(run.Status) || isClosed || size >= MAX_WAITING) return run
      const { event, giveUp } = watch(run, ms)
      onGone(giveUp)
      // A run that existed before this request may have ended after its row was read and before it was watched.
      if (outcome !== 'queued') void read(run).then(({ Status }) => isOver(Status) && giveUp())
      const last = await event
      return (last && withoutRead(run, last)) ?? read(run)
    },
    [Symbol.dispose]() {
      isClosed = true
      stopWatching()
      for (const ends of waiting.values()) for (const end of ends) end(null)
    },
  }
}

/**
 * Returns the completed run, or `null` if its row must be read: the error of a run that has not completed is not in its
 * event, and the initial data and start time of a delayed run may have changed.
 */
const withoutRead = (run: Run, last: TransactionEvent): Run | null =>
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
