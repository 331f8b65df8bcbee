/**
 * The providers whose behaviour this sandbox can imitate, one object for each. A comment marks behaviour that the
 * provider's documentation does not specify or that its sources contradict.
 */
import { supportedScopes } from '../authorization/authorization-request.ts'
import type { Behaviour } from './behaviour.ts'

export interface Personality {
  /** The description in the reference of the settings. */
  readonly description: string
  /** Values of all settings. `PUT /sandbox/settings` can change each at run time. */
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
    // Intuit's current sample responses have 101 days; its text says 100.
    refreshTokenSeconds: 101 * DAY_SECONDS,
    rotation: 'daily',
    // Sources disagree: according to the newest, the previous value becomes invalid when the new one is issued; according
    // to older ones it stays valid for 24 hours.
    graceSeconds: 0,
    // Intuit's FAQ says only that repeated attempts with an old value may invalidate the refresh token.
    revokeOnReuse: false,
    latencyMs: 0,
    // Intuit does not document PKCE. A client that sends a challenge is not rejected; whether a verifier is checked is
    // unknown.
    pkce: false,
    // No sample id token of Intuit contains a nonce, and `claims_supported` does not list it.
    nonce: false,
    responseIssuer: false,
    realmIdNeedsScope: true,
    redirectUris: 'intuit',
    // Intuit advertises client_secret_post, but no SDK of Intuit uses it, so whether it is accepted is unknown.
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
    rotation: 'always',
    graceSeconds: 0,
    revokeOnReuse: true, // RFC 9700 §4.14.2
    latencyMs: 0,
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

export const personalities = { intuit, strict } as const
export type PersonalityName = keyof typeof personalities
export const personalityNames = Object.keys(personalities) as PersonalityName[]
