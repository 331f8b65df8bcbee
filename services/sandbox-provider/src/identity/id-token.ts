import type { Issued } from '../grant/grants.ts'

const ID_TOKEN_SECONDS = 3_600

/**
 * Returns the claims of an id token (OpenID Connect Core §2) as in Intuit's samples: `aud` is an array, the name
 * `realmid` is in lower case, and `auth_time` is present although `claims_supported` does not list it. Intuit does not
 * document whether a client must request `realmid` with the parameter `claims`. This provider always sends it.
 *
 * @param at `nowSeconds` is the time in epoch seconds
 */
export const idTokenClaims = (
  issued: Issued,
  at: { readonly issuer: string; readonly clientId: string; readonly nowSeconds: number },
): Readonly<Record<string, unknown>> => ({
  sub: issued.subject,
  aud: [at.clientId],
  ...(issued.realm !== null && { realmid: issued.realm }),
  auth_time: issued.authTime,
  iss: at.issuer,
  exp: at.nowSeconds + ID_TOKEN_SECONDS,
  iat: at.nowSeconds,
  ...(issued.nonce !== null && { nonce: issued.nonce }),
})

/** Returns the claims of the userinfo response for the granted scopes, under Intuit's names. */
export const userInfo = (
  subject: string,
  scope: readonly string[],
): Readonly<Record<string, unknown>> => ({
  sub: subject,
  ...(scope.includes('email') && {
    email: `${subject.slice(0, 8)}@sandbox.example`,
    emailVerified: true,
  }),
  ...(scope.includes('profile') && { givenName: 'Sam', familyName: 'Sandbox' }),
  ...(scope.includes('address') && {
    address: {
      streetAddress: '2500 Garcia Ave',
      locality: 'Mountain View',
      region: 'CA',
      postalCode: '94043',
      country: 'US',
    },
  }),
  ...(scope.includes('phone') && { phoneNumber: '+1 6505550100', phoneNumberVerified: false }),
})

/** Signs id tokens; `jwks` is the key set with the public key. */
export interface IdentitySigner {
  readonly jwks: { readonly keys: readonly Readonly<Record<string, unknown>>[] }
  /** Returns a JWT in compact form, signed with RS256. The claims contain `iat` and `exp` in epoch seconds. */
  sign(claims: Readonly<Record<string, unknown>>): Promise<string>
}
