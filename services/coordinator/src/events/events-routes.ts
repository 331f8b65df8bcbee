import type { Caller } from '@integration-host/shared/access/caller'
import { rawResponse } from '@integration-host/shared/http/without-web-streams'
import { callerOf, needs } from '@integration-host/shared/http/request'
import { knownQuery, problems, textResponse } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { AppDeps } from '../core.ts'

const EventsQuery = z.object({
  process: z.string().optional(),
  coalesce: z
    .enum(['true', 'false'])
    .optional()
    .describe('`true`: about once a second, the newest transition of each run and the failures'),
})

/**
 * `GET /events` streams every transition, or only those of one process, as server-sent events. The `id` of an event is
 * unique and the same on every replica. With `Last-Event-ID`, a stream on any replica continues after the event with
 * this id, and repeats some events that preceded it. If the stream cannot continue there, the client gets the event
 * `reset`. With `coalesce=true`, transitions are collected for about a second, and only the newest transition of each
 * run and the failures are sent. `Version` orders the events of a run, because they may come from several replicas. The
 * stream ends when its key is revoked, has expired, or may no longer read these events.
 */
export function eventRoutes({ streams, runActions, keys }: AppDeps) {
  return new Hono().get(
    '/',
    needs('transactions:read'),
    describeRoute({
      operationId: 'streamEvents',
      tags: ['events'],
      summary:
        'Every transition, those of `process`, or with `coalesce` the newest ones, as server-sent events; resumes by Last-Event-ID',
      responses: {
        200: textResponse('transitions, without end', 'text/event-stream'),
        ...problems('process_not_found', 'too_many_watchers'),
      },
    }),
    knownQuery(EventsQuery),
    (c) => {
      const { process, coalesce } = c.req.valid('query')
      requireEvents(callerOf(c), process)
      const authorization = c.req.header('Authorization')
      const options = {
        caller: callerOf(c),
        process: process === undefined ? null : runActions.process(process).name,
        isCoalesced: coalesce === 'true',
        lastId: c.req.header('Last-Event-ID') ?? null,
        isStillValid: () => mayRead(keys.identify(authorization), process),
      }
      const headers = { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-cache' }
      return rawResponse(c, headers, (outgoing) => streams.open(outgoing, options))
    },
  )
}

/**
 * @throws {IntegrationError} `forbidden` if the caller may not read the events of this process, or of all processes.
 */
function requireEvents(caller: Caller, process: string | undefined): void {
  caller.requireScope('transactions:read')
  caller.requireEveryRealm() // events do not contain the realm, so the key must cover all realms
  if (process === undefined) caller.requireEveryProcess()
  else caller.requireProcess(process)
}

function mayRead(caller: Caller | null, process: string | undefined): boolean {
  if (caller === null) return false
  try {
    requireEvents(caller, process)
    return true
  } catch {
    return false
  }
}
