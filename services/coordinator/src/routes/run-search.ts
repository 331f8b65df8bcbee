import { RunFilter } from '@integration-host/shared/contracts/run-filter'
import type { ErrorCode } from '@integration-host/shared/errors'
import { callerOf, needs } from '@integration-host/shared/http/request'
import { knownQuery, responses, validate } from '@integration-host/shared/http/service-app'
import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { runOrders, type RunPosition } from '../run/run-search.ts'
import { pageLimit, ProcessParam, RunPage } from './contracts.ts'
import { CursorParam } from './sealed-cursors.ts'
import type { AppDeps } from '../core.ts'

const SearchQuery = z.strictObject({
  ...RunFilter.shape,
  order: z.enum(runOrders).default('created').meta({
    description: 'by CreatedAt, or by the time of the last change; newest first',
  }),
  limit: pageLimit(500),
  cursor: CursorParam.optional().meta({
    description: 'next_cursor of the previous page, which has the same order',
  }),
})
type SearchQuery = z.output<typeof SearchQuery>

const described = (operationId: string, ...codes: ErrorCode[]) =>
  describeRoute({
    operationId,
    tags: ['transactions'],
    summary: 'Find runs, newest first',
    description: [
      'A repeated parameter finds runs with any of its values; of several tags, runs that have all.',
      'A page examines a bounded number of runs: it may have fewer than `limit`, or none, although more follow.',
      'There are more as long as `next_cursor` is not null.',
    ].join(' '),
    responses: responses(RunPage, ...codes),
  })

/** `GET /transactions`: the runs of all processes that the key may see. */
export function runSearchRoutes(deps: AppDeps) {
  return new Hono().get(
    '/',
    needs('transactions:read'),
    described('listTransactions'),
    knownQuery(SearchQuery),
    async (c) => c.json(await readPage(c, deps, null, c.req.valid('query'))),
  )
}

/**
 * `GET /processes/{process}/transactions`: the runs of one process, whether or not the process is
 * loaded.
 */
export function processRunSearchRoutes(deps: AppDeps) {
  return new Hono().get(
    '/',
    needs('transactions:read'),
    described('listTransactionsOfProcess', 'process_not_found'),
    validate('param', ProcessParam),
    knownQuery(SearchQuery),
    async (c) => {
      const { process } = c.req.valid('param')
      await deps.runActions.requireKnown(process)
      return c.json(await readPage(c, deps, process, c.req.valid('query')))
    },
  )
}

async function readPage(
  c: Context,
  { source, cursors }: AppDeps,
  process: string | null,
  { order, limit, cursor, ...filter }: SearchQuery,
): Promise<RunPage> {
  const caller = callerOf(c)
  for (const realm of filter.realm ?? []) caller.requireRealm(realm)
  const visible = { realms: caller.realms, processes: caller.processes }
  const list = `runs by ${order}`
  const after = cursor === undefined ? null : cursors.open(list, cursor, Position)
  const { runs, next } = await source.search({ process, filter, order, visible, after, limit })
  return { items: [...runs], next_cursor: next === null ? null : cursors.seal(list, next) }
}

const Position = z.object({
  at: z.string(),
  Process: z.string(),
  TransactionID: z.string(),
  ReplayID: z.int(),
}) satisfies z.ZodType<RunPosition>
