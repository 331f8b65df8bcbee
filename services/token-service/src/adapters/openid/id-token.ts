/**
 * Verifies id tokens (OpenID Connect Core §3.1.3.7) with jose. openid-client verifies an id token only together with the
 * token response around it, which this service reads itself.
 */
import {
  JOSEAlgNotAllowed,
  JOSENotSupported,
  JWKSMultipleMatchingKeys,
  JWKSNoMatchingKey,
  JWSSignatureVerificationFailed,
  JWTClaimValidationFailed,
  JWTExpired,
} from 'jose/errors'
import { createLocalJWKSet } from 'jose/jwks/local'
import { jwtVerify } from 'jose/jwt/verify'
import { ASYMMETRIC, type DiscoveredProvider } from './discovery.ts'

/** The claims of an id token whose signature is valid. */
export type Claims = Readonly<Record<string, unknown>>

/**
 * The error for a rejected id token. `member` is the invalid claim, the invalid header parameter or the invalid part of
 * the token: `signature`, or `form` for the format as a whole.
 */
export class InvalidIdToken extends Error {
  override readonly name = 'InvalidIdToken'
  readonly member: string
  /** The claims; empty if they are not known to be the provider's. */
  readonly claims: Claims

  constructor(member: string, claims: Claims = {}) {
    super(`the id token is not valid: ${member}`)
    this.member = member
    this.claims = claims
  }
}

export interface IdTokenChecks {
  readonly clientId: string
  /** The current time in epoch milliseconds. */
  readonly now: number
  /** Fetches the signing keys again, because the provider may have added one; `null` if they cannot be fetched. */
  readonly refetchKeys: () => Promise<DiscoveredProvider['jwks']>
}

/** The tolerated difference between the clock of the provider and the clock of this process. */
const CLOCK_TOLERANCE_SECONDS = 30

/**
 * Verifies the signature, the issuer, the audience, the expiry and the subject of an id token. Returns its claims.
 *
 * @throws {InvalidIdToken} in any other case, also if the signing keys are unavailable.
 */
export async function verifyIdToken(
  idToken: string,
  { metadata, jwks }: DiscoveredProvider,
  { clientId, now, refetchKeys }: IdTokenChecks,
): Promise<Claims> {
  const verifyWith = async (set: DiscoveredProvider['jwks']): Promise<Claims> => {
    if (set === null) throw new InvalidIdToken('signature')
    const { payload } = await jwtVerify(idToken, createLocalJWKSet({ keys: [...set.keys] }), {
      algorithms: algorithmsOf(metadata),
      issuer: metadata.issuer,
      audience: clientId,
      requiredClaims: ['exp', 'iat', 'sub'],
      clockTolerance: CLOCK_TOLERANCE_SECONDS,
      currentDate: new Date(now),
    })
    return payload
  }
  const verified = async (): Promise<Claims> => {
    try {
      return await verifyWith(jwks)
    } catch (error) {
      if (jwks !== null && !(error instanceof JWKSNoMatchingKey)) throw error
      return verifyWith(await refetchKeys())
    }
  }
  const claims = await verified().catch((error: unknown) => {
    throw rejectionOf(error)
  })
  const { sub, aud, azp } = claims
  if (typeof sub !== 'string' || sub.trim() === '') throw new InvalidIdToken('sub', claims)
  // With several audiences, the token must have been issued to this client (§3.1.3.7, 3 to 5).
  if (Array.isArray(aud) && aud.length > 1 && azp !== clientId)
    throw new InvalidIdToken(azp === undefined ? 'aud' : 'azp', claims)
  return claims
}

/** The default is that of OpenID Connect Core §3.1.3.7, 7. An algorithm with a shared secret is never accepted. */
function algorithmsOf({
  id_token_signing_alg_values_supported: listed,
}: DiscoveredProvider['metadata']) {
  return (listed ?? ['RS256']).filter((name) => ASYMMETRIC.test(name))
}

function rejectionOf(error: unknown): InvalidIdToken {
  if (error instanceof InvalidIdToken) return error
  if (error instanceof JWTClaimValidationFailed || error instanceof JWTExpired)
    return new InvalidIdToken(error.claim, error.payload)
  if (error instanceof JOSEAlgNotAllowed) return new InvalidIdToken('alg')
  if (error instanceof JOSENotSupported) return new InvalidIdToken('crit')
  const isOfSignature =
    error instanceof JWSSignatureVerificationFailed ||
    error instanceof JWKSNoMatchingKey ||
    error instanceof JWKSMultipleMatchingKeys
  return new InvalidIdToken(isOfSignature ? 'signature' : 'form')
}

/**
 * Checks the nonce of an id token (OpenID Connect Core §3.1.3.7, 11). An id token without a nonce is valid unless
 * `isRequired` (docs/adr/0017).
 *
 * @throws {InvalidIdToken} if the nonce is not `requested`, or is missing although it is required.
 */
export function checkNonce(claims: Claims, requested: string, isRequired: boolean): void {
  const { nonce } = claims
  if (nonce === undefined ? isRequired : nonce !== requested)
    throw new InvalidIdToken('nonce', claims)
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
export function checkIssuedNow(claims: Claims, now: number): void {
  const { iat } = claims
  if (typeof iat !== 'number' || Math.abs(now / 1_000 - iat) > LONGEST_AGE_SECONDS)
    throw new InvalidIdToken('iat', claims)
}

/**
 * Returns the realm in the claim `claim` of an id token; `null` if the claim is absent. The name of the claim is
 * case-insensitive, because Intuit writes `realmid` in its samples and `realmId` in its .NET SDK.
 *
 * @throws {InvalidIdToken} if the claim occurs twice with different values, or is not a string.
 */
export function realmOf(claims: Claims, claim: string): string | null {
  const values = Object.entries(claims)
    .filter(([name]) => name.toLowerCase() === claim)
    .map(([, value]) => value)
  const [realm] = values
  if (realm === undefined) return null
  // A realm id that is a JSON number is rejected, because JSON.parse rounds numbers with more digits than a double can
  // represent.
  if (typeof realm !== 'string' || values.some((value) => value !== realm))
    throw new InvalidIdToken(claim, claims)
  return realm
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
  { claims: { iat }, member }: InvalidIdToken,
  now: number,
): number | null {
  const seconds = TIMES.has(member) && typeof iat === 'number' ? Math.round(iat - now / 1_000) : 0
  return Math.abs(seconds) > SMALLEST_DIFFERENCE_SECONDS ? seconds : null
}
