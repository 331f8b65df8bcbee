import { rawResponse } from '@integration-host/shared/http/without-web-streams'
import { problemResponses, textResponse } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import type { Sessions } from '../session/sessions.ts'
import type { BrowserStreams } from './browser-streams.ts'
import { needsRole, sessionOf } from './browser-guard.ts'

export interface StreamRouteDeps {
  readonly sessions: Sessions
  readonly isHttps: boolean
  readonly streams: BrowserStreams
}

/**
 * `GET /stream` sends the changes of all pages as server-sent events. The stream continues after the frame in
 * `Last-Event-ID`, or in `after` if a tab continues the stream of another tab. If this frame is unknown, the event
 * `reset` is sent.
 */
export function streamRoutes({ sessions, isHttps, streams }: StreamRouteDeps): Hono {
  return new Hono().get(
    '/stream',
    needsRole(sessions, 'viewer', isHttps),
    describeRoute({
      operationId: 'streamFrames',
      tags: ['state'],
      summary: 'The changes of all pages, as server-sent events; resumes by Last-Event-ID or after',
      parameters: [{ name: 'after', in: 'query', required: false, schema: { type: 'string' } }],
      responses: {
        200: textResponse('frames, without end', 'text/event-stream'),
        ...problemResponses({
          401: 'no session',
          403: 'not a page of the console',
          503: 'too many browsers are connected already',
        }),
      },
    }),
    (c) => {
      const { digest } = sessionOf(c)
      const lastId = c.req.header('Last-Event-ID') ?? c.req.query('after') ?? null
      const headers = {
        'Content-Type': 'text/event-stream',
        'Cache-Control': 'no-store',
        'X-Accel-Buffering': 'no', // without this header, nginx would buffer the frames
      }
      return rawResponse(c, headers, (outgoing) => streams.open(outgoing, digest, lastId))
    },
  )
}
