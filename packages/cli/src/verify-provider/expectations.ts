/**
 * The documented behaviour of the providers. For each check this file has the texts of the report and the values that
 * the check compares with the responses. `section` is the section of docs/intuit.md that says where the provider
 * documents the behaviour.
 */
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'

export const checks = {
  'provider host': {
    section: 'Discovery',
    intuit: 'developer.api.intuit.com or its alias developer.intuit.com',
    generic: 'any',
  },
  'discovery document': {
    section: 'Discovery',
    intuit: 'twelve members with known values and no others',
    generic: 'the members that OpenID Connect Discovery §3 requires',
  },
  'signing keys': {
    section: 'Discovery',
    intuit: 'RSA keys with a kid',
    generic: 'RSA keys with a kid',
  },
  'accounting address': {
    section: 'Discovery',
    intuit: 'follows from userinfo_endpoint, which alone differs between sandbox and production',
    generic: 'ACCOUNTING_URL, or accounting_url in the discovery document',
  },
  'key pair': {
    section: 'Token endpoint',
    intuit: 'a made-up code is rejected with 400 invalid_grant, not with invalid_client',
    generic: 'a made-up code is rejected with 400 invalid_grant, not with invalid_client',
  },
  callback: {
    section: 'Authorization',
    intuit: 'code, state and, with an accounting scope, realmId',
    generic: 'code, state and realmId; iss where the discovery document promises it',
  },
  'code exchange': {
    section: 'Token endpoint',
    intuit: '200, access token of 3600 s, refresh token, both expiry members, id token with openid',
    generic: '200, access token, refresh token, id token with openid',
  },
  signature: {
    section: 'ID token',
    intuit: 'RS256 by a key of the key set',
    generic: 'RS256 by a key of the key set',
  },
  issuer: {
    section: 'ID token',
    intuit: 'the issuer of the discovery document',
    generic: 'the issuer of the discovery document',
  },
  audience: {
    section: 'ID token',
    intuit: 'an array that contains the client id',
    generic: 'the client id, alone or in an array',
  },
  'realm claim': {
    section: 'ID token',
    intuit: 'realmid; sources disagree whether it is always present',
    generic: 'optional; if present, the company of the callback',
  },
  auth_time: { section: 'ID token', intuit: 'a number', generic: 'optional' },
  nonce: {
    section: 'ID token',
    intuit: 'is not repeated',
    generic: 'is repeated (OpenID Connect Core §3.1.3.7)',
  },
  'id token times': {
    section: 'ID token',
    intuit: 'issued now, valid for 3600 s',
    generic: 'issued now, not expired',
  },
  'refresh token value': {
    section: 'Rotation',
    intuit: 'stays the same for about 24 hours',
    generic: 'may change at any refresh',
  },
  'id token on refresh': {
    section: 'Rotation',
    intuit: 'optional; if present, its signature is valid',
    generic: 'optional; if present, its signature is valid',
  },
  'expiry members': {
    section: 'Rotation',
    intuit:
      'x_refresh_token_expires_in about 100 days, x_refresh_token_hard_expires_in up to 5 years',
    generic: 'optional',
  },
  query: {
    section: 'Accounting API',
    intuit: '200 with one CompanyInfo',
    generic: '200 with one CompanyInfo',
  },
  create: {
    section: 'Idempotency',
    intuit: '200 with an Id',
    generic: '200 with an Id',
  },
  'create again': {
    section: 'Idempotency',
    intuit: 'the same requestid returns the first response again',
    generic: 'the same key returns the first response again',
  },
  'make inactive': {
    section: 'Idempotency',
    intuit: '200, the customer is inactive',
    generic: '200, the customer is inactive',
  },
  'changed access token': {
    section: 'Error bodies',
    intuit: '401, code 3200, as JSON with a lower-case fault or as XML',
    generic: '401',
  },
  'previous refresh token': {
    section: 'Rotation',
    intuit: 'sources disagree: rejected with invalid_grant, or accepted for 24 hours',
    generic: 'rejected with invalid_grant, or accepted for a grace period',
  },
  revocation: { section: 'Revocation', intuit: '200 for a JSON body', generic: '200 for a form' },
  'second revocation': {
    section: 'Revocation',
    intuit: '400 with an empty body',
    generic: '200 (RFC 7009 §2.2)',
  },
  'refresh after revocation': {
    section: 'Revocation',
    intuit: '400 invalid_grant',
    generic: '400 invalid_grant',
  },
  'limit headers': {
    section: 'Limits',
    intuit: 'none documented; Retry-After was seen with 429',
    generic: 'optional',
  },
} as const satisfies Readonly<
  Record<string, { readonly section: string; readonly intuit: string; readonly generic: string }>
