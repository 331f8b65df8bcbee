/**
 * The port to the provider. Expected results of a token request are returned as outcomes instead of thrown. The
 * outcomes differ in whether the provider may have used up the code or the refresh token.
 */
import type { Secret } from '@integration-host/shared/secrets/secret'

export interface Provider {
  /**
   * Whether the provider supports the PKCE challenge S256 (RFC 7636).
   *
   * @throws {IntegrationError} `provider_unavailable` until the discovery document has been fetched for the first time.
   */
  usesPkce(): Promise<boolean>

  /**
   * Returns the authorization URL for the operator's browser (RFC 6749 §4.1.1). If `codeVerifier` is not `null`, the
   * URL contains the PKCE challenge for this verifier.
   *
   * @throws {IntegrationError} `provider_unavailable` until the discovery document has been fetched for the first time.
   */
  authorizationUrl(request: {
    readonly state: string
    readonly nonce: string
    readonly codeVerifier: Secret | null
  }): Promise<string>

  /**
   * Returns the provider's issuer identifier, and whether every callback of the provider contains the parameter `iss`
   * (RFC 9207 §3).
   */
  issuer(): Promise<{ readonly identifier: string; readonly isAlwaysSent: boolean }>

  /**
   * Exchanges a code. Sends one POST per client secret until the provider accepts one, and does not retry for any other
   * reason.
   */
  exchangeCode(exchange: CodeExchange): Promise<ExchangeOutcome>

  /**
   * Refreshes a token pair. Sends one POST per client secret until the provider accepts one, and does not retry for any
   * other reason.
   */
  refresh(refreshToken: Secret): Promise<TokenOutcome>

  /**
   * Revokes the grant (RFC 7009, or as the provider profile specifies). Resolves with `true` if the provider confirmed
   * the revocation. Never throws.
   */
  revoke(refreshToken: Secret): Promise<boolean>
}

export interface CodeExchange {
  readonly code: Secret
  /** The PKCE verifier; `null` if the authorization request had no challenge, or if another application sent it. */
  readonly codeVerifier: Secret | null
  /** The nonce of the authorization request; `null` if another application sent it. */
  readonly nonce: string | null
}

export interface TokenSet {
  readonly accessToken: Secret
  readonly refreshToken: Secret | null
  readonly idToken: Secret | null
  /** The company that a verified id token names (Intuit's `realmid`); `null` if it names none. */
  readonly realm: string | null
  readonly lifetimeSeconds: number
  /**
   * Seconds without a refresh after which the provider ends the grant; `null` if the response does not contain this
   * number.
   */
  readonly idleSeconds: number | null
  /**
   * Seconds after which the provider ends the grant in any case; `null` if the response does not contain this number.
   */
  readonly hardSeconds: number | null
}

/**
 * The part of the provider's response that may be stored and shown. `body` is truncated, and tokens in it are redacted.
 */
export interface ProviderResponse {
  readonly status: number | null
  readonly body: string
  readonly traceId: string | null
}

export type TokenOutcome =
  | {
      readonly kind: 'granted'
      readonly tokens: TokenSet
      /** How the response differs from a token response of RFC 6749, in constant words. */
      readonly oddities?: readonly string[]
    }
  /** No byte of the request was sent, so the code or refresh token is unused. */
  | ({ readonly kind: 'never_sent' } & ProviderResponse)
  /** The provider sent no response, an unreadable response or a 5xx. It may have used up the code or refresh token. */
  | ({
      readonly kind: 'unknown'
      /** Whether a success response arrived that may contain new tokens, but none could be read from it. */
      readonly mayHoldTokens?: boolean
    } & ProviderResponse)
  /** The provider responded with 429, or with 503 and `Retry-After`. It did not process the request. */
  | ({ readonly kind: 'throttled'; readonly retryAfterMs: number | null } & ProviderResponse)
  /** The provider rejected the client credentials, which are the same for all realms. */
  | ({ readonly kind: 'client_refused'; readonly retryAfterMs: number } & ProviderResponse)
  /** The provider rejected the request; `error` is its OAuth error code (RFC 6749 §5.2). */
  | ({ readonly kind: 'refused'; readonly error: string } & ProviderResponse)

export type ExchangeOutcome =
  | TokenOutcome
  /** The claim `member` of the id token is invalid. The tokens may belong to another company, so they are not stored. */
  | ({
      readonly kind: 'invalid_id_token'
      readonly member: string
      /**
       * By how many seconds the clock of the provider is ahead of the clock of this process; `null` if the clocks do not
       * explain why the claim is invalid.
       */
      readonly clockAheadSeconds?: number | null
    } & ProviderResponse)
