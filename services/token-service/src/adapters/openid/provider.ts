/**
 * The provider adapter for OpenID Connect: authorization URL, code exchange, refresh and revocation. openid-client
 * builds the requests and validates the responses; token-request.ts sends them.
 */
import {
  authorizationCodeGrant,
  buildAuthorizationUrl,
  calculatePKCECodeChallenge,
  refreshTokenGrant,
} from 'openid-client'
import { IntegrationError } from '@integration-host/shared/errors'
import type { ProxyFor } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import { Secret } from '@integration-host/shared/secrets/secret'
import type {
  CodeExchange,
  ExchangeOutcome,
  Provider,
  TokenOutcome,
  TokenSet,
} from '../../provider/provider.ts'
import { createClientSecrets } from './client-secrets.ts'
import { configure } from './configuration.ts'
import type { DiscoveredProvider, Discovery } from './discovery.ts'
import {
  checkIssuedNow,
  checkSubject,
  claimsOf,
  clockDifference,
  realmOf,
  rejectedMember,
} from './id-token.ts'
import { revoke } from './revocation.ts'
import { createTokenRequest, type Grant } from './token-request.ts'
import { presentable, type TokenResponse } from './token-response.ts'

export interface OpenIdProviderOptions {
  readonly discovery: Discovery
  readonly profile: ProviderProfile
  readonly clientId: string
  /** The client secrets, in the order in which they are tried until the provider accepts one. */
  readonly clientSecrets: readonly Secret[]
  readonly redirectUri: string
  readonly scope: string
  /** Whether `scope` contains `openid`, so that the provider issues id tokens. */
  readonly requestsIdToken: boolean
  readonly now: () => number
  /**
   * The deadline of a token request in milliseconds. It includes the wait for discovery and the requests with all
   * client secrets.
   */
  readonly deadlineMs: number
  readonly proxyFor: ProxyFor
  /** Called with the outcome and the duration of each token request or revocation. */
  readonly observe?: (
    call: 'exchange' | 'refresh' | 'revoke',
    outcome: string,
    durationMs: number,
  ) => void
  /**
   * Called when a refresh returned an invalid id token; `member` is the invalid part. The id token is dropped, and the
   * other tokens are kept.
   */
  readonly onIdTokenRejected?: (member: string) => void
}

