/**
 * The port to the provider. What can be foreseen of a token call is an outcome, not an exception, and the
 * outcomes are told apart by one question: may the provider have spent the grant?
 */
import type { Secret } from '@integration-host/shared/secrets/secret'

export interface Provider {
  /**
   * Where to send the operator's browser (RFC 6749 §4.1.1), with the PKCE challenge of `codeVerifier` when
   * the provider offers S256 (RFC 7636).
   *
   * @throws {IntegrationError} `provider_unavailable` while the discovery document was never had.
   */
  authorizationUrl(request: {
    readonly state: string
    readonly nonce: string
    readonly codeVerifier: Secret
  }): Promise<{ readonly url: string; readonly usesPkce: boolean }>

  /** The provider's issuer identifier, and whether its callbacks always carry it as `iss` (RFC 9207 §3). */
  issuer(): Promise<{ readonly identifier: string; readonly isAlwaysSent: boolean }>

  /** One POST, no retry. */
  exchangeCode(exchange: CodeExchange): Promise<ExchangeOutcome>

  /** One POST, no retry. */
  refresh(refreshToken: Secret): Promise<TokenOutcome>

  /** Ends the grant (RFC 7009, or as the profile says); `true` if the provider confirmed it. Never throws. */
  revoke(refreshToken: Secret): Promise<boolean>
}

export interface CodeExchange {
  readonly code: Secret
  /** Null when the authorization request had no challenge, or was not ours. */
  readonly codeVerifier: Secret | null
  /** Null when the authorization request was not ours. */
  readonly nonce: string | null
}

export interface TokenSet {
  readonly accessToken: Secret
  readonly refreshToken: Secret | null
  readonly idToken: Secret | null
  /** The company that a checked id token names (Intuit's `realmid`); null where it names none. */
  readonly realm: string | null
  readonly lifetimeSeconds: number
  /** Seconds without a refresh after which the provider ends the grant; null where it did not say. */
  readonly idleSeconds: number | null
  /** Seconds until it ends the grant in any case; null where it did not say. */
  readonly hardSeconds: number | null
}

/** The response of the provider, as far as there is one. `body` is bounded and holds no token. */
export interface ProviderResponse {
  readonly status: number | null
  readonly body: string
  readonly traceId: string | null
}

export type TokenOutcome =
  | { readonly kind: 'granted'; readonly tokens: TokenSet }
  /** No byte of the request left: nothing was spent. */
  | ({ readonly kind: 'never_sent' } & ProviderResponse)
  /** No answer, an unreadable one or a 5xx: it may have been spent. */
  | ({ readonly kind: 'unknown' } & ProviderResponse)
  /** 429, or 503 with `Retry-After`: not processed. */
  | ({ readonly kind: 'throttled'; readonly retryAfterMs: number | null } & ProviderResponse)
  /** The application's own credentials were refused: no realm is to blame. */
  | ({ readonly kind: 'client_refused'; readonly retryAfterMs: number } & ProviderResponse)
  /** The provider's last word on this request; `error` is its OAuth error code (RFC 6749 §5.2). */
  | ({ readonly kind: 'refused'; readonly error: string } & ProviderResponse)

export type ExchangeOutcome =
  | TokenOutcome
  /** Tokens came with an id token that is wrong in `member`: it may be another company's, so none is used. */
  | ({ readonly kind: 'invalid_id_token'; readonly member: string } & ProviderResponse)
