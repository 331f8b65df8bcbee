import type { MiddlewareHandler } from 'hono'
import { IntegrationError } from '../errors.ts'

/**
 * The maximum length of a parameter's name in an error text. Longer names are truncated, because a client can send a
 * name of any length.
 */
const MAX_SHOWN = 64

/**
 * Rejects a request that has a query parameter other than `names`. The response is 400 `invalid_request` with the
 * parameter's name, never its value. Without this check, a caller with the misspelled parameter `?limt=10` would get
 * the default limit without noticing.
 *
 * Do not use this check for paths whose query a third party writes: an OAuth client must ignore unrecognized parameters
 * of an authorization response (RFC 6749 §4.1.2).
 */
export function onlyKnownQuery(...names: readonly string[]): MiddlewareHandler {
  const known = new Set(names)
  const allowed = names.length === 0 ? 'none is allowed here' : `allowed: ${names.join(', ')}`
  return async (c, next) => {
    // Most requests have no query and skip the check. Parsing the URL of every request made token issuance 7 to 10 %
    // slower.
    if (!c.req.url.includes('?')) return next()
    const unknown = Object.keys(c.req.queries()).filter((name) => !known.has(name))
    if (unknown.length > 0) {
      const problems = unknown
        .slice(0, 10)
        .map((name) => `${name.slice(0, MAX_SHOWN)}: is not a query parameter of this path`)
      throw new IntegrationError('invalid_request', `${problems.join('; ')} (${allowed})`, {
        members: { errors: problems },
      })
    }
    await next()
  }
}
