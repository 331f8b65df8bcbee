import { problemOf } from '@integration-host/shared/problem'
import type { Context } from 'hono'
import type { ContentfulStatusCode } from 'hono/utils/http-status'

/** Answers an error in text: this API's contract, where every other service answers problem documents. */
export function textResponse(c: Context, error: unknown): Response {
  const { status, title, detail } = problemOf(error)
  return c.text(detail ?? title, status as ContentfulStatusCode)
}

/** The text answers of a route's description. */
export const textResponses = (statuses: Readonly<Record<number, string>>) =>
  Object.fromEntries(
    Object.entries(statuses).map(([status, description]) => [
      status,
      { description, content: { 'text/plain': { schema: { type: 'string' as const } } } },
    ]),
  )
