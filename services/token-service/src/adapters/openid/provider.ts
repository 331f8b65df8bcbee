/**
 * The provider adapter for OpenID Connect: authorization URL, code exchange, refresh and revocation. openid-client builds
 * the authorization request; client-requests.ts sends token requests and reads their responses.
 */
import {
  allowInsecureRequests,
  buildAuthorizationUrl,
  calculatePKCECodeChallenge,
  Configuration,
} from 'openid-client'
import { IntegrationError } from '@integration-host/shared/errors'
import type { ProxyFor } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import { Secret } from '@integration-host/shared/secrets/secret'
import type { ExchangeOutcome, Provider, TokenOutcome } from '../../provider/provider.ts'
import { createClientRequests, withoutResponse } from './client-requests.ts'
import type { DiscoveredProvider, Discovery } from './discovery.ts'
import {
  checkIssuedNow,
  checkNonce,
  type Claims,
  clockDifference,
  InvalidIdToken,
  realmOf,
  verifyIdToken,
} from './id-token.ts'
import { NoResponse } from './send-request.ts'
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
  const { discovery, profile, clientId, redirectUri, requestsIdToken, now, deadlineMs } = options
  const { requestTokens, revoke } = createClientRequests(options)

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
   * Returns the verified claims of the id token of a response; `null` if there is no id token. Without `jwks_uri` an id
   * token cannot be verified, and is ignored: the discovery document has this member if id tokens are requested.
   *
   * @throws {InvalidIdToken} if the id token is not valid.
   */
  async function claimsOf(
    provider: DiscoveredProvider,
    { idToken }: TokenResponse,
  ): Promise<Claims | null> {
    if (idToken === null || provider.metadata.jwks_uri === undefined) return null
    const { refetchKeys } = discovery
    return verifyIdToken(idToken, provider, { clientId, now: now(), refetchKeys })
  }

  /**
   * Returns the tokens of a response, and the realm that its id token names. Without claims, the id token is dropped.
   *
   * @throws {InvalidIdToken} if the realm claim of the id token is ambiguous or not a string.
   */
  function granted(
    { accessToken, refreshToken, idToken, oddities, ...lifetimes }: TokenResponse,
    claims: Claims | null,
  ): Extract<TokenOutcome, { kind: 'granted' }> {
    const secret = (token: string | null): Secret | null =>
      token === null ? null : new Secret(token)
    const tokens = {
      ...lifetimes,
      accessToken: new Secret(accessToken),
      refreshToken: secret(refreshToken),
      idToken: claims === null ? null : secret(idToken),
      realm: claims === null ? null : realmOf(claims, profile.authorization.realmClaim),
    }
    return { kind: 'granted', tokens, ...(oddities.length > 0 && { oddities }) }
  }

  return {
    async usesPkce() {
      const { metadata } = await discovered()
      return metadata.code_challenge_methods_supported?.includes('S256') ?? false
    },

    async authorizationUrl({ state, nonce, codeVerifier }) {
      const { metadata } = await discovered()
      const configuration = new Configuration(metadata, clientId)
      // discovery.ts rejects http endpoints in a document that was fetched over https.
      if (metadata.authorization_endpoint.startsWith('http:')) allowInsecureRequests(configuration)
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
        if (provider === null) return neverSent(NOT_DISCOVERED)
        if (!hasKeys(provider)) return neverSent(NO_KEYS)
        const grant = {
          grant_type: 'authorization_code',
          code: code.reveal(),
          redirect_uri: redirectUri,
          ...(codeVerifier !== null && { code_verifier: codeVerifier.reveal() }),
        }
        const outcome = await requestTokens(provider, grant, code.reveal(), until)
        if (outcome.kind !== 'received') return outcome
        const { raw, response } = outcome
        try {
          const claims = await claimsOf(provider, response)
          // Another application has sent the authorization request if `nonce` is null: this service does not know that
          // nonce, and the id token may be missing or older.
          if (nonce !== null && requestsIdToken) {
            if (claims === null) throw new InvalidIdToken('id_token')
            checkNonce(claims, nonce, isNonceRequired(provider))
          }
          if (nonce !== null && claims !== null) checkIssuedNow(claims, now())
          return granted(response, claims)
        } catch (error) {
          if (!(error instanceof InvalidIdToken)) throw error
          const { member } = error
          const body = `the id token is not valid: ${member}`
          const clockAheadSeconds = clockDifference(error, now())
          const shown = { ...presentable(raw, []), member, body, clockAheadSeconds }
          return { kind: 'invalid_id_token', ...shown }
        }
      }),

    refresh: (refreshToken) =>
      timed('refresh', async (): Promise<TokenOutcome> => {
        const until = performance.now() + deadlineMs
        const provider = await discovery.current()
        if (provider === null) return neverSent(NOT_DISCOVERED)
        const token = refreshToken.reveal()
        const grant = {
          grant_type: 'refresh_token',
          refresh_token: token,
          redirect_uri: redirectUri,
        }
        const outcome = await requestTokens(provider, grant, token, until)
        if (outcome.kind !== 'received') return outcome
        const { response } = outcome
        try {
          return granted(response, await claimsOf(provider, response))
        } catch (error) {
          // An invalid id token of a refresh is dropped, and the token pair is kept. The provider may already have
          // invalidated the previous token pair, so access to the company would be lost without the new pair. No other
          // part of the service needs the id token.
          options.onIdTokenRejected?.(error instanceof InvalidIdToken ? error.member : 'form')
          return granted(response, null)
        }
      }),

    async revoke(refreshToken) {
      const startedAt = performance.now()
      const isRevoked = await revoke(await discovery.current(), refreshToken, deadlineMs)
      options.observe?.('revoke', isRevoked ? 'revoked' : 'refused', performance.now() - startedAt)
      return isRevoked
    },
  }
}

const NO_KEYS = 'the signing keys of the provider (jwks_uri) cannot be fetched or are not usable'

const neverSent = (reason: string): TokenOutcome => withoutResponse(new NoResponse(reason, false))
const NOT_DISCOVERED = 'the discovery document could not be fetched yet'
