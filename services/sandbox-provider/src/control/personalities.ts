/**
 * The providers that this sandbox can imitate, with one object for each provider. A comment marks each value that the
 * provider's documentation does not specify, or specifies inconsistently.
 */
import { supportedScopes } from '../authorization/authorization-request.ts'
import type { Behaviour } from './settings.ts'

export interface Personality {
  /** The description of the personality in the generated documentation of the settings. */
  readonly description: string
  /** The initial value of each behaviour setting. `PUT /sandbox/settings` can change the values at run time. */
  readonly behaviour: Behaviour
  /** Members of the discovery document that are neither endpoints nor determined by a setting. */
  readonly discovery: Readonly<Record<string, readonly string[]>>
}

const DAY_SECONDS = 86_400

/** The documented behaviour of Intuit (QuickBooks Online). */
const intuit: Personality = {
  description: 'Intuit as documented',
  behaviour: {
    accessTokenSeconds: 3_600,
    // Intuit's current sample responses show a lifetime of 101 days, but Intuit's documentation says 100 days.
    refreshTokenSeconds: 101 * DAY_SECONDS,
    grantSeconds: 5 * 365 * DAY_SECONDS,
    rotation: 'daily',
    // Intuit's documents disagree about the previous refresh token after a rotation. The newest document says that the
    // previous token becomes invalid immediately. Older documents say that the previous token stays valid for 24 hours.
    graceSeconds: 0,
    // Intuit's FAQ says that repeated requests with an old refresh token may invalidate the refresh token. It does not
    // say that the whole grant ends.
    revokeOnReuse: false,
    latencyMs: 0,
    // Intuit does not document when a query returns a new object.
    visibleAfterMs: 0,
    playsBackRequestIds: true,
    // Intuit does not document PKCE. It accepts requests with a code challenge, but it is unknown whether Intuit checks
    // the code verifier.
    pkce: false,
    // None of Intuit's sample id tokens contains a nonce, and Intuit's `claims_supported` does not list the claim
    // `nonce`.
    nonce: false,
    responseIssuer: false,
    realmIdNeedsScope: true,
    redirectUris: 'intuit',
    // Intuit advertises client_secret_post, but none of Intuit's SDKs uses it. It is unknown whether Intuit accepts
    // this method.
    clientSecretPost: true,
    revocationBody: 'json',
    discoveryNamesAccountingUrl: false,
  },
  discovery: {
    scopes_supported: ['openid', 'email', 'profile', 'address', 'phone'],
  },
}

/** A provider that enforces the current security recommendations for OAuth 2.0 (RFC 9700). */
const strict: Personality = {
  description:
    'as strict as the standards allow: rotation at every refresh, no grace, PKCE required',
  behaviour: {
    accessTokenSeconds: 3_600,
    refreshTokenSeconds: 100 * DAY_SECONDS,
    grantSeconds: 5 * 365 * DAY_SECONDS,
    rotation: 'always',
    graceSeconds: 0,
    revokeOnReuse: true, // RFC 9700 §4.14.2
    latencyMs: 0,
    // Intuit does not document when a query returns a new object.
    visibleAfterMs: 0,
    playsBackRequestIds: true,
    pkce: true, // RFC 9700 §2.1.1
    nonce: true, // OpenID Connect Core §3.1.3.7
    responseIssuer: true, // RFC 9207
    realmIdNeedsScope: false,
    redirectUris: 'standard',
    clientSecretPost: false,
    revocationBody: 'form', // RFC 7009
    discoveryNamesAccountingUrl: true,
  },
  discovery: {
    scopes_supported: supportedScopes,
    grant_types_supported: ['authorization_code', 'refresh_token'],
    revocation_endpoint_auth_methods_supported: ['client_secret_basic'],
  },
}

/**
 * Intuit as some users saw it: a repeated `requestid` creates a second object (QuickBooks-V3-DotNET-SDK#352), and a query
 * returns a new object only after some seconds.
 */
const forgetful: Personality = {
  ...intuit,
  description: 'Intuit, without playing back repeated requestids, and with queries that lag',
  behaviour: { ...intuit.behaviour, playsBackRequestIds: false, visibleAfterMs: 5_000 },
}

export const personalities = { intuit, strict, forgetful } as const
export type PersonalityName = keyof typeof personalities
export const personalityNames = Object.keys(personalities) as PersonalityName[]
