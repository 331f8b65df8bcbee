import { onlyKnownQuery } from '@integration-host/shared/http/known-query'
import { problemResponses, textResponse } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { streamSSE } from 'hono/streaming'
import { describeRoute } from 'hono-openapi'
import { eventId, type TransitionFeed } from '../worker/transition-feed.ts'

const KEEP_ALIVE_MS = 15_000
/** A client that is this many events behind is disconnected; it can reconnect with its Last-Event-ID. */
const MAX_BEHIND = 20_000

/**
 * `GET /events`: every transition as a server-sent event; its `id` is unique and the same on every replica. With
 * `Last-Event-ID` the stream continues after that event, on any replica, and repeats some of those just before it.
 * An event `reset` reports that this is not possible. `Version` orders the events of a run, which may come from
 * several replicas.
 */
export function eventRoutes(deps: {
  readonly feed: TransitionFeed
  readonly shutdown: AbortSignal
}) {
  const { feed, shutdown } = deps
  return new Hono().get(
    '/',
    describeRoute({
      tags: ['events'],
      summary: 'Every transition, as server-sent events; resumes by Last-Event-ID',
      responses: {
        200: textResponse('transitions, without end', 'text/event-stream'),
        ...problemResponses({ 400: 'an unknown query parameter' }),
      },
    }),
    onlyKnownQuery(),
    (c) =>
      streamSSE(c, async (stream) => {
        const lastId = c.req.header('Last-Event-ID')
        const missed = lastId === undefined ? [] : feed.after(lastId)
        const events = [...(missed ?? [])]
        let wake: (() => void) | null = null
        const stopWatching = feed.watch((event) => {
          events.push(event)
          wake?.()
        })
        const end = (): void => wake?.()
        stream.onAbort(end)
        shutdown.addEventListener('abort', end, { once: true })
        try {
          if (missed === null) await stream.writeSSE({ event: 'reset', data: '{}' })
          else await stream.write(': connected\n\n')
          while (!stream.aborted && !shutdown.aborted && events.length <= MAX_BEHIND) {
            for (const event of events.splice(0, 500))
              await stream.writeSSE({
                id: eventId(event),
                event: 'transaction',
                data: JSON.stringify(event),
              })
            if (events.length > 0) continue
            await new Promise<void>((resolve) => {
              const timer = setTimeout(() => {
                void stream.write(': still here\n\n').finally(resolve)
              }, KEEP_ALIVE_MS)
              wake = () => {
                clearTimeout(timer)
                resolve()
              }
              // Events may have arrived, or the stream may have ended, while the last ones were written.
              if (events.length > 0 || stream.aborted || shutdown.aborted) wake()
            })
          }
        } finally {
          stopWatching()
          shutdown.removeEventListener('abort', end)
        }
      }),
  )
}