>
export type Check = keyof typeof checks

/**
 * The host of the production accounting API. Calls to this host need --production, because they change the data of
 * real companies.
 */
export const PRODUCTION_ACCOUNTING_HOST = 'quickbooks.api.intuit.com'

/** The values with which the checks compare the responses. `null` means that the value is not compared. */
export interface Expectations {
  readonly words: 'intuit' | 'generic'
  readonly discovery: {
    /** The documented addresses of the discovery document; `null` accepts any address. */
    readonly hosts: readonly string[] | null
    readonly members: Readonly<Record<string, ExpectedMember>>
    /** Whether an undocumented member counts as a difference. */
    readonly isComplete: boolean
  }
  readonly accessTokenSeconds: number | null
  readonly hasExpiryMembers: boolean
  readonly isAudienceArray: boolean
  readonly hasAuthTime: boolean
  readonly idTokenSeconds: number | null
  readonly isNonceRepeated: boolean
  readonly mayRefreshTokenChange: boolean
  /** The error code in the body of a 401; `null` accepts any code. */
  readonly rejectedTokenCode: string | null
  readonly hasLimitHeaders: boolean
}

export type ExpectedMember =
  /** The member of the discovery document must be one of these addresses. */
  | { readonly url: readonly string[] }
  /** The member of the discovery document must have exactly these values, in any order. */
  | { readonly list: readonly string[] }
  /** The member of the discovery document must have at least these values. */
  | { readonly includes: readonly string[] }
  | 'any address'

const intuit: Expectations = {
  words: 'intuit',
  discovery: {
    hosts: ['developer.api.intuit.com', 'developer.intuit.com'],
    members: {
      issuer: { url: ['https://oauth.platform.intuit.com/op/v1'] },
      authorization_endpoint: { url: ['https://appcenter.intuit.com/connect/oauth2'] },
      token_endpoint: { url: ['https://oauth.platform.intuit.com/oauth2/v1/tokens/bearer'] },
      userinfo_endpoint: {
        url: [
          'https://sandbox-accounts.platform.intuit.com/v1/openid_connect/userinfo',
          'https://accounts.platform.intuit.com/v1/openid_connect/userinfo',
        ],
      },
      revocation_endpoint: { url: ['https://developer.api.intuit.com/v2/oauth2/tokens/revoke'] },
      jwks_uri: { url: ['https://oauth.platform.intuit.com/op/v1/jwks'] },
      response_types_supported: { list: ['code'] },
      subject_types_supported: { list: ['public'] },
      id_token_signing_alg_values_supported: { list: ['RS256'] },
      scopes_supported: { list: ['openid', 'email', 'profile', 'address', 'phone'] },
      token_endpoint_auth_methods_supported: {
        list: ['client_secret_post', 'client_secret_basic'],
      },
      claims_supported: { list: ['aud', 'exp', 'iat', 'iss', 'realmid', 'sub'] },
    },
    isComplete: true,
  },
  accessTokenSeconds: 3_600,
  hasExpiryMembers: true,
  isAudienceArray: true,
  hasAuthTime: true,
  idTokenSeconds: 3_600,
  isNonceRepeated: false,
  mayRefreshTokenChange: false,
  rejectedTokenCode: '3200',
  hasLimitHeaders: false,
}

const generic: Expectations = {
  words: 'generic',
  discovery: {
    hosts: null,
    members: {
      issuer: 'any address',
      authorization_endpoint: 'any address',
      token_endpoint: 'any address',
      jwks_uri: 'any address',
      response_types_supported: { includes: ['code'] },
      subject_types_supported: { includes: [] },
      id_token_signing_alg_values_supported: { includes: ['RS256'] },
    },
    isComplete: false,
  },
  accessTokenSeconds: null,
  hasExpiryMembers: false,
  isAudienceArray: false,
  hasAuthTime: false,
  idTokenSeconds: null,
  isNonceRepeated: true,
  mayRefreshTokenChange: true,
  rejectedTokenCode: null,
  hasLimitHeaders: true,
}

export const expectationsOf = ({ name }: ProviderProfile): Expectations =>
  name === 'intuit' ? intuit : generic
