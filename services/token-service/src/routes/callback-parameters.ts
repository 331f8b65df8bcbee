/** Reads the parameters of the provider's redirect (RFC 6749 §4.1.2), to which the provider adds `realmId`. */
import type { Context } from 'hono'
import { z } from 'zod'
import { Realm } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import type { Callback } from '../authorization/authorization-request.ts'

/** An authorization code, which consists of visible ASCII characters (RFC 6749 appendix A.11). */
export const Code = z.string().regex(/^[\x21-\x7e]{1,2048}$/, 'must be 1-2048 visible characters')

/**
 * Reads the callback from the query of a request. `browser` is the value of the authorization cookie; `null` if there
 * is none. `network` is the network of the browser.
 *
 * @throws {IntegrationError} `invalid_request`, `authorization_denied`, `authorization_invalid`
 */
export function readCallback(c: Context, browser: string | null, network: string): Callback {
  const state = single(
    c,
    ['state'],
    z.string().regex(/^[\x20-\x7e]{1,2048}$/, 'is not a state that this service issued'),
  )
  const error = single(c, ['error'], z.string().regex(/^[\x20-\x7e]{1,256}$/, 'must be printable'))
  // RFC 6749 §4.1.2.1 requires the state in an error response, but Intuit does not document that it sends the state.
  if (state === null && error !== null)
    throw new IntegrationError(
      'authorization_denied',
      'the provider reports that the authorization was not granted; nothing was stored',
    )
  if (state === null)
    throw new IntegrationError('authorization_invalid', 'the callback has no state')
  return {
    state,
    code: single(c, ['code', 'Code'], Code),
    realm: realmParameter(c),
    error: error === null || /^[a-z_]{1,64}$/.test(error) ? error : 'unknown_error',
    issuer: single(c, ['iss'], z.string().max(2048)),
    browser,
    network,
  }
}

/**
 * Returns the realm in a query; `null` if it is absent. The name of the parameter is read without case, because Intuit's
 * documents write `realmId`, `realmid` and `RealmID`.
 *
 * @throws {IntegrationError} `invalid_request` if the query has several realms, or an unusable one.
 */
export function realmParameter(c: Context): string | null {
  const spellings = Object.keys(c.req.queries()).filter((name) => name.toLowerCase() === 'realmid')
  return single(c, ['realmId', ...spellings.filter((name) => name !== 'realmId')], Realm)
}

/**
 * Returns a query parameter that has one of several names; `null` if it is absent or empty.
 *
 * @throws {IntegrationError} `invalid_request` if the request has more than one parameter with one of these names, or
 * if the value does not match the schema.
 */
export function single(
  c: Context,
  names: readonly string[],
  schema: z.ZodType<string>,
): string | null {
  const all = names.flatMap((name) => c.req.queries(name) ?? [])
  const [value] = all
  const label = names[0] ?? ''
  if (all.length < 2 && (value === undefined || value === '')) return null
  const parsed = schema.safeParse(value)
  const problem = all.length > 1 ? 'occurs more than once' : parsed.error?.issues[0]?.message
  if (problem !== undefined) throw new IntegrationError('invalid_request', `${label}: ${problem}`)
  return value ?? null
}