export function createOpenIdProvider(options: OpenIdProviderOptions): Provider {
  const { discovery, profile, clientId, redirectUri, requestsIdToken, now, deadlineMs, proxyFor } =
    options
  const clientSecrets = createClientSecrets(options.clientSecrets)
  const requestOptions = { profile, clientId, clientSecrets, now, deadlineMs, proxyFor }
  const sendTokenRequest = createTokenRequest(requestOptions)

  async function timed<Outcome extends ExchangeOutcome>(
    call: 'exchange' | 'refresh',
    run: () => Promise<Outcome>,
  ): Promise<Outcome> {
    const startedAt = performance.now()
    const outcome = await run()
    options.observe?.(call, outcome.kind, performance.now() - startedAt)
    return outcome
  }

  /** Whether the signing keys are known. Without them the id token of a code exchange cannot be verified. */
  const hasKeys = ({ metadata, jwks }: DiscoveredProvider): boolean =>
    !requestsIdToken || metadata.jwks_uri === undefined || jwks !== null

  /**
   * Resolves with the discovery document and the signing keys.
   *
   * @throws {IntegrationError} `provider_unavailable` if the document or the keys have not been fetched yet.
   */
  async function discovered(): Promise<DiscoveredProvider> {
    const provider = await discovery.current()
    if (provider !== null && hasKeys(provider)) return provider
    const why = provider === null ? (discovery.problem ?? 'no discovery document') : NO_KEYS
    throw new IntegrationError('provider_unavailable', why, { retryAfterSeconds: 5 })
  }

  /** Whether the id tokens of this provider repeat the nonce of the authorization request (docs/adr/0017). */
  const isNonceRequired = ({ metadata }: DiscoveredProvider): boolean =>
    profile.authorization.isNonceRequired ||
    (Array.isArray(metadata['claims_supported']) && metadata['claims_supported'].includes('nonce'))

  /**
   * Returns the nonce that openid-client must require in the id token of `response`. With `undefined`, openid-client
   * accepts only an id token without a nonce.
   *
   * If this service sent the authorization request, the function returns the nonce of the request. If another
   * application sent the request, this service does not know its nonce and cannot compare it. The function then returns
   * the nonce of the id token itself, so that openid-client accepts the token.
   */
  function expectedNonce(
    provider: DiscoveredProvider,
    requested: CodeExchange['nonce'],
    response: TokenResponse | null,
  ): string | undefined {
    const { nonce } = claimsOf(response?.wire.id_token)
    const own = typeof nonce === 'string' ? nonce : undefined
    if (requested === null || !requestsIdToken) return own
    return isNonceRequired(provider) || own !== undefined ? requested : undefined
  }

  return {
    async usesPkce() {
      const { metadata } = await discovered()
      return metadata.code_challenge_methods_supported?.includes('S256') ?? false
    },

    async authorizationUrl({ state, nonce, codeVerifier }) {
      const configuration = configure(await discovered(), clientId, new Secret('unused'), () =>
        Promise.reject(new TypeError('building a URL sends no request')),
      )
      const url = buildAuthorizationUrl(configuration, {
        redirect_uri: redirectUri,
        scope: options.scope,
        state,
        ...(requestsIdToken && { nonce }),
        ...(codeVerifier !== null && {
          code_challenge: await calculatePKCECodeChallenge(codeVerifier.reveal()),
          code_challenge_method: 'S256',
        }),
      })
      return url.href
    },

    async issuer() {
      const { metadata } = await discovered()
      return {
        identifier: metadata.issuer,
        isAlwaysSent: metadata['authorization_response_iss_parameter_supported'] === true,
      }
    },

    exchangeCode: ({ code, codeVerifier, nonce }) =>
      timed('exchange', async (): Promise<ExchangeOutcome> => {
        const until = performance.now() + deadlineMs
        const provider = await discovery.current()
        if (provider === null) return NOT_DISCOVERED
        if (!hasKeys(provider)) return { ...NOT_DISCOVERED, body: `no response (${NO_KEYS})` }
        const callback = new URL(redirectUri)
        callback.searchParams.set('code', code.reveal())
        // openid-client requires the parameter `iss` of the callback if the discovery document says that the provider
        // always sends it (RFC 9207 §3). This service has already compared `iss`.
        if (provider.metadata['authorization_response_iss_parameter_supported'] === true) {
          callback.searchParams.set('iss', provider.metadata.issuer)
        }
        const grant: Grant = (configuration, response) =>
          authorizationCodeGrant(configuration, callback, {
            ...(codeVerifier !== null && { pkceCodeVerifier: codeVerifier.reveal() }),
            idTokenExpected: nonce !== null && requestsIdToken,
            // `expectedNonce` is a getter, because its value depends on the response. openid-client reads it only after
            // the response has arrived.
            get expectedNonce() {
              return expectedNonce(provider, nonce, response()) as string
            },
          })
        const outcome = await sendTokenRequest(provider, grant, [code.reveal()], until)
        if (outcome.kind !== 'received') return outcome
        const { raw, response, rejection } = outcome
        try {
          if (rejection !== null) throw rejection
          const tokens = tokensOf(response, profile)
          if (nonce !== null && response.wire.id_token !== undefined)
            checkIssuedNow(claimsOf(response.wire.id_token), now())
          return granted(tokens, response)
        } catch (error) {
          const member = rejectedMember(error)
          const body = `the id token is not valid: ${member}`
          const clockAheadSeconds = clockDifference(claimsOf(response.wire.id_token), member, now())
          const shown = { ...presentable(raw, []), member, body, clockAheadSeconds }
          return { kind: 'invalid_id_token', ...shown }
        }
      }),

    refresh: (refreshToken) =>
      timed('refresh', async (): Promise<TokenOutcome> => {
        const until = performance.now() + deadlineMs
        const provider = await discovery.current()
        if (provider === null) return NOT_DISCOVERED
        const token = refreshToken.reveal()
        const grant: Grant = (configuration) =>
          refreshTokenGrant(configuration, token, { redirect_uri: redirectUri })
        const outcome = await sendTokenRequest(provider, grant, [token], until)
        if (outcome.kind !== 'received') return outcome
        const { response, rejection } = outcome
        try {
          if (rejection !== null) throw rejection
          return granted(tokensOf(response, profile), response)
        } catch (error) {
          // An invalid id token of a refresh is dropped, and the token pair is kept. The provider may already have
          // invalidated the previous token pair, so access to the company would be lost without the new pair. No other
          // part of the service needs the id token.
          options.onIdTokenRejected?.(rejectedMember(error))
          const { id_token: _, ...wire } = response.wire
          const tokens = tokensOf({ ...response, wire }, profile)
          return granted(tokens, response)
        }
      }),

    async revoke(refreshToken) {
      const startedAt = performance.now()
      const isRevoked = await revoke(await discovery.current(), refreshToken, requestOptions)
      options.observe?.('revoke', isRevoked ? 'revoked' : 'refused', performance.now() - startedAt)
      return isRevoked
    },
  }
}

const granted = (
  tokens: TokenSet,
  { oddities }: TokenResponse,
): Extract<TokenOutcome, { kind: 'granted' }> => ({
  kind: 'granted',
  tokens,
  ...(oddities.length > 0 && { oddities }),
})

const NO_KEYS = 'the signing keys of the provider (jwks_uri) cannot be fetched or are not usable'

const NOT_DISCOVERED = {
  kind: 'never_sent',
  status: null,
  body: 'no response (the discovery document could not be fetched yet)',
  traceId: null,
} as const satisfies TokenOutcome

/**
 * Returns the tokens of a response, and the realm that its id token names.
 *
 * @throws {InvalidIdToken} if the id token has no subject, or if its realm claim is ambiguous or not a string.
 */
const tokensOf = (
  { wire, idleSeconds, hardSeconds }: TokenResponse,
  { authorization }: ProviderProfile,
): TokenSet => {
  const claims = claimsOf(wire.id_token)
  if (wire.id_token !== undefined) checkSubject(claims)
  return {
    accessToken: new Secret(wire.access_token),
    refreshToken: wire.refresh_token === undefined ? null : new Secret(wire.refresh_token),
    idToken: wire.id_token === undefined ? null : new Secret(wire.id_token),
    realm: realmOf(claims, authorization.realmClaim),
    lifetimeSeconds: wire.expires_in,
    idleSeconds,
    hardSeconds,
  }
}
