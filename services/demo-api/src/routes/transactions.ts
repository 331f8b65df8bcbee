import { TransactionID } from '@integration-host/shared/contracts/transaction'
import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { NotDone, TransactionQueue } from '../adapters/coordinator/transaction-queue.ts'
import { readParameters } from './parameters.ts'
import { textResponses } from './text-response.ts'

const Parameters = z.object({ number: TransactionID })
const METHODS = ['GET', 'POST']

const described = (
  operationId: string,
  summary: string,
  statuses: Readonly<Record<number, string>>,
) =>
  describeRoute({
    operationId: ({ method }) => (method === 'POST' ? operationId : `${operationId}FromLink`),
    tags: ['demo'],
    summary,
    parameters: [
      {
        name: 'number',
        in: 'query',
        required: true,
        description: '1 to 128 characters, no control characters',
        schema: { type: 'string', minLength: 1, maxLength: 128 },
      },
    ],
    responses: textResponses({
      ...statuses,
      502: 'the coordinator rejected the request',
      503: 'the coordinator is unavailable',
    }),
  })

/**
 * `GET` or `POST /queue?number=` → 200 text `Enqueued <number>`, also if the number was queued before.
 *
 * `GET` or `POST /replay?number=` → 200 text `Replay started for <number>`; 400 with a text if the transaction does not
 * exist or is still running.
 */
export function transactionRoutes({ transactions }: { readonly transactions: TransactionQueue }) {
  return new Hono()
    .on(
      METHODS,
      '/queue',
      described('queueOrder', 'Queue a transaction; the number is its id and its initial data', {
        200: 'Enqueued <number>; also if the number was queued before',
        400: 'the number is missing or invalid',
        409: 'a transaction with this number has other data',
      }),
      async (c) => {
        const { number } = await readParameters(c, Parameters)
        const outcome = await transactions.queue(number)
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
    .on(
      METHODS,
      '/replay',
      described('replayOrder', 'Run a finished transaction again, with the same initial data', {
        200: 'Replay started for <number>',
        400: 'the number is missing, invalid, unknown or still running',
      }),
      async (c) => {
        const { number } = await readParameters(c, Parameters)
        const outcome = await transactions.replay(number)
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

/**
 * Returns the text response for a request that the coordinator did not accept. The status is 503 if a retry may
 * succeed, and 502 otherwise.
 */
function notDone(c: Context, what: string, outcome: NotDone): Response {
  if (outcome.kind === 'rejected')
    return c.text(`${what}: the coordinator rejected the request`, 502)
  c.header('Retry-After', String(Math.max(1, outcome.retryAfterSeconds)))
  return c.text(`${what}: the coordinator is not available`, 503)
}
