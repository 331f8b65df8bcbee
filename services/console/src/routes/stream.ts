import { rawResponse } from '@integration-host/shared/http/without-web-streams'
import { textResponse } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import type { BrowserStreams } from './browser-streams.ts'
import { sessionOf } from './browser-guard.ts'
import { type GuardDeps, guardedRoutes } from './guarded-route.ts'

export interface StreamRouteDeps extends GuardDeps {
  readonly streams: BrowserStreams
}

/**
 * `GET /stream` sends the changes of all pages as server-sent events. The stream continues after the frame in
 * `Last-Event-ID`, or in `after` if a tab continues the stream of another tab. If this frame is unknown, the event
 * `reset` is sent.
 */
export function streamRoutes({ streams, ...deps }: StreamRouteDeps): Hono {
  const { withRole } = guardedRoutes(deps, 'state')
  return new Hono().get(
    '/stream',
    ...withRole('viewer', {
      401: 'no session',
      403: 'not a page of the console',
      503: 'too many browsers are connected already',
    })({
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
    }),
  )
}
