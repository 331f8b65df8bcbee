import { ActionPage } from '@integration-host/shared/contracts/action'
import { TransactionID } from '@integration-host/shared/contracts/transaction'
import { callerOf, needs } from '@integration-host/shared/http/access'
import { onlyKnownQuery } from '@integration-host/shared/http/known-query'
import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { Action } from '../transaction/action.ts'
import type { TransactionSource } from '../transaction/transaction-source.ts'

const ActionsQuery = z.object({
  process: z.string().min(1).max(200).optional(),
  id: TransactionID.optional(),
  before: z
    .string()
    .regex(/^[1-9]\d{0,14}$/, 'must be the ID of an action')
    .transform(Number)
    .optional(),
  limit: z
    .string()
    .regex(/^\d{1,3}$/, 'must be a whole number')
    .transform(Number)
    .pipe(z.number().min(1).max(500))
    .default(50),
})

/**
 * The number of entries that are read for one page at most. If the key of the caller may see only some of the entries,
 * the page may have fewer than `limit` of them, although more follow.
 */
const MAX_READ = 10_000
const MIN_BATCH = 200

export interface ActionRouteDeps {
  readonly source: TransactionSource
}

/** `GET /actions`: the action log, newest first. */
export function actionRoutes({ source }: ActionRouteDeps) {
  return new Hono().get(
    '/',
    needs('audit:read'),
    describeRoute({
      tags: ['operations'],
      summary:
        'Who queued, replayed, resumed, cancelled, erased or paused what, and why; newest first',
      description:
        'A page may have fewer actions than `limit`; there are more as long as `next_before` is not null.',
      responses: {
        200: jsonResponse('a page', ActionPage),
        ...problemResponses({ 400: 'invalid', 503: 'the store is unavailable' }),
      },
    }),
    onlyKnownQuery(...Object.keys(ActionsQuery.shape)),
    validate('query', ActionsQuery),
    async (c) => {
      const { process, id, before, limit } = c.req.valid('query')
      const caller = callerOf(c)
      if (process !== undefined) caller.requireProcess(process)
      // The pause of a process concerns all companies, and its reason may be about another one.
      const maySee = ({ Process, TransactionID: run, Realm }: Action): boolean =>
        caller.mayUseProcess(Process) &&
        (run === null ? !caller.isBoundToRealms : caller.mayUse(Realm))
      const filter = { process, transactionId: id }
      return c.json(await readPage(source, { ...filter, before, limit }, maySee))
    },
  )
}

/** Reads batches until the page is full, the log ends, or `MAX_READ` entries were read. */
async function readPage(
  source: ActionRouteDeps['source'],
  { limit, ...filter }: Parameters<TransactionSource['actions']>[0],
  maySee: (action: Action) => boolean,
): Promise<ActionPage> {
  const items: Action[] = []
  let { before } = filter
  const size = Math.max(limit + 1, MIN_BATCH)
  for (let read = 0; read < MAX_READ;) {
    const batch = await source.actions({ ...filter, before, limit: size })
    for (const action of batch) {
      if (items.length === limit) return { items, next_before: before ?? null }
      if (maySee(action)) items.push(action)
      before = action.ID
    }
    if (batch.length < size) return { items, next_before: null }
    read += batch.length
  }
  return { items, next_before: before ?? null }
}
