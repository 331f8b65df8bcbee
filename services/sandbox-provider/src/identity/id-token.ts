import type { Issued } from '../grant/grants.ts'

const ID_TOKEN_SECONDS = 3_600

/** The claims of an id token (OpenID Connect Core §2), with Intuit's `realmid`. `nowSeconds` is epoch seconds. */
export const idTokenClaims = (
  issued: Issued,
  at: { readonly issuer: string; readonly clientId: string; readonly nowSeconds: number },
): Readonly<Record<string, unknown>> => ({
  iss: at.issuer,
  sub: issued.subject,
  aud: [at.clientId],
  iat: at.nowSeconds,
  exp: at.nowSeconds + ID_TOKEN_SECONDS,
  auth_time: issued.authTime,
  realmid: issued.realm,
  ...(issued.nonce !== null && { nonce: issued.nonce }),
})

/** The claims of the userinfo endpoint, for the scopes that were granted. */
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
  ...(scope.includes('phone') && { phoneNumber: '+1 6505550100', phoneNumberVerified: false }),
})
