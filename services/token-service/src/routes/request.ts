/** Parts of requests that several routes have. */
import type { MiddlewareHandler } from 'hono'
import { uniqueSymbol } from 'hono-openapi'
import { z } from 'zod'
import { IntegrationError } from '@integration-host/shared/errors'
import { problems } from '@integration-host/shared/http/service-app'

const rejectOthers: MiddlewareHandler = async (c, next) => {
  const length = c.req.header('content-length')
  const hasBody =
    (length !== undefined && length !== '0') || c.req.header('transfer-encoding') !== undefined
  const type = c.req.header('content-type') ?? ''
  if (hasBody && !/^application\/json\s*(;\s*charset="?utf-8"?\s*)?$/i.test(type)) {
    throw new IntegrationError('unsupported_media_type', 'send application/json')
  }
  await next()
}

/**
 * Rejects a body whose Content-Type is not JSON with 415, because the validator that runs later would treat it as
 * empty. The status is added to the OpenAPI description of the route.
 */
export const requireJson = Object.assign(rejectOthers, {
  [uniqueSymbol]: { spec: { responses: problems('unsupported_media_type') } },
})

/** Returns the schema of a query parameter that is a whole number in decimal digits. */
export const wholeNumber = (least: number, most: number) =>
  z
    .string()
    .regex(/^\d{1,15}$/, 'must be a whole number')
    .transform(Number)
    .pipe(z.number().min(least, `must be at least ${least}`).max(most, `must be at most ${most}`))
