import { ActionPage } from '@integration-host/shared/contracts/operations'
import { TransactionID } from '@integration-host/shared/contracts/transaction'
import { callerOf, needs } from '@integration-host/shared/http/request'
import { knownQuery, responses } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { type Action, readActions } from '../run/action.ts'
import { pageLimit } from './contracts.ts'
import { readVisible } from './visible-page.ts'
import type { AppDeps } from '../core.ts'

const ActionsQuery = z.object({
  process: z.string().min(1).max(200).optional(),
  id: TransactionID.optional(),
  before: z
    .string()
    .regex(/^[1-9]\d{0,14}$/, 'must be the ID of an action')
    .transform(Number)
    .optional(),
  limit: pageLimit(500),
})

/** `GET /actions`: the action log, newest first. */
export function actionRoutes({ source }: AppDeps) {
  return new Hono().get(
    '/',
    needs('audit:read'),
    describeRoute({
      operationId: 'listActions',
      tags: ['operations'],
      summary:
        'Who queued, replayed, resumed, cancelled, erased or paused what, and why; newest first',
      description:
        'A page may have fewer actions than `limit`; there are more as long as `next_before` is not null.',
      responses: responses(ActionPage),
    }),
    knownQuery(ActionsQuery),
    async (c) => {
      const { process, id, before, limit } = c.req.valid('query')
      const caller = callerOf(c)
      if (process !== undefined) caller.requireProcess(process)
      // A key that is bound to companies cannot read the pauses of processes, because a pause concerns all companies,
      // and its reason may mention a company to which the key is not bound.
      const maySee = ({ Process, TransactionID: run, Realm }: Action): boolean =>
        caller.mayUseProcess(Process) &&
        (run === null && Realm === null ? !caller.isBoundToRealms : caller.mayUse(Realm))
      const { items, next } = await readVisible(
        (range) => readActions(source, { process, transactionId: id, ...range }),
        { before, limit },
        maySee,
        ({ ID }) => ID,
      )
      return c.json({ items, next_before: next })
    },
  )
}
