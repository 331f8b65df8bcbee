import { rawResponse } from '@integration-host/shared/http/http-server'
import { onlyKnownQuery } from '@integration-host/shared/http/known-query'
import { callerOf, needs } from '@integration-host/shared/http/access'
import { problemResponses, textResponse, validate } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { Operations } from '../worker/operations.ts'
import { type EventStreams, MAX_WATCHERS } from './event-streams.ts'

const EventsQuery = z.object({ process: z.string().optional() })

export interface EventRouteDeps {
  readonly streams: EventStreams
  readonly operations: Operations
}

/**
 * `GET /events` streams every transition, or those of one process, as server-sent events. The `id` of an event
 * is unique and the same on every replica. With `Last-Event-ID` the stream continues after the named event, on
 * any replica, and repeats some events from just before it. The event `reset` reports that the stream cannot
 * continue there. `Version` orders the events of a run, which may come from several replicas.
 */
export function eventRoutes({ streams, operations }: EventRouteDeps) {
  return new Hono().get(
    '/',
    needs('transactions:read'),
    describeRoute({
      tags: ['events'],
      summary:
        'Every transition, or those of `process`, as server-sent events; resumes by Last-Event-ID',
      responses: {
        200: textResponse('transitions, without end', 'text/event-stream'),
        ...problemResponses({
          400: 'an unknown query parameter',
          404: 'no such process',
          503: `${MAX_WATCHERS} clients are connected already`,
        }),
      },
    }),
    onlyKnownQuery(...Object.keys(EventsQuery.shape)),
    validate('query', EventsQuery),
    (c) => {
      const { process } = c.req.valid('query')
      const caller = callerOf(c)
      caller.requireEveryRealm() // events do not name the realm
      if (process === undefined) caller.requireEveryProcess()
      else caller.requireProcess(process)
      const options = {
        process: process === undefined ? null : operations.process(process).name,
        lastId: c.req.header('Last-Event-ID') ?? null,
      }
      const headers = { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-cache' }
      return rawResponse(c, headers, (outgoing) => streams.open(outgoing, options))
    },
  )
}
