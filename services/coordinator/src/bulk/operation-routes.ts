import {
  OperationDetail,
  OperationPage,
  OperationView,
  StartOperation,
  TakenObjectPage,
} from '@integration-host/shared/contracts/operations'
import type { Caller } from '@integration-host/shared/access/caller'
import type { ErrorCode } from '@integration-host/shared/errors'
import { callerOf, needs, onlyKnownQuery } from '@integration-host/shared/http/request'
import { knownQuery, responses, validate } from '@integration-host/shared/http/service-app'
import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { Act } from '../run/action.ts'
import { type OperationPosition, type OperationSummary, processOf } from './bulk-operation.ts'
import { operationNotFound } from '../run/errors.ts'
import { requireStepOf } from '../worker/run-actions.ts'
import { TAKE_BACK } from '../take-back/take-back-process.ts'
import { action, type ActionRequest, picked } from '../routes/act.ts'
import { pageLimit } from '../routes/contracts.ts'
import { CursorParam } from '../routes/sealed-cursors.ts'
import type { AppDeps } from '../core.ts'

const WITHOUT_REQUEST = {
  ID: true,
  Process: true,
  Status: true,
  StatusReason: true,
  CreatedAt: true,
  UpdatedAt: true,
  FinishedAt: true,
} as const

/** The response of a request that has stopped or continued an operation. */
const ChangedOperation = z.union([
  OperationView,
  OperationView.pick(WITHOUT_REQUEST).meta({
    ref: 'OperationWithoutRequest',
    description:
      'The operation for a key without `transactions:read`, because another key may have made its request.',
  }),
])

const IdParam = z.object({ id: z.string().min(1).max(64) })
const Position = z.object({
  createdAt: z.string(),
  id: z.string(),
}) satisfies z.ZodType<OperationPosition>
const OperationsQuery = z.object({
  limit: pageLimit(200),
  cursor: CursorParam.optional(),
})

/** A position in the list of the runs that take back. */
const RunPosition = z.object({
  Process: z.string(),
  TransactionID: z.string(),
  ReplayID: z.int(),
  at: z.string(),
})

const tags = ['operations']

