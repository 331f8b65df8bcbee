import { TransactionID } from '@integration-host/shared/contracts/transaction'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { readParameters } from './parameters.ts'
import { textResponses } from './text-response.ts'
import type { TransactionQueue } from '../adapters/coordinator/transaction-queue.ts'
import { notDone, NUMBER_PARAMETER } from './coordinator-response.ts'

const Parameters = z.object({ number: TransactionID })

/**
 * `GET` or `POST /replay?number=` → 200 text `Replay started for <number>`. Responds 400 with a text if the transaction
 * does not exist or is still running.
 */
export function replayRoutes(deps: { readonly transactions: TransactionQueue }) {
  return new Hono().on(
    ['GET', 'POST'],
    '/replay',
    describeRoute({
      operationId: ({ method }) => (method === 'POST' ? 'replayOrder' : 'replayOrderFromLink'),
      tags: ['demo'],
      summary: 'Run a finished transaction again, with the same initial data',
      parameters: [NUMBER_PARAMETER],
      responses: textResponses({
        200: 'Replay started for <number>',
        400: 'the number is missing, invalid, unknown or still running',
        502: 'the coordinator rejected the request',
        503: 'the coordinator is unavailable',
      }),
    }),
    async (c) => {
      const { number } = await readParameters(c, Parameters)
      const outcome = await deps.transactions.replay(number)
      switch (outcome.kind) {
        case 'started':
          return c.text(`Replay started for ${number}`)
        case 'unknown':
          return c.text(`Couldn't replay ${number}: there is no such transaction`, 400)
        case 'active':
          return c.text(`Couldn't replay ${number}: it is still running`, 400)
        case 'unavailable':
        case 'rejected':
          return notDone(c, `Couldn't replay ${number}`, outcome)
      }
    },
  )
}
