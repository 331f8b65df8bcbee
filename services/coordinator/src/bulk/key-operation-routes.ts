import type { Caller } from '@integration-host/shared/access/caller'
import { KeyId } from '@integration-host/shared/access/key-list'
import { OpenOperations } from '@integration-host/shared/contracts/operations'
import { hasCode } from '@integration-host/shared/errors'
import { callerOf, needs, onlyKnownQuery } from '@integration-host/shared/http/request'
import { responses, validate } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { createFactory } from 'hono/factory'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { KEY_ENDED, keyEnded } from './bulk-operation.ts'
import type { AppDeps } from '../core.ts'

/** `/keys/{id}/open`: the bulk operations of a key that have not ended, for the revocation of the key. */
export function keyOperationRoutes({ bulkOperations }: AppDeps) {
  const route = (
    operationId: string,
    summary: string,
    change: (
      operationId: string,
      keyId: string,
      caller: Caller,
    ) => Promise<unknown> = async () => {},
  ) =>
    createFactory().createHandlers(
      needs('transactions:operate'),
      describeRoute({
        operationId,
        tags: ['operations'],
        summary,
        responses: responses(OpenOperations),
      }),
      validate('param', z.object({ id: KeyId })),
      onlyKnownQuery(),
      async (c) => {
        const caller = callerOf(c)
        caller.requireEveryRealm()
        caller.requireEveryProcess()
        const { id } = c.req.valid('param')
        const open = await bulkOperations.openOperations(id)
        for (const operation of open) await change(operation, id, caller)
        return c.json({ Operations: open.length } satisfies z.output<typeof OpenOperations>)
      },
    )
  return new Hono()
    .get(
      '/:id/open',
      ...route('countOperationsOfKey', 'How many bulk operations of a key are not over'),
    )
    .delete(
      '/:id/open',
      ...route('stopOperationsOfKey', 'Stop the bulk operations of a key', (id, keyId, by) =>
        bulkOperations
          .stopOperation(id, { by, reason: keyEnded(keyId) }, KEY_ENDED)
          .catch((error: unknown) => {
            // The operation has ended meanwhile.
            if (!hasCode(error, 'operation_not_running')) throw error
          }),
      ),
    )
    .post(
      '/:id/open/keep',
      ...route(
        'keepOperationsOfKey',
        'Make the bulk operations of a key independent of the key',
        (id) => bulkOperations.keepOperation(id),
      ),
    )
}
