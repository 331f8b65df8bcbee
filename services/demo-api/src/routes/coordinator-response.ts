import type { Context } from 'hono'
import type { NotDone } from '../adapters/coordinator/transaction-queue.ts'

/**
 * Returns the text response for a request that the coordinator did not accept. The status is 503 if a retry may
 * succeed, and 502 otherwise.
 */
export function notDone(c: Context, what: string, outcome: NotDone): Response {
  if (outcome.kind === 'rejected')
    return c.text(`${what}: the coordinator rejected the request`, 502)
  c.header('Retry-After', String(Math.max(1, outcome.retryAfterSeconds)))
  return c.text(`${what}: the coordinator is not available`, 503)
}

/** Describes the query parameter `number` for the OpenAPI document. */
export const NUMBER_PARAMETER = {
  name: 'number',
  in: 'query' as const,
  required: true,
  description: '1 to 128 characters, no control characters',
  schema: { type: 'string' as const, minLength: 1, maxLength: 128 },
}
