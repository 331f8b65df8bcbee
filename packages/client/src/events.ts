/** Reads the event stream of the coordinator, and opens it again whenever it ends. */
import { readEvents, type ServerSentEvent } from '@integration-host/shared/http/response-body'
import { pause } from './attempts.ts'
import { unexpectedResponse } from './problem.ts'
import type { Service } from './service.ts'

/**
 * After this time without a byte, a stream is regarded as lost. The coordinator writes a comment to an idle stream every
 * 15 s.
 */
const IDLE_MS = 45_000

export interface Following {
  /** Opens the stream. If `lastEventId` is not `null`, the stream begins after the event with this id. */
  readonly open: (lastEventId: string | null, signal: AbortSignal) => Promise<Response>
  readonly onEvent: (event: ServerSentEvent) => void | Promise<void>
  /**
   * Called when events may be missing: when a stream begins that does not continue an earlier one, and after the event
   * `reset`.
   */
  readonly onGap: () => void
  /** Returns the pause before the stream is opened again, in milliseconds. `failures` counts from 1. */
  readonly pauseMs: (failures: number) => number
}

/** Follows a stream until `signal` is aborted. After a lost connection it continues after the last event. */
export async function followEvents(
  { open, onEvent, onGap, pauseMs }: Following,
  signal: AbortSignal,
): Promise<void> {
  let lastId: string | null = null
  /** The number of connections since the last event or comment. */
  let failures = 0
  while (!signal.aborted) {
    const connection = new AbortController()
    const abort = (): void => connection.abort()
    let idle = setTimeout(abort, IDLE_MS)
    try {
      const response = await open(lastId, AbortSignal.any([signal, connection.signal]))
      if (lastId === null) onGap()
      for await (const event of readEvents(response)) {
        clearTimeout(idle)
        idle = setTimeout(abort, IDLE_MS)
        failures = 0
        if (event === null) continue
        lastId = event.name === 'reset' ? null : (event.id ?? lastId)
        if (event.name === 'reset') onGap()
        else await onEvent(event)
      }
    } catch {
      // The stream could not be opened, or its connection was lost. It is opened again.
    } finally {
      clearTimeout(idle)
      connection.abort()
    }
    failures += 1
    await pause(pauseMs(failures), signal).catch(() => {})
  }
}

/**
 * Opens `GET /events` of the coordinator, whose query `path` includes.
 *
 * @throws {ProblemError} if the response is not an event stream.
 */
export async function openEvents(
  coordinator: Pick<Service, 'open'>,
  path: string,
  lastEventId: string | null,
  signal: AbortSignal,
): Promise<Response> {
  const accepted = { Accept: 'text/event-stream' }
  const headers = lastEventId === null ? accepted : { ...accepted, 'Last-Event-ID': lastEventId }
  const response = await coordinator.open(path, { headers, signal })
  if (response.headers.get('Content-Type')?.startsWith('text/event-stream')) return response
  await response.body?.cancel()
  throw unexpectedResponse(response)
}
