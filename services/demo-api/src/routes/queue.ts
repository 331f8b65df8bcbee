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
 * `GET` or `POST /queue?number=` → 200 text `Enqueued <number>`. The response is the same if the number was queued
 * before.
 */
export function queueRoutes(deps: { readonly transactions: TransactionQueue }) {
  return new Hono().on(
    ['GET', 'POST'],
    '/queue',
    describeRoute({
      operationId: ({ method }) => (method === 'POST' ? 'queueOrder' : 'queueOrderFromLink'),
      tags: ['demo'],
      summary: 'Queue a transaction; the number is its id and its initial data',
      parameters: [NUMBER_PARAMETER],
      responses: textResponses({
        200: 'Enqueued <number>; also if the number was queued before',
        400: 'the number is missing or invalid',
        409: 'a transaction with this number has other data',
        502: 'the coordinator rejected the request',
        503: 'the coordinator is unavailable',
      }),
    }),
    async (c) => {
      const { number } = await readParameters(c, Parameters)
      const outcome = await deps.transactions.queue(number)
      switch (outcome.kind) {
        case 'queued':
          return c.text(`Enqueued ${number}`)
        case 'conflict':
          return c.text(`Couldn't enqueue ${number}: it is queued with other data`, 409)
        case 'unavailable':
        case 'rejected':
          return notDone(c, `Couldn't enqueue ${number}`, outcome)
      }
    },
  )
}
