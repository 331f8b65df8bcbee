import { problemOf } from '@integration-host/shared/http/problem'
import { type ErrorResponses, textResponse } from '@integration-host/shared/http/service-app'
import type { Context } from 'hono'
import type { ContentfulStatusCode } from 'hono/utils/http-status'

/**
 * Sends error responses in plain text, as the contract of this API requires. All other services send problem documents.
 */
export const TEXT_ERRORS: ErrorResponses = {
  respond(c: Context, error: unknown): Response {
    const { status, title, detail } = problemOf(error)
    return c.text(detail ?? title, status as ContentfulStatusCode)
  },
  content: { 'text/plain': { schema: { type: 'string' } } },
}

/**
 * Returns the OpenAPI `responses` object for plain-text responses. `statuses` contains the description of each status.
 */
export const textResponses = (statuses: Readonly<Record<number, string>>) =>
  Object.fromEntries(
    Object.entries(statuses).map(([status, description]) => [
      status,
      textResponse(description, 'text/plain'),
    ]),
  )
