/** The documented behaviour of the providers: the texts of the report, and the values that its checks compare. */
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'

/** `section` is the section of docs/intuit.md that says where the provider documents the behaviour. */
const documented = (section: string, intuit: string, generic = intuit) => ({
  section,
  intuit,
  generic,
})

export const checks = {
  'provider host': documented(
    'Discovery',
    'developer.api.intuit.com or its alias developer.intuit.com',
    'any',
  ),
  'discovery document': documented(
    'Discovery',
    'twelve members with known values and no others',
    'the members that OpenID Connect Discovery §3 requires',
  ),
  'signing keys': documented('Discovery', 'RSA keys with a kid'),
  'accounting address': documented(
    'Discovery',
    'follows from userinfo_endpoint, which alone differs between sandbox and production',
    'ACCOUNTING_URL, or accounting_url in the discovery document',
  ),
  'key pair': documented(
    'Token endpoint',
    'a made-up code is rejected with 400 invalid_grant, not with invalid_client',
  ),
  callback: documented(
    'Authorization',
    'code, state and, with an accounting scope, realmId',
    'code, state and realmId; iss where the discovery document promises it',
  ),
  'code exchange': documented(
    'Token endpoint',
    '200, access token of 3600 s, refresh token, both expiry members, id token with openid',
    '200, access token, refresh token, id token with openid',
  ),
  signature: documented('ID token', 'RS256 by a key of the key set'),
  issuer: documented('ID token', 'the issuer of the discovery document'),
  audience: documented(
    'ID token',
    'an array that contains the client id',
    'the client id, alone or in an array',
  ),
  'realm claim': documented(
    'ID token',
    'realmid; sources disagree whether it is always present',
    'optional; if present, the company of the callback',
  ),
  auth_time: documented('ID token', 'a number', 'optional'),
  nonce: documented('ID token', 'is not repeated', 'is repeated (OpenID Connect Core §3.1.3.7)'),
  'id token times': documented(
    'ID token',
    'issued now, valid for 3600 s',
    'issued now, not expired',
  ),
  'refresh token value': documented(
    'Rotation',
    'stays the same for about 24 hours',
    'may change at any refresh',
  ),
  'id token on refresh': documented('Rotation', 'optional; if present, its signature is valid'),
  'expiry members': documented(
    'Rotation',
    'x_refresh_token_expires_in about 100 days, x_refresh_token_hard_expires_in up to 5 years',
    'optional',
  ),
  query: documented('Accounting API', '200 with one CompanyInfo'),
  create: documented('Idempotency', '200 with an Id'),
  'create again': documented(
    'Idempotency',
    'the same requestid returns the first response again',
    'the same key returns the first response again',
  ),
  'make inactive': documented('Idempotency', '200, the customer is inactive'),
  'changed access token': documented(
    'Error bodies',
    '401, code 3200, as JSON with a lower-case fault or as XML',
    '401',
  ),
  'previous refresh token': documented(
    'Rotation',
    'sources disagree: rejected with invalid_grant, or accepted for 24 hours',
    'rejected with invalid_grant, or accepted for a grace period',
  ),
  revocation: documented('Revocation', '200 for a JSON body', '200 for a form'),
  'second revocation': documented('Revocation', '400 with an empty body', '200 (RFC 7009 §2.2)'),
  'refresh after revocation': documented('Revocation', '400 invalid_grant'),
  'limit headers': documented(
    'Limits',
    'none documented; Retry-After was seen with 429',
    'optional',
  ),
}
export type Check = keyof typeof checks

/** The host of the production accounting API. Calls to it need --production, because they change real books. */
export const PRODUCTION_ACCOUNTING_HOST = 'quickbooks.api.intuit.com'

/** The addresses at which Intuit documents its discovery document. */
const INTUIT_HOSTS: readonly string[] = ['developer.api.intuit.com', 'developer.intuit.com']

/** Returns whether a member of the discovery document is as documented. A stand-in has other hosts, but the same paths. */
type Expected = (value: unknown, isStandIn: boolean) => boolean

const isAddress = (value: unknown): value is string =>
  typeof value === 'string' && URL.canParse(value)
const pathOf = (url: string): string => new URL(url).pathname
const url =
  (...known: readonly string[]): Expected =>
  (value, isStandIn) =>
    isAddress(value) &&
    known.some((one) => (isStandIn ? pathOf(value) === pathOf(one) : value === one))
const includes =
  (...values: readonly string[]): Expected =>
  (value) =>
    Array.isArray(value) && values.every((one) => value.includes(one))
/** The list has these values in any order, and no others. */
const list =
  (...values: readonly string[]): Expected =>
  (value, isStandIn) =>
    includes(...values)(value, isStandIn) && (value as unknown[]).length === values.length

const INTUIT_MEMBERS: Readonly<Record<string, Expected>> = {
  issuer: url('https://oauth.platform.intuit.com/op/v1'),
  authorization_endpoint: url('https://appcenter.intuit.com/connect/oauth2'),
  token_endpoint: url('https://oauth.platform.intuit.com/oauth2/v1/tokens/bearer'),
  userinfo_endpoint: url(
    'https://sandbox-accounts.platform.intuit.com/v1/openid_connect/userinfo',
    'https://accounts.platform.intuit.com/v1/openid_connect/userinfo',
  ),
  revocation_endpoint: url('https://developer.api.intuit.com/v2/oauth2/tokens/revoke'),
  jwks_uri: url('https://oauth.platform.intuit.com/op/v1/jwks'),
  response_types_supported: list('code'),
  subject_types_supported: list('public'),
  id_token_signing_alg_values_supported: list('RS256'),
  scopes_supported: list('openid', 'email', 'profile', 'address', 'phone'),
  token_endpoint_auth_methods_supported: list('client_secret_post', 'client_secret_basic'),
  claims_supported: list('aud', 'exp', 'iat', 'iss', 'realmid', 'sub'),
}
const GENERIC_MEMBERS: Readonly<Record<string, Expected>> = {
  issuer: isAddress,
  authorization_endpoint: isAddress,
  token_endpoint: isAddress,
  jwks_uri: isAddress,
  response_types_supported: includes('code'),
  subject_types_supported: includes(),
  id_token_signing_alg_values_supported: includes('RS256'),
}

/** Returns the values with which the checks compare the responses. `null` means that the value is not compared. */
export function expectationsOf({ name }: ProviderProfile) {
  const isIntuit = name === 'intuit'
  return {
    words: isIntuit ? ('intuit' as const) : ('generic' as const),
    discovery: {
      hosts: isIntuit ? INTUIT_HOSTS : null,
      members: isIntuit ? INTUIT_MEMBERS : GENERIC_MEMBERS,
      /** Whether an undocumented member counts as a difference. */
      isComplete: isIntuit,
    },
    accessTokenSeconds: isIntuit ? 3_600 : null,
    hasExpiryMembers: isIntuit,
    isAudienceArray: isIntuit,
    hasAuthTime: isIntuit,
    idTokenSeconds: isIntuit ? 3_600 : null,
    isNonceRepeated: !isIntuit,
    mayRefreshTokenChange: !isIntuit,
    /** The error code in the body of a 401; `null` accepts any code. */
    rejectedTokenCode: isIntuit ? '3200' : null,
    isSecondRevocationRejected: isIntuit,
    hasLimitHeaders: !isIntuit,
  }
}
export type Expectations = ReturnType<typeof expectationsOf>
