/**
 * Follows the events of a process with one stream. All callers that wait for a run of this process share the stream.
 * The number of streams is limited: browsers open at most six connections to a server, and the coordinator serves at
 * most a hundred streams.
 *
 * A client reads the run after each event, so the stream need not be complete:
 *
 * R1  After a connection without `Last-Event-ID`, and after the event `reset`, events may be missing, so every run that
 *     a caller waits for is read.
 * R2  While no stream can be opened, these runs are read after each attempt to open a stream.
 */
import { parseJsonObject } from '@integration-host/shared/json'
import { followEvents, openEvents } from './events.ts'
import { ProblemError } from './problem.ts'
import type { Service } from './service.ts'

export interface RunEvents {
  /** Calls `wake` whenever the run may have ended. The returned function ends these calls. */
  watch(transactionId: string, wake: () => void): () => void
}

/** The statuses of a run that has ended. */
export const ENDED: readonly unknown[] = [
  'Completed',
  'Failed',
  'Cancelled',
  'Undone',
  'UndoFailed',
]
/**
 * After a response with one of these problem codes the stream is not requested again, because the key has no permission
 * to read the events. The key can still be valid for reading runs.
 */
const REJECTED: readonly unknown[] = ['unauthorized', 'forbidden', 'process_not_found']

/** `pollMs` is the pause between two attempts to open the stream, in milliseconds. */
export function createRunEvents(service: Service, process: string, pollMs: number): RunEvents {
  const path = `/events?process=${encodeURIComponent(process)}`
  const watchers = new Set<{ readonly transactionId: string; readonly wake: () => void }>()
  let following: AbortController | null = null

  const wake = (transactionId: string | null): void => {
    for (const watcher of watchers)
      if (transactionId === null || watcher.transactionId === transactionId) watcher.wake()
  }

  function follow(signal: AbortSignal): Promise<void> {
    let rejection: ProblemError | null = null
    return followEvents(
      {
        async open(lastId, connection) {
          try {
            if (rejection !== null) throw rejection
            return await openEvents(service, path, lastId, connection)
          } catch (error) {
            if (error instanceof ProblemError && REJECTED.includes(error.problem.code))
              rejection = error
            if (!signal.aborted) wake(null) // R2
            throw error
          }
        },
        onEvent: ({ name, data }) => {
          if (name === 'transaction') onTransition(data)
        },
        onGap: () => wake(null), // R1
        // Half of the pause is random, so that the clients of a restarted coordinator do not all reconnect at the same
        // moment.
        pauseMs: () => pollMs * (0.5 + Math.random() / 2),
      },
      signal,
    )
  }

  function onTransition(data: string): void {
    const { TransactionID, Status } = parseJsonObject(data) ?? {}
    if (typeof TransactionID === 'string' && ENDED.includes(Status)) wake(TransactionID)
  }

  return {
    watch(transactionId, onChange) {
      const watcher = { transactionId, wake: onChange }
      watchers.add(watcher)
      if (following === null) {
        following = new AbortController()
        void follow(following.signal)
      }
      return () => {
        watchers.delete(watcher)
        if (watchers.size > 0) return
        following?.abort()
        following = null
      }
    },
  }
}
