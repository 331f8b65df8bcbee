/** What the service reads from an id token beside the checks of openid-client. Verifies nothing itself. */
import { parseJson } from '@integration-host/shared/json'

/** The claims of an id token as written; empty if it cannot be read. The signature is not verified here. */
export function claimsOf(idToken: string | undefined): Readonly<Record<string, unknown>> {
  const payload = Buffer.from(idToken?.split('.')[1] ?? '', 'base64url').toString('utf8')
  const claims = parseJson(payload)
  return typeof claims === 'object' && claims !== null ? (claims as Record<string, unknown>) : {}
}

/** An id token is rejected; `member` is the claim, header parameter or part that is wrong. */
class InvalidIdToken extends Error {
  override readonly name = 'InvalidIdToken'
  readonly member: string

  constructor(member: string, options?: ErrorOptions) {
    super(`the id token is not valid: ${member}`, options)
    this.member = member
  }
}

/**
 * The company that an id token names under `claim`, compared without case: Intuit's samples say `realmid`,
 * its .NET SDK reads `realmId`. `null` if it names none.
 *
 * @throws {InvalidIdToken} the claim is there twice with different values, or is not a string.
 */
export function realmOf(claims: Readonly<Record<string, unknown>>, claim: string): string | null {
  const values = Object.entries(claims)
    .filter(([name]) => name.toLowerCase() === claim)
    .map(([, value]) => value)
  const [realm] = values
  if (realm === undefined) return null
  // A number has lost digits by now: realm ids are longer than a double can hold.
  if (typeof realm !== 'string' || values.some((value) => value !== realm))
    throw new InvalidIdToken(claim)
  return realm
}

/** An id token is issued for the code it comes with, so both are of the same minutes. */
const LONGEST_AGE_SECONDS = 600

/** @throws {InvalidIdToken} `iat` is more than ten minutes away from `now` (OpenID Connect Core §3.1.3.7, 10). */
export function checkIssuedNow(claims: Readonly<Record<string, unknown>>, now: number): void {
  const { iat } = claims
  if (typeof iat !== 'number' || Math.abs(now / 1_000 - iat) > LONGEST_AGE_SECONDS)
    throw new InvalidIdToken('iat')
}

/**
 * The member of the id token that openid-client rejected. Its messages name it in quotes; an error without
 * one is about the signature or about the form of the token as a whole.
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
