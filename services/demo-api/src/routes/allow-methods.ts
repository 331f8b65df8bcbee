import { IntegrationError } from '@integration-host/shared/errors'
import type { MiddlewareHandler } from 'hono'

/**
 * Responds 405 to every method that is not listed. HEAD is rejected as well: the router would run the GET route for
 * HEAD, and the GET routes of this API have effects.
 */
export function allowMethods(...methods: readonly string[]): MiddlewareHandler {
  return async (c, next) => {
    if (methods.includes(c.req.method)) return next()
    c.header('Allow', methods.join(', ')) // RFC 9110 §15.5.6
    throw new IntegrationError('method_not_allowed', `Use ${methods.join(' or ')}`)
  }
}
