import { RunFilter } from '@integration-host/shared/contracts/run-filter'
import { IntegrationError } from '@integration-host/shared/errors'
import { callerOf, needs } from '@integration-host/shared/http/access'
import { onlyKnownQuery } from '@integration-host/shared/http/known-query'
import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import { parseJsonAs } from '@integration-host/shared/json'
import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { type RunOrder, runOrders, type RunPosition } from '../transaction/run-search.ts'
import type { TransactionSource } from '../transaction/transaction-source.ts'
import type { Operations } from '../worker/operations.ts'
import { ProcessParam, RunPage } from './contracts.ts'

export interface RunSearchRouteDeps {
  readonly operations: Operations
  readonly source: TransactionSource
}

const SearchQuery = z.strictObject({
  ...RunFilter.shape,
  order: z.enum(runOrders).default('created').meta({
    description: 'by CreatedAt, or by the time of the last change; newest first',
  }),
  limit: z
    .string()
    .regex(/^\d{1,3}$/, 'must be a whole number')
    .transform(Number)
    .pipe(z.number().min(1).max(500))
    .default(50),
  cursor: z
    .string()
    .max(4_000)
    .optional()
    .meta({ description: 'next_cursor of the previous page, which has the same order' }),
})
type SearchQuery = z.output<typeof SearchQuery>

const described = (notFound: object) =>
  describeRoute({
    tags: ['transactions'],
    summary: 'Find runs, newest first',
    description: [
      'A repeated parameter finds runs with any of its values; of several tags, runs that have all.',
      'A page examines a bounded number of runs: it may have fewer than `limit`, or none, although more follow.',
      'There are more as long as `next_cursor` is not null.',
    ].join(' '),
    responses: {
      200: jsonResponse('a page', RunPage),
      ...problemResponses({ 400: 'invalid', 503: 'the store is unavailable', ...notFound }),
    },
  })
const onlySearchQuery = onlyKnownQuery(...Object.keys(SearchQuery.shape))

/** `GET /transactions`: the runs of all processes that the key may see. */
export function runSearchRoutes({ source }: RunSearchRouteDeps) {
  return new Hono().get(
    '/',
    needs('transactions:read'),
    described({}),
    onlySearchQuery,
    validate('query', SearchQuery),
    async (c) => c.json(await readPage(c, source, null, c.req.valid('query'))),
  )
}

/** `GET /processes/{process}/transactions`, also of a process that is not loaded. */
export function processRunSearchRoutes({ operations, source }: RunSearchRouteDeps) {
  return new Hono().get(
    '/',
    needs('transactions:read'),
    described({ 404: 'no such process' }),
    validate('param', ProcessParam),
    onlySearchQuery,
    validate('query', SearchQuery),
    async (c) => {
      const { process } = c.req.valid('param')
      await operations.requireKnown(process)
      return c.json(await readPage(c, source, process, c.req.valid('query')))
    },
  )
}

async function readPage(
  c: Context,
  source: RunSearchRouteDeps['source'],
  process: string | null,
  { order, limit, cursor, ...filter }: SearchQuery,
): Promise<RunPage> {
  const { realms, processes } = callerOf(c)
  const visible = { realms, processes }
  const after = cursor === undefined ? null : positionOf(cursor, order)
  const { runs, next } = await source.search({ process, filter, order, visible, after, limit })
  return { items: [...runs], next_cursor: next === null ? null : cursorOf(next, order) }
}

/** Text that PostgreSQL can compare. A run that another program has inserted may have any other id. */
const StoredText = z.string().refine((text) => text.isWellFormed() && !text.includes('\0'))
const Position = z.tuple([
  z.enum(runOrders),
  z.string().regex(/^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d(:?\d\d)?)$/),
  StoredText,
  StoredText,
  z.int().min(0).max(2_147_483_647),
])

const cursorOf = ({ at, Process, TransactionID, ReplayID }: RunPosition, order: RunOrder): string =>
  Buffer.from(JSON.stringify([order, at, Process, TransactionID, ReplayID])).toString('base64url')

/** @throws {IntegrationError} `invalid_request` if the cursor is not one of a list with this order. */
function positionOf(cursor: string, order: RunOrder): RunPosition {
  const position = parseJsonAs(Position, Buffer.from(cursor, 'base64url').toString('utf8'))
  if (position === null || position[0] !== order || Number.isNaN(Date.parse(position[1])))
    throw new IntegrationError(
      'invalid_request',
      'cursor: must be the next_cursor of a previous page with the same order',
    )
  const [, at, Process, TransactionID, ReplayID] = position
  return { at, Process, TransactionID, ReplayID }
}
