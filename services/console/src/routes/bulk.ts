import { withQuery } from '../isomorphic/pages.ts'
import {
  OperationDetail,
  OperationPage,
  OperationView,
  TakenObjectPage,
} from '@integration-host/shared/contracts/operations'
import type { Hono } from 'hono'
import { z } from 'zod'
import { bulkChanges, BulkList, BulkObjects, BulkView, StartBulk } from '../contracts/bulk.ts'
import { ReasonBody } from '../contracts/processes.ts'
import { changesNothing } from './browser-guard.ts'
import { guardedRoutes, type Person, type RouteDeps } from './guarded-route.ts'

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
export function bulkRoutes(deps: RouteDeps): Hono {
  const { coordinator, companyNames } = deps
  const { act, read, routes } = guardedRoutes(deps, 'bulk')
  const operationOf = (by: Person, id: string): Promise<OperationDetail> =>
    coordinator.send(`/operations/${encodeURIComponent(id)}`, by, OperationDetail)

  read('/bulk', {
    operationId: 'listBulk',
    summary: 'The newest actions on many runs',
    view: ['the list', BulkList],
    async respond({ by }) {
      const path = `/operations?limit=${ROWS}`
      const { items } = await coordinator.send(path, by, OperationPage)
      return { Operations: items.filter(({ DryRun }) => !DryRun) } satisfies BulkList
    },
  })
  act('/bulk', {
    operationId: 'startBulk',
    summary: 'Counts the runs that an action would change, or begins the action',
    description:
      'A filter without `until` gets the time of the request, and the response contains it. So a person who sends ' +
      'the filter of the count acts on no run that was queued after the count.',
    body: StartBulk,
    view: ['the coordinator works on it', OperationView, 202],
    async respond({ c, by, body: { Filter, Reason, ...body } }) {
      if (body.DryRun) changesNothing(c)
      const request = {
        ...by,
        method: 'POST',
        body: {
          ...body,
          Reason: Reason ?? COUNT_REASON,
          ...(Filter !== undefined && {
            Filter: { until: new Date().toISOString(), ...Filter },
          }),
        },
      } as const
      return await coordinator.send('/operations', request, OperationView)
    },
  })
  read('/bulk/:id', {
    operationId: 'getBulk',
    summary: 'How far an action on many runs is, and which runs failed',
    param: IdParam,
    view: ['the action', BulkView],
    async respond({ by, param }) {
      const { Matches: _matches, ...operation } = await operationOf(by, param.id)
      return operation satisfies BulkView
    },
  })
  read('/bulk/:id/objects', {
    operationId: 'listBulkObjects',
    summary: 'What becomes of each object that an action takes back',
    param: IdParam,
    query: ObjectsQuery,
    view: ['a page of the objects', BulkObjects],
    async respond({ by, param, query: { cursor } }) {
      const path = `/operations/${encodeURIComponent(param.id)}/objects`
      const page = await coordinator.send(
        withQuery(path, { limit: OBJECTS, cursor: cursor || undefined }),
        by,
        TakenObjectPage,
      )
      const names = await companyNames.of(page.items.map(({ Realm }) => Realm))
      return { ...page, Companies: names } satisfies BulkObjects
    },
  })
  read('/bulk/:id/file', {
    operationId: 'downloadBulk',
    summary: 'The action, and then each run that failed, as a file of JSON lines',
    param: IdParam,
    responses: {
      200: {
        description: 'the file',
        content: { 'application/x-ndjson': { schema: { type: 'string' } } },
      },
    },
    async respond({ c, by, param }) {
      const operation = await operationOf(by, param.id)
      const { Matches: _matches, Failures, ...summary } = operation
      const lines = [summary, ...Failures].map((line) => `${JSON.stringify(line)}\n`)
      return c.body(lines.join(''), 200, {
        'Content-Type': 'application/x-ndjson',
        // The coordinator has generated this id, so it needs no further check.
        'Content-Disposition': `attachment; filename="bulk-${encodeURIComponent(summary.ID)}.ndjson"`,
      })
    },
  })
  act('/bulk/:id/:change', {
    operationId: 'changeBulk',
    summary: 'Stops an action for good, or continues one that has paused',
    param: ChangeParam,
    body: ReasonBody,
    view: ['the action', OperationView],
    async respond({ by, param: { id, change }, body }) {
      const request = { ...by, method: 'POST', body } as const
      const path = `/operations/${encodeURIComponent(id)}/${change}`
      return await coordinator.send(path, request, OperationView)
    },
  })
  return routes
}
