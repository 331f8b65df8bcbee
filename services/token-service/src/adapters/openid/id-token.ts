/**
 * Reads claims of an id token for checks that openid-client does not make. The functions in this file do not verify the
 * signature, so callers use their results only after openid-client has verified the signature.
 */
import { parseJson } from '@integration-host/shared/json'

/** Returns the claims of an id token without verifying its signature; an empty object if it cannot be parsed. */
export function claimsOf(idToken: string | undefined): Readonly<Record<string, unknown>> {
  const payload = Buffer.from(idToken?.split('.')[1] ?? '', 'base64url').toString('utf8')
  const claims = parseJson(payload)
  return typeof claims === 'object' && claims !== null ? (claims as Record<string, unknown>) : {}
}

/**
 * The error for a rejected id token. `member` is the invalid claim, the invalid header parameter or the invalid part of
 * the token.
 */
class InvalidIdToken extends Error {
  override readonly name = 'InvalidIdToken'
  readonly member: string

  constructor(member: string, options?: ErrorOptions) {
    super(`the id token is not valid: ${member}`, options)
    this.member = member
  }
}

/**
 * Returns the realm in the claim `claim` of an id token; `null` if the claim is absent. The name of the claim is
 * case-insensitive, because Intuit writes `realmid` in its samples and `realmId` in its .NET SDK.
 *
 * @throws {InvalidIdToken} if the claim occurs twice with different values, or is not a string.
 */
export function realmOf(claims: Readonly<Record<string, unknown>>, claim: string): string | null {
  const values = Object.entries(claims)
    .filter(([name]) => name.toLowerCase() === claim)
    .map(([, value]) => value)
  const [realm] = values
  if (realm === undefined) return null
  // A realm id that is a JSON number is rejected, because JSON.parse rounds numbers with more digits than a double can
  // represent.
  if (typeof realm !== 'string' || values.some((value) => value !== realm))
    throw new InvalidIdToken(claim)
  return realm
}

/**
 * The maximum difference between the `iat` of an id token and the current time. It is small, because the provider
 * issues the id token during the code exchange.
 */
const LONGEST_AGE_SECONDS = 600

/**
 * Checks when an id token was issued (OpenID Connect Core §3.1.3.7, 10).
 *
 * @throws {InvalidIdToken} if its `iat` is more than ten minutes before or after `now`.
 */
export function checkIssuedNow(claims: Readonly<Record<string, unknown>>, now: number): void {
  const { iat } = claims
  if (typeof iat !== 'number' || Math.abs(now / 1_000 - iat) > LONGEST_AGE_SECONDS)
    throw new InvalidIdToken('iat')
}

/**
 * Checks that an id token names its subject (OpenID Connect Core §2).
 *
 * @throws {InvalidIdToken} if `sub` is missing, is not a string or is blank.
 */
export function checkSubject({ sub }: Readonly<Record<string, unknown>>): void {
  if (typeof sub !== 'string' || sub.trim() === '') throw new InvalidIdToken('sub')
}

/** The claims that are compared with the clock. */
const TIMES = new Set(['iat', 'exp', 'nbf'])
/** A smaller difference is the time of the request, or is tolerated. */
const SMALLEST_DIFFERENCE_SECONDS = 30

/**
 * Returns by how many seconds the clock of the provider is ahead of `now`, measured by the `iat` of an id token that was
 * issued just now; `null` if the clocks do not explain why `member` is invalid.
 */
export function clockDifference(
  { iat }: Readonly<Record<string, unknown>>,
  member: string,
  now: number,
): number | null {
  const seconds = TIMES.has(member) && typeof iat === 'number' ? Math.round(iat - now / 1_000) : 0
  return Math.abs(seconds) > SMALLEST_DIFFERENCE_SECONDS ? seconds : null
}

/**
 * Returns which part of an id token openid-client has rejected. The error messages of openid-client name an invalid
 * claim in quotes. An error without such a name concerns the signature (`signature`) or the format of the token
 * (`form`).
 */
export function rejectedMember(error: unknown): string {
  if (error instanceof InvalidIdToken) return error.member
  const messages: string[] = []
  for (let at = error; at instanceof Error && messages.length < 5; at = at.cause)
    messages.push(at.message)
  for (const message of messages) {
    const member = /"(?:response" body ")?([a-z_]{2,20})"/.exec(message)?.[1]
    if (member !== undefined) return member
  }
  return messages.some((message) => /signature|applicable keys|ambiguous/i.test(message))
    ? 'signature'
    : 'form'
}