/** `/operations`: bulk operations, each of which performs one action on many runs in the background. */
export function operationRoutes({
  bulkOperations,
  runActions,
  operationRunner,
  takeBack,
  cursors,
}: AppDeps) {
  /**
   * Returns an operation if the caller may see it. An operation contains a list of failed runs, which may belong to any
   * realm of the key that started the operation. Therefore the caller's key must cover these realms too.
   */
  const visibleTo = async (c: Context, id: string): Promise<OperationSummary> => {
    const operation = await bulkOperations.operation(id)
    if (operation === null) throw operationNotFound()
    const caller = callerOf(c)
    caller.requireProcess(processOf(operation))
    for (const realm of operation.Request.Realms) caller.requireRealm(realm)
    return operation
  }
  const change = (
    apply: (id: string, act: Act) => Promise<OperationSummary>,
    ifNotPossible: ErrorCode,
  ) => ({
    tags,
    param: IdParam,
    unversioned: 'an operation',
    success: ChangedOperation,
    problems: ['operation_not_found', ifNotPossible] satisfies ErrorCode[],
    async apply({ c, caller, param: { id }, act }: ActionRequest<typeof IdParam>) {
      await visibleTo(c, id)
      const operation = await apply(id, act)
      operationRunner.hint()
      return c.json(changedView(caller, operation))
    },
  })
  return new Hono()
    .post(
      '/',
      needs('transactions:operate'),
      describeRoute({
        operationId: 'createOperation',
        tags,
        summary: 'Resume, cancel, replay, retry or take back many runs, at most `PerSecond`',
        description:
          'The runs are those of `Filter`, or the latest ones of the transactions `Ids`. With `Filter`, the operation ' +
          'goes once through the runs that exist when it starts, newest first, and acts on those that match when their ' +
          'turn comes and are the latest of their transaction. It acts only on runs that the key may use. `take-back` deletes ' +
          'what all runs of the transaction have created in the books, and leaves what was changed since: ' +
          '`GET /operations/{id}/objects` lists both.',
        responses: responses(
          { 202: OperationView },
          'process_not_found',
          'step_not_found',
          'too_many_operations',
        ),
      }),
      onlyKnownQuery(),
      validate('json', StartOperation),
      async (c) => {
        const { Action, Process, DryRun, Reason: reason, Ids, ...request } = c.req.valid('json')
        const caller = callerOf(c)
        caller.requireProcess(Process)
        // Cancelling and taking back need no process definition, so they are possible for a process that is not loaded.
        // The other actions need the definition.
        if (Action === 'cancel' || Action === 'take-back') await runActions.requireKnown(Process)
        else runActions.process(Process)
        const isTakeBack = Action === 'take-back'
        if (isTakeBack) await takeBack.load()
        const { FromStep } = request
        if (FromStep !== undefined) requireStepOf(runActions.process(Process), FromStep)
        for (const realm of request.Filter?.realm ?? []) caller.requireRealm(realm)
        const { Request, ...operation } = await bulkOperations.startOperation(
          crypto.randomUUID(),
          {
            Action,
            Process: isTakeBack ? TAKE_BACK : Process,
            DryRun,
            Request: {
              ...(isTakeBack && { Of: Process }),
              ...request,
              Ids: Ids && [...new Set(Ids)],
              Realms: caller.realms,
            },
          },
          { by: caller, reason },
        )
        operationRunner.hint()
        const summary = { ...Request, IdCount: Request.Ids?.length ?? null }
        return c.json(viewOf({ ...operation, Request: summary }), 202)
      },
    )
    .get(
      '/',
      needs('transactions:read'),
      describeRoute({
        operationId: 'listOperations',
        tags,
        summary: 'Bulk operations, newest first',
        description:
          'A page may have fewer operations than `limit`; there are more as long as `next_cursor` is not null.',
        responses: responses(OperationPage),
      }),
      knownQuery(OperationsQuery),
      async (c) => {
        const { limit, cursor } = c.req.valid('query')
        const after =
          cursor === undefined ? undefined : cursors.open('operations', cursor, Position)
        const page = await bulkOperations.operations({ limit, after })
        const caller = callerOf(c)
        const visible = page.operations.filter(
          (operation) =>
            caller.mayUseProcess(processOf(operation)) &&
            operation.Request.Realms.every((realm) => caller.mayUseRealm(realm)),
        )
        return c.json({
          items: visible.map(viewOf),
          next_cursor: page.next === null ? null : cursors.seal('operations', page.next),
        })
      },
    )
    .get(
      '/:id',
      needs('transactions:read'),
      describeRoute({
        operationId: 'getOperation',
        tags,
        summary: 'How far a bulk operation has come, and which runs failed',
        responses: responses(OperationDetail, 'operation_not_found'),
      }),
      validate('param', IdParam),
      onlyKnownQuery(),
      async (c) => {
        const operation = await visibleTo(c, c.req.valid('param').id)
        const { Failures, Matches } = operation.Progress
        return c.json({ ...viewOf(operation), Failures, Matches })
      },
    )
    .get(
      '/:id/objects',
      needs('transactions:read'),
      describeRoute({
        operationId: 'listOperationObjects',
        tags,
        summary: 'What an operation with the action take-back has done with each object',
        description:
          'While the operation or its runs go on, further objects may come. A page may have fewer objects than `limit`.',
        responses: responses(TakenObjectPage, 'operation_not_found'),
      }),
      validate('param', IdParam),
      knownQuery(OperationsQuery),
      async (c) => {
        const { id } = c.req.valid('param')
        const { limit, cursor } = c.req.valid('query')
        await visibleTo(c, id)
        const after = cursor === undefined ? null : cursors.open('objects', cursor, RunPosition)
        const { items, next } = await takeBack.objects(id, { after, limit })
        return c.json({
          items,
          next_cursor: next === null ? null : cursors.seal('objects', next),
        })
      },
    )
    .post(
      '/:id/stop',
      ...action({
        operationId: 'stopOperation',
        summary: 'Stop a bulk operation for good',
        description: 'The batch in flight, a fifth of a second of runs, is completed.',
        ...change((id, act) => bulkOperations.stopOperation(id, act), 'operation_not_running'),
      }),
    )
    .post(
      '/:id/continue',
      ...action({
        operationId: 'continueOperation',
        summary:
          'Continue a paused bulk operation; the runs whose failures paused it are tried again',
        ...change((id, act) => bulkOperations.continueOperation(id, act), 'operation_not_paused'),
      }),
    )
}

const changedView = (
  caller: Caller,
  operation: OperationSummary,
): z.output<typeof ChangedOperation> =>
  caller.has('transactions:read') ? viewOf(operation) : picked(operation, WITHOUT_REQUEST)

const viewOf = ({ Request, Progress, ...operation }: OperationSummary): OperationView => {
  const { Done, Skipped, FailedByCode } = Progress
  return {
    ...operation,
    Process: Request.Of ?? operation.Process,
    Filter: Request.Filter ?? null,
    IdCount: Request.IdCount,
    FromStep: Request.FromStep ?? null,
    PerSecond: Request.PerSecond,
    Done,
    Skipped,
    Failed: Object.values(FailedByCode).reduce((sum, count) => sum + count, 0),
    FailedByCode,
  }
}
