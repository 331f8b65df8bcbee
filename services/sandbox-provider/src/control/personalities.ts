/**
 * The providers that this sandbox can be. A personality is one object here and nothing else: another
 * provider is another object. A comment marks what the documentation does not specify or contradicts.
 */
import { supportedScopes } from '../authorization/authorization-request.ts'
import type { Behaviour } from './behaviour.ts'

export interface Personality {
  /** For the settings reference. */
  readonly description: string
  /** Each can be changed at run time (`PUT /sandbox/settings`). */
  readonly behaviour: Behaviour
  /** Members of the discovery document beside endpoints and those that a setting decides. */
  readonly discovery: Readonly<Record<string, readonly string[]>>
}

const DAY_SECONDS = 86_400

/** Intuit (QuickBooks Online) as documented. */
const intuit: Personality = {
  description: 'Intuit as documented',
  behaviour: {
    accessTokenSeconds: 3_600,
    // 101 days in current samples, although the text says 100.
    refreshTokenSeconds: 101 * DAY_SECONDS,
    rotation: 'daily',
    // Sources disagree. The newest ones say that the previous value ends with the new one; older ones
    // give it 24 hours.
    graceSeconds: 0,
    // The FAQ says only that repeated attempts with an old value may invalidate the refresh token.
    revokeOnReuse: false,
    latencyMs: 0,
    // Not documented. A client that sends it is not rejected; whether a verifier is checked is unknown.
    pkce: false,
    // In no sample of an id token and not in `claims_supported`.
    nonce: false,
    responseIssuer: false,
    realmIdNeedsScope: true,
    redirectUris: 'intuit',
    // Advertised; no SDK of Intuit uses it, so whether it is accepted is unknown.
    clientSecretPost: true,
    revocationBody: 'json',
    discoveryNamesAccountingUrl: false,
  },
  discovery: {
    scopes_supported: ['openid', 'email', 'profile', 'address', 'phone'],
  },
}

/** A provider that enforces every current standard. */
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
