/**
 * The port to the provider. The expected results of a token request are outcomes, not exceptions. They differ in
 * one question: may the provider have used up the code or the refresh token?
 */
import type { Secret } from '@integration-host/shared/secrets/secret'

export interface Provider {
  /**
   * Where to send the operator's browser (RFC 6749 §4.1.1), with the PKCE challenge of `codeVerifier` when
   * the provider offers S256 (RFC 7636).
   *
   * @throws {IntegrationError} `provider_unavailable` until the discovery document was fetched once.
   */
  authorizationUrl(request: {
    readonly state: string
    readonly nonce: string
    readonly codeVerifier: Secret
  }): Promise<{ readonly url: string; readonly usesPkce: boolean }>

  /** The provider's issuer identifier, and whether its callbacks always carry it as `iss` (RFC 9207 §3). */
  issuer(): Promise<{ readonly identifier: string; readonly isAlwaysSent: boolean }>

  /** Sends one POST, without retry. */
  exchangeCode(exchange: CodeExchange): Promise<ExchangeOutcome>

  /** Sends one POST, without retry. */
  refresh(refreshToken: Secret): Promise<TokenOutcome>

  /** Ends the grant (RFC 7009, or as the profile says); `true` if the provider confirmed it. Never throws. */
  revoke(refreshToken: Secret): Promise<boolean>
}

export interface CodeExchange {
  readonly code: Secret
  /** `null` if the authorization request had no challenge, or was another application's. */
  readonly codeVerifier: Secret | null
  /** `null` if the authorization request was another application's. */
  readonly nonce: string | null
}

export interface TokenSet {
  readonly accessToken: Secret
  readonly refreshToken: Secret | null
  readonly idToken: Secret | null
  /** The company that a verified id token names (Intuit's `realmid`); `null` if it names none. */
  readonly realm: string | null
  readonly lifetimeSeconds: number
  /** Seconds without a refresh after which the provider ends the grant; `null` if it did not say. */
  readonly idleSeconds: number | null
  /** Seconds until it ends the grant in any case; `null` if it did not say. */
  readonly hardSeconds: number | null
}

/** The part of the provider's response that may be stored. `body` is bounded and holds no token. */
export interface ProviderResponse {
  readonly status: number | null
  readonly body: string
  readonly traceId: string | null
}

export type TokenOutcome =
  | { readonly kind: 'granted'; readonly tokens: TokenSet }
  /** No byte of the request was sent: no token was used. */
  | ({ readonly kind: 'never_sent' } & ProviderResponse)
  /** No response, an unreadable one or a 5xx: the token may have been used. */
  | ({ readonly kind: 'unknown' } & ProviderResponse)
  /** 429, or 503 with `Retry-After`: not processed. */
  | ({ readonly kind: 'throttled'; readonly retryAfterMs: number | null } & ProviderResponse)
  /** The provider rejected the client credentials: no realm is at fault. */
  | ({ readonly kind: 'client_refused'; readonly retryAfterMs: number } & ProviderResponse)
  /** The provider rejected the request; `error` is its OAuth error code (RFC 6749 §5.2). */
  | ({ readonly kind: 'refused'; readonly error: string } & ProviderResponse)

export type ExchangeOutcome =
  | TokenOutcome
  /** The id token is invalid in `member`. It may be another company's, so none of the tokens is used. */
  | ({ readonly kind: 'invalid_id_token'; readonly member: string } & ProviderResponse)
