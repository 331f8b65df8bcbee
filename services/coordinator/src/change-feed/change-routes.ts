import { ChangesView } from '@integration-host/shared/contracts/company'
import { Realm } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import { needs, onlyKnownQuery } from '@integration-host/shared/http/request'
import { responses, validate } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { AppDeps } from '../core.ts'

/** `GET /realms/{realm}/changes`: how far the change feed of a company was read. */
export const changesRoutes = ({ changeCursors }: AppDeps) =>
  new Hono().get(
    '/:realm/changes',
    needs('transactions:read'),
    describeRoute({
      operationId: 'getChanges',
      tags: ['schedules'],
      summary: 'How far the change feed of a company was read',
      responses: responses(ChangesView, 'change_feed_not_found'),
    }),
    validate('param', z.object({ realm: Realm })),
    onlyKnownQuery(),
    async (c) => {
      const { realm } = c.req.valid('param')
      const cursor = await changeCursors.changeCursor(realm)
      if (cursor === null)
        throw new IntegrationError(
          'change_feed_not_found',
          `the change feed of ${realm} is not read: no process has on, or the company is not connected`,
        )
      const view: ChangesView = {
        Realm: cursor.realm,
        ReadUntil: cursor.position,
        LagSeconds: cursor.lagMs / 1_000,
        SweptAt: cursor.sweptAt,
        Events: cursor.events,
        Incomplete: cursor.incomplete,
      }
      return c.json(view)
    },
  )
