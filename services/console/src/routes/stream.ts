/** The open event streams of the browsers, and the route that opens them. */
import type { ServerResponse } from 'node:http'
import { IntegrationError } from '@integration-host/shared/errors'
import { textResponse } from '@integration-host/shared/http/service-app'
import { rawResponse } from '@integration-host/shared/http/without-web-streams'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Hono } from 'hono'
import type { Sessions } from '../session/sessions.ts'
import type { Frames } from '../view/frames.ts'
import { sessionOf } from './browser-guard.ts'
import { guardedRoutes, OWN_PROBLEMS, type RouteDeps } from './guarded-route.ts'

const MAX_STREAMS = 200
/**
 * If this many bytes are waiting for a browser, its stream is ended. The browser then reconnects, and continues after
 * its last frame.
 */
const MAX_UNREAD_BYTES = 1_048_576
const KEEP_ALIVE_MS = 15_000
/**
 * The interval between two checks of the sessions of all streams. When a session has expired, or was ended at another
 * replica, its streams therefore end within two seconds.
 */
const CHECK_MS = 1_000

export interface BrowserStreams extends Disposable {
  readonly size: number
  /**
   * Opens the stream of a session. Returns a function that starts writing; the caller calls it when the response head
   * has been sent.
   *
   * @throws {IntegrationError} `too_many_watchers` if `MAX_STREAMS` streams are open.
   */
  open(outgoing: ServerResponse, digest: string, lastId: string | null): () => void
}

interface Stream {
  readonly outgoing: ServerResponse
  readonly digest: string
}

export function createBrowserStreams(
  sessions: Sessions,
  frames: Frames,
  logger: Logger,
): BrowserStreams {
  const streams = new Set<Stream>()

  function write(stream: Stream, text: string): void {
    const { outgoing } = stream
    if (!streams.has(stream)) return
    outgoing.write(text)
    if (outgoing.writableLength <= MAX_UNREAD_BYTES) return
    streams.delete(stream)
    outgoing.destroy()
  }

  function end(stream: Stream, reason: 'signed_out' | 'shutting_down'): void {
    if (!streams.delete(stream)) return
    stream.outgoing.end(`event: bye\ndata: {"Reason":"${reason}"}\n\n`)
  }

  const stopListening = frames.listen((text) => {
    for (const stream of streams) write(stream, text)
  })
  const stopWatching = sessions.onEnd((digest) => {
    for (const stream of streams) if (stream.digest === digest) end(stream, 'signed_out')
  })
  const keepAlive = setInterval(() => {
    for (const stream of streams) write(stream, ': still here\n\n')
  }, KEEP_ALIVE_MS).unref()
  const check = setInterval(() => {
    // If a session has ended, `isValid` calls the listener above, which ends its streams.
    for (const digest of new Set([...streams].map((stream) => stream.digest)))
      sessions
        .isValid(digest)
        .catch((error: unknown) =>
          logger.warn({ err: error }, 'sessions of the event streams could not be checked'),
        )
  }, CHECK_MS).unref()

  return {
    get size() {
      return streams.size
    },
    open(outgoing, digest, lastId) {
      if (streams.size >= MAX_STREAMS)
        throw new IntegrationError('too_many_watchers', `${MAX_STREAMS} browsers are connected`)
      const stream: Stream = { outgoing, digest }
      return () => {
        streams.add(stream)
        outgoing.on('close', () => streams.delete(stream))
        // This event has no id, so it does not change the `Last-Event-ID` of the browser. If the connection breaks
        // after this event, the browser still continues after the last frame that it has.
        write(stream, `event: hello\ndata: {"Now":"${new Date().toISOString()}"}\n\n`)
        for (const text of frames.since(lastId)) write(stream, text)
      }
    },
    [Symbol.dispose]() {
      stopListening()
      stopWatching()
      clearInterval(keepAlive)
      clearInterval(check)
      for (const stream of streams) end(stream, 'shutting_down')
    },
  }
}

/**
 * `GET /stream` sends the changes of all pages as server-sent events. The stream continues after the frame in
 * `Last-Event-ID`, or in `after` if a tab continues the stream of another tab. If this frame is unknown, the event
 * `reset` is sent.
 */
export function streamRoutes({ streams, ...deps }: RouteDeps): Hono {
  const { withRole, routes } = guardedRoutes(deps, 'state')
  withRole('GET', 'viewer', { ...OWN_PROBLEMS, 503: 'too many browsers are connected already' })(
    '/stream',
    {
      operationId: 'streamFrames',
      summary: 'The changes of all pages, as server-sent events; resumes by Last-Event-ID or after',
      parameters: [{ name: 'after', in: 'query', required: false, schema: { type: 'string' } }],
      responses: { 200: textResponse('frames, without end', 'text/event-stream') },
      respond({ c }) {
        const { digest } = sessionOf(c)
        const lastId = c.req.header('Last-Event-ID') ?? c.req.query('after') ?? null
        const headers = {
          'Content-Type': 'text/event-stream',
          'Cache-Control': 'no-store',
          'X-Accel-Buffering': 'no', // without this header, nginx would buffer the frames
        }
        return rawResponse(c, headers, (outgoing) => streams.open(outgoing, digest, lastId))
      },
    },
  )
  return routes
}
