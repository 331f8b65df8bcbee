import {
  OperationDetail,
  OperationPage,
  OperationView,
} from '@integration-host/shared/contracts/operation'
import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { ServiceClient } from '../adapters/peers/service-client.ts'
import { bulkChanges, BulkList, BulkObjects, BulkView, StartBulk } from '../contracts/bulk.ts'
import { ReasonBody } from '../contracts/processes.ts'
import type { Sessions } from '../session/sessions.ts'
import { changesNothing, needsRole, sessionOf } from './browser-guard.ts'
import { ACTION_PROBLEMS, PEER_PROBLEMS } from './peer-problems.ts'

export interface BulkRouteDeps {
  readonly sessions: Sessions
  readonly isHttps: boolean
  readonly coordinator: ServiceClient
}

/** The largest body of `POST /api/bulk`: 1,000 ids of 128 characters. */
export const MAX_BULK_BYTES = 1_048_576
const ROWS = 50
/** The number of objects of a page. */
const OBJECTS = 100
/** The coordinator needs a reason for every operation, and lists it in the action log. */
const COUNT_REASON = 'counted before a bulk action'

const IdParam = z.object({ id: z.string().min(1).max(64) })
const ObjectsQuery = z.strictObject({ cursor: z.string().max(2_000).optional() })
const ChangeParam = IdParam.extend({ change: z.enum(bulkChanges) })

/**
 * The routes of actions on many runs. The coordinator first counts the runs of an action, and then executes the action.
 */
export function bulkRoutes({ sessions, isHttps, coordinator }: BulkRouteDeps): Hono {
  const tags = ['bulk']
  const viewer = needsRole(sessions, 'viewer', isHttps)
  const operator = needsRole(sessions, 'operator', isHttps)
  const person = (c: Context): { readonly person: string } => ({ person: sessionOf(c).user })
  const read = (c: Context, id: string): Promise<OperationDetail> =>
    coordinator.send(`/operations/${encodeURIComponent(id)}`, person(c), OperationDetail)

  return new Hono()
    .get(
      '/bulk',
      viewer,
      describeRoute({
        operationId: 'listBulk',
        tags,
        summary: 'The newest actions on many runs',
        responses: { 200: jsonResponse('the list', BulkList), ...problemResponses(PEER_PROBLEMS) },
      }),
      async (c) => {
        const path = `/operations?limit=${ROWS}`
        const { items } = await coordinator.send(path, person(c), OperationPage)
        return c.json({ Operations: items.filter(({ DryRun }) => !DryRun) } satisfies BulkList)
      },
    )
    .post(
      '/bulk',
      operator,
      describeRoute({
        operationId: 'startBulk',
        tags,
        summary: 'Counts the runs that an action would change, or begins the action',
        description:
          'A filter without `until` gets the time of the request, and the response contains it. So a person who sends ' +
          'the filter of the count acts on no run that was queued after the count.',
        responses: {
          202: jsonResponse('the coordinator works on it', OperationView),
          ...problemResponses(ACTION_PROBLEMS),
        },
      }),
      validate('json', StartBulk),
      async (c) => {
        const { Filter, Reason, ...body } = c.req.valid('json')
        if (body.DryRun) changesNothing(c)
        const request = {
          ...person(c),
          method: 'POST',
          body: {
            ...body,
            Reason: Reason ?? COUNT_REASON,
            ...(Filter !== undefined && { Filter: { until: new Date().toISOString(), ...Filter } }),
          },
        } as const
        return c.json(await coordinator.send('/operations', request, OperationView), 202)
      },
    )
    .get(
      '/bulk/:id',
      viewer,
      describeRoute({
        operationId: 'getBulk',
        tags,
        summary: 'How far an action on many runs is, and which runs failed',
        responses: {
          200: jsonResponse('the action', BulkView),
          ...problemResponses(PEER_PROBLEMS),
        },
      }),
      validate('param', IdParam),
      async (c) => {
        const { Matches: _matches, ...operation } = await read(c, c.req.valid('param').id)
        return c.json(operation satisfies BulkView)
      },
    )
    .get(
      '/bulk/:id/objects',
      viewer,
      describeRoute({
        operationId: 'listBulkObjects',
        tags,
        summary: 'What becomes of each object that an action takes back',
        responses: {
          200: jsonResponse('a page of the objects', BulkObjects),
          ...problemResponses(PEER_PROBLEMS),
        },
      }),
      validate('param', IdParam),
      validate('query', ObjectsQuery),
      async (c) => {
        const { cursor } = c.req.valid('query')
        const query = new URLSearchParams({ limit: String(OBJECTS), ...(cursor && { cursor }) })
        const path = `/operations/${encodeURIComponent(c.req.valid('param').id)}/objects?${query.toString()}`
        return c.json(await coordinator.send(path, person(c), BulkObjects))
      },
    )
    .get(
      '/bulk/:id/file',
      viewer,
      describeRoute({
        operationId: 'downloadBulk',
        tags,
        summary: 'The action, and then each run that failed, as a file of JSON lines',
        responses: {
          200: {
            description: 'the file',
            content: { 'application/x-ndjson': { schema: { type: 'string' } } },
          },
          ...problemResponses(PEER_PROBLEMS),
        },
      }),
      validate('param', IdParam),
      async (c) => {
        const operation = await read(c, c.req.valid('param').id)
        const { Matches: _matches, Failures, ...summary } = operation
        const lines = [summary, ...Failures].map((line) => `${JSON.stringify(line)}\n`)
        return c.body(lines.join(''), 200, {
          'Content-Type': 'application/x-ndjson',
          // The coordinator has generated this id, so it needs no further check.
          'Content-Disposition': `attachment; filename="bulk-${encodeURIComponent(summary.ID)}.ndjson"`,
        })
      },
    )
    .post(
      '/bulk/:id/:change',
      operator,
      describeRoute({
        operationId: 'changeBulk',
        tags,
        summary: 'Stops an action for good, or continues one that has paused',
        responses: {
          200: jsonResponse('the action', OperationView),
          ...problemResponses(ACTION_PROBLEMS),
        },
      }),
      validate('param', ChangeParam),
      validate('json', ReasonBody),
      async (c) => {
        const { id, change } = c.req.valid('param')
        const request = { ...person(c), method: 'POST', body: c.req.valid('json') } as const
        const path = `/operations/${encodeURIComponent(id)}/${change}`
        return c.json(await coordinator.send(path, request, OperationView))
      },
    )
}
