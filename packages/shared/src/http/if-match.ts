import type { Context } from 'hono'
import { IntegrationError } from '../errors.ts'

/**
 * Returns the version that the header `If-Match: "<Version>"` names; `null` if the header is absent. The caller
 * executes its action only if the stored version is the same. A weak validator, a list and `*` are rejected, because
 * they name no single version.
 *
 * @throws {IntegrationError} `invalid_request` if the header has another form.
 */
export function ifMatch(c: Context): number | null {
  const header = c.req.header('If-Match')
  if (header === undefined) return null
  const version = /^"(\d{1,15})"$/.exec(header.trim())?.[1]
  if (version === undefined)
    throw new IntegrationError('invalid_request', 'If-Match must be one Version in double quotes')
  return Number(version)
}
