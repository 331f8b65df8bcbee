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
import { readEvents } from '@integration-host/shared/http/event-stream'
import { parseJsonObject } from '@integration-host/shared/json'
import { pause } from './attempts.ts'
import { ProblemError } from './problem.ts'

export interface RunEventsDeps {
  /**
   * Opens the stream. If `lastEventId` is not `null`, the stream begins after the event with this id.
   *
   * @throws {ProblemError} if the response is not a stream.
   */
  readonly open: (lastEventId: string | null, signal: AbortSignal) => Promise<Response>
  /** The pause between two attempts to open the stream, in milliseconds. */
  readonly pollMs: number
  /**
   * After this time without a byte, the connection is regarded as lost. The coordinator writes a comment every 15 s.
   */
  readonly idleMs: number
}

export interface RunEvents {
  /** Calls `wake` whenever the run may have ended. The returned function ends these calls. */
  watch(transactionId: string, wake: () => void): () => void
}

const ENDED: readonly unknown[] = ['Completed', 'Failed', 'Cancelled']
/**
 * After a response with one of these problem codes the stream is not requested again, because the key has no permission
 * to read the events. The key can still be valid for reading runs.
 */
const REJECTED: readonly unknown[] = ['unauthorized', 'forbidden', 'process_not_found']

export function createRunEvents({ open, pollMs, idleMs }: RunEventsDeps): RunEvents {
  const watchers = new Set<{ readonly transactionId: string; readonly wake: () => void }>()
  let following: AbortController | null = null

  const wake = (transactionId: string | null): void => {
    for (const watcher of watchers)
      if (transactionId === null || watcher.transactionId === transactionId) watcher.wake()
  }

  /** Follows the stream until `signal` is aborted. */
  async function follow(signal: AbortSignal): Promise<void> {
    let lastId: string | null = null
    let isRejected = false
    while (!signal.aborted) {
      const connection = new AbortController()
      const alive = watchdog(idleMs, () => connection.abort())
      let isOpen = false
      try {
        if (isRejected) throw new Error('the stream was rejected')
        const response = await open(lastId, AbortSignal.any([signal, connection.signal]))
        isOpen = true
        if (lastId === null) wake(null)
        for await (const event of readEvents(response)) {
          alive.reset()
          if (event === null) continue
          lastId = event.name === 'reset' ? null : (event.id ?? lastId)
          if (event.name === 'reset') wake(null)
          if (event.name === 'transaction') onTransition(event.data)
        }
      } catch (error) {
        isRejected ||= error instanceof ProblemError && REJECTED.includes(error.problem.code)
        // If the stream was open, the next connection continues after the last event of this stream, so the runs need
        // not be read (R1).
        if (!isOpen && !signal.aborted) wake(null)
      } finally {
        alive.stop()
      }
      // Half of the pause is random, so that the clients of a restarted coordinator do not all reconnect at the same
      // moment.
      await pause(pollMs * (0.5 + Math.random() / 2), signal).catch(() => {})
    }
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

/** Calls `onIdle` if `reset` is not called for `ms` milliseconds. */
function watchdog(ms: number, onIdle: () => void): { reset(): void; stop(): void } {
  let timer = setTimeout(onIdle, ms)
  return {
    reset() {
      clearTimeout(timer)
      timer = setTimeout(onIdle, ms)
    },
    stop: () => clearTimeout(timer),
  }
}
