import { problemOf } from '@integration-host/shared/http/problem'
import { type ErrorResponses, textResponse } from '@integration-host/shared/http/service-app'
import type { Context } from 'hono'
import type { ContentfulStatusCode } from 'hono/utils/http-status'

/** Error responses in plain text, which the contract of this API fixes. Every other service returns problem documents. */
export const TEXT_ERRORS: ErrorResponses = {
  respond(c: Context, error: unknown): Response {
    const { status, title, detail } = problemOf(error)
    return c.text(detail ?? title, status as ContentfulStatusCode)
  },
  content: { 'text/plain': { schema: { type: 'string' } } },
}

/** Returns the OpenAPI `responses` of plain-text responses by status. */
export const textResponses = (statuses: Readonly<Record<number, string>>) =>
  Object.fromEntries(
    Object.entries(statuses).map(([status, description]) => [
      status,
      textResponse(description, 'text/plain'),
    ]),
  )
