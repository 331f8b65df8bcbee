import type { Context } from 'hono'
import type { NotDone } from '../transaction/transaction-queue.ts'

/** The text answer to a call that the coordinator did not take: 503 when trying again can help, else 502. */
export function notDone(c: Context, what: string, outcome: NotDone): Response {
  if (outcome.kind === 'refused') return c.text(`${what}: the coordinator refused the call`, 502)
  c.header('Retry-After', String(Math.max(1, outcome.retryAfterSeconds)))
  return c.text(`${what}: the coordinator is not available`, 503)
}

/** `number` in a route's description. */
export const NUMBER_PARAMETER = {
  name: 'number',
  in: 'query' as const,
  required: true,
  description: '1 to 128 characters, no control characters',
  schema: { type: 'string' as const, minLength: 1, maxLength: 128 },
}
