/**
 * The provider over OpenID Connect. openid-client builds the requests and validates the responses. The HTTP
 * request in between is ours (send-request.ts), so that nothing is retried, redirected or read without
 * bound, and so that a copy of each token response is kept: a rotated pair must survive an id token that the
 * library rejects.
 */
import {
  allowInsecureRequests,
  authorizationCodeGrant,
  buildAuthorizationUrl,
  calculatePKCECodeChallenge,
  Configuration,
  customFetch,
  enableNonRepudiationChecks,
  refreshTokenGrant,
  setJwksCache,
  tokenRevocation,
} from 'openid-client'
import { IntegrationError } from '@integration-host/shared/errors'
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import { Secret } from '@integration-host/shared/secrets/secret'
import type {
  CodeExchange,
  ExchangeOutcome,
  Provider,
  ProviderResponse,
  TokenOutcome,
  TokenSet,
} from '../../provider/provider.ts'
import { clientSecretBasic } from './client-secret-basic.ts'
import type { DiscoveredProvider, Discovery } from './discovery.ts'
import { checkIssuedNow, claimsOf, realmOf, rejectedMember } from './id-token.ts'
import { NoResponse, type ProviderHttpResponse, sendRequest } from './send-request.ts'
import { outcomeOf, presentable, readTokenResponse, type TokenResponse } from './token-response.ts'

export interface OpenIdProviderOptions {
  readonly discovery: Discovery
  readonly profile: ProviderProfile
  readonly clientId: string
  /** Tried in order while the provider rejects the client; the one that works is tried first from then on. */
  readonly clientSecrets: readonly Secret[]
  readonly redirectUri: string
  readonly scope: string
  readonly now: () => number
  /** Milliseconds a token request may take in all: the wait for discovery, and every secret that is tried. */
  readonly deadlineMs: number
  /** Reports how long a request took and how it ended. */
  readonly observe?: (
    call: 'exchange' | 'refresh' | 'revoke',
    outcome: string,
    durationMs: number,
  ) => void
  /** A refresh brought an id token that is not valid in `member`: it is not kept, the tokens are. */
  readonly onIdTokenRejected?: (member: string) => void
}

type Fetch = NonNullable<Configuration[typeof customFetch]>
type Grant = (
  configuration: Configuration,
  response: () => TokenResponse | null,
) => Promise<unknown>

/** Tokens that arrived, and the error of the library about the id token beside them. */
interface Received {
  readonly kind: 'received'
  readonly raw: ProviderHttpResponse
  readonly response: TokenResponse
  /** `null`: everything is valid. */
  readonly rejection: Error | null
}

export function createOpenIdProvider(options: OpenIdProviderOptions): Provider {
  const { discovery, profile, clientId, redirectUri, now, deadlineMs } = options
  const wantsIdToken = requestsIdToken(options.scope)
  let secrets = options.clientSecrets

  /** A configuration for one token request, which goes through `fetch`. */
  function configure(
    { metadata, jwks }: DiscoveredProvider,
    secret: Secret,
    fetch: Fetch,
  ): Configuration {
    const configuration = new Configuration(
      metadata,
      clientId,
      undefined,
      clientSecretBasic(secret.reveal()),
    )
    // Only where the operator configured http: discovery rejects a step down from https.
    if (new URL(metadata.token_endpoint).protocol === 'http:') allowInsecureRequests(configuration)
    configuration[customFetch] = fetch
    if (metadata.jwks_uri !== undefined) {
      enableNonRepudiationChecks(configuration)
      // Fetched beforehand: a code must not be used and then lost to a JWKS that is unavailable. The library
      // fetches the set again for an unknown key only if its copy is at least a minute old, so it is said to be.
      if (jwks !== null)
        setJwksCache(configuration, {
          jwks: { keys: [...jwks.keys] },
          uat: Math.floor(Date.now() / 1_000) - REFETCH_AFTER_SECONDS,
        })
    }
    return configuration
  }

  const request = (
    sent: Parameters<Fetch>[1],
    url: string,
    leftMs = deadlineMs,
  ): Promise<ProviderHttpResponse> =>
    sendRequest(new URL(url), {
      method: sent.method,
      headers: sent.headers,
      body:
        sent.body === undefined || sent.body === null ? null : String(sent.body as URLSearchParams),
      deadlineMs: leftMs,
    })

  /** Sends one token request and reads its response. */
  async function requestTokens(
    provider: DiscoveredProvider,
    secret: Secret,
    grant: Grant,
    sent: readonly string[],
    leftMs: number,
  ): Promise<Received | TokenOutcome> {
    let raw: ProviderHttpResponse | null = null
    let response: TokenResponse | null = null
    let failure: NoResponse | null = null
    const configuration = configure(provider, secret, async (url, outgoing) => {
      // Signing keys that were not known yet: the provider may have rotated them.
      if (outgoing.method !== 'POST') return toResponse(await request(outgoing, url))
      const headers = { ...outgoing.headers, ...profile.token.requestHeaders }
      try {
        raw = await request({ ...outgoing, headers }, url, leftMs)
      } catch (error) {
        failure =
          error instanceof NoResponse ? error : new NoResponse('unknown', true, { cause: error })
        throw failure
      }
      response = readTokenResponse(raw, profile.token)
      // The library accepts tokens by the letter of the RFC only; what providers send was read above.
      return response === null ? toResponse(raw) : Response.json(response.wire)
    })
    const rejection = await grant(configuration, () => response).then(
      () => null,
      (error: unknown) => (error instanceof Error ? error : new TypeError('not an error')),
    )
    // Assigned in the function above, which the compiler does not follow.
    const seen = { raw, response, failure } as {
      readonly raw: ProviderHttpResponse | null
      readonly response: TokenResponse | null
      readonly failure: NoResponse | null
    }
    if (seen.failure !== null) return outcomeWithoutResponse(seen.failure)
    if (seen.raw === null) throw rejection ?? new TypeError('the library sent nothing')
    return seen.response === null
      ? outcomeOf(seen.raw, [...sent, secret.reveal()], now())
      : { kind: 'received', raw: seen.raw, response: seen.response, rejection }
  }

  /** Sends with each client secret until one is accepted. A rejected client has used up nothing. */
  async function requestWithSecrets(
    provider: DiscoveredProvider,
    grant: Grant,
    sent: readonly string[],
    until: number,
  ): Promise<Received | TokenOutcome> {
    let last: Received | TokenOutcome = NO_TIME_LEFT
    for (const secret of secrets) {
      // One deadline for all of them: another replica that finds our intent waits for one request (I5 of the refresh).
      const leftMs = until - performance.now()
      if (leftMs <= 0) break
      last = await requestTokens(provider, secret, grant, sent, leftMs)
      if (last.kind === 'client_refused') continue
      secrets = [secret, ...secrets.filter((other) => other !== secret)]
      break
    }
    return last
  }

  async function timed<Outcome extends ExchangeOutcome>(
    call: 'exchange' | 'refresh',
    run: () => Promise<Outcome>,
  ): Promise<Outcome> {
    const startedAt = performance.now()
    const outcome = await run()
    options.observe?.(call, outcome.kind, performance.now() - startedAt)
    return outcome
  }

  /** Whether id tokens can be verified, so that a code may be used. */
  const hasKeys = ({ metadata, jwks }: DiscoveredProvider): boolean =>
    !wantsIdToken || metadata.jwks_uri === undefined || jwks !== null

  const known = async (): Promise<DiscoveredProvider> => {
    const provider = await discovery.current()
    if (provider !== null && !hasKeys(provider))
      throw new IntegrationError('provider_unavailable', NO_KEYS, { retryAfterSeconds: 5 })
    if (provider !== null) return provider
    throw new IntegrationError(
      'provider_unavailable',
      discovery.problem ?? 'no discovery document',
      {
        retryAfterSeconds: 5,
      },
    )
  }

  /** Whether an id token of this provider must repeat the nonce; see docs/adr/0017. */
  const isNonceRequired = ({ metadata }: DiscoveredProvider): boolean =>
    profile.authorization.isNonceRequired ||
    (Array.isArray(metadata['claims_supported']) && metadata['claims_supported'].includes('nonce'))

  /**
   * The nonce to require of the id token of `response`; `undefined` accepts only a token without one.
   * A nonce that is there must match in any case. If the authorization request was another application's,
   * the nonce is that application's to check, so the token's own is expected.
   */
  function expectedNonce(
    provider: DiscoveredProvider,
    sent: CodeExchange['nonce'],
    response: TokenResponse | null,
  ): string | undefined {
    const { nonce } = claimsOf(response?.wire.id_token)
    const own = typeof nonce === 'string' ? nonce : undefined
    if (sent === null || !wantsIdToken) return own
    return isNonceRequired(provider) || own !== undefined ? sent : undefined
  }

  return {
    async authorizationUrl({ state, nonce, codeVerifier }) {
      const provider = await known()
      const usesPkce = provider.metadata.code_challenge_methods_supported?.includes('S256') ?? false
      const configuration = configure(provider, new Secret('unused'), () =>
        Promise.reject(new TypeError('nothing is sent')),
      )
      const url = buildAuthorizationUrl(configuration, {
        redirect_uri: redirectUri,
        scope: options.scope,
        state,
        ...(wantsIdToken && { nonce }),
        ...(usesPkce && {
          code_challenge: await calculatePKCECodeChallenge(codeVerifier.reveal()),
          code_challenge_method: 'S256',
        }),
      })
      return { url: url.href, usesPkce }
    },

    async issuer() {
      const { metadata } = await known()
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
        const current = new URL(redirectUri)
        current.searchParams.set('code', code.reveal())
        // `iss` was compared when the callback arrived; the library wants it where the provider promises it.
        if (provider.metadata['authorization_response_iss_parameter_supported'] === true) {
          current.searchParams.set('iss', provider.metadata.issuer)
        }
        const grant: Grant = (configuration, response) =>
          authorizationCodeGrant(configuration, current, {
            ...(codeVerifier !== null && { pkceCodeVerifier: codeVerifier.reveal() }),
            idTokenExpected: nonce !== null && wantsIdToken,
            // The library reads it once the response is there, which decides what to expect.
            get expectedNonce() {
              return expectedNonce(provider, nonce, response()) as string
            },
          })
        const outcome = await requestWithSecrets(provider, grant, [code.reveal()], until)
        if (outcome.kind !== 'received') return outcome
        const { raw, response, rejection } = outcome
        try {
          if (rejection !== null) throw rejection
          const tokens = tokensOf(response, profile)
          if (nonce !== null && response.wire.id_token !== undefined)
            checkIssuedNow(claimsOf(response.wire.id_token), now())
          return { kind: 'granted', tokens }
        } catch (error) {
          const member = rejectedMember(error)
          const body = `the id token is not valid: ${member}`
          return { ...presentable(raw, []), kind: 'invalid_id_token', member, body }
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
        const outcome = await requestWithSecrets(provider, grant, [token], until)
        if (outcome.kind !== 'received') return outcome
        const { response, rejection } = outcome
        try {
          if (rejection !== null) throw rejection
          return { kind: 'granted', tokens: tokensOf(response, profile) }
        } catch (error) {
          // The pair is valid and the old one may be invalid already: losing the pair for its id token would
          // lock the company out. Only the id token is dropped, and nothing else depends on it.
          options.onIdTokenRejected?.(rejectedMember(error))
          const { id_token: _, ...wire } = response.wire
          return { kind: 'granted', tokens: tokensOf({ ...response, wire }, profile) }
        }
      }),

    async revoke(refreshToken) {
      const startedAt = performance.now()
      const provider = await discovery.current()
      let isRevoked = false
      let isClientRejected = true
      for (const secret of secrets) {
        if (provider?.metadata.revocation_endpoint === undefined) break
        if (isRevoked || !isClientRejected) break
        isClientRejected = false
        try {
          const configuration = configure(provider, secret, async (url, outgoing) => {
            const response = await request(revocationRequest(outgoing, profile), url)
            isClientRejected = response.status === 401
            const isDone = response.status === 204 || profile.revocation.isAlreadyRevoked(response)
            // For the library, as for RFC 7009 §2.2, a token without effect is a success.
            return isDone ? new Response(null, { status: 200 }) : toResponse(response)
          })
          await tokenRevocation(configuration, refreshToken.reveal(), {
            token_type_hint: 'refresh_token',
          })
          isRevoked = true
        } catch {
          // Rejected or unavailable: the caller learns that nothing was confirmed.
        }
      }
      options.observe?.('revoke', isRevoked ? 'revoked' : 'refused', performance.now() - startedAt)
      return isRevoked
    },
  }
}

/** oauth4webapi's own interval between two fetches of a key set. */
const REFETCH_AFTER_SECONDS = 60

const NO_KEYS = 'the signing keys of the provider (jwks_uri) cannot be fetched or are not usable'

const NOT_DISCOVERED = {
  kind: 'never_sent',
  status: null,
  body: 'no response (the discovery document could not be fetched yet)',
  traceId: null,
} as const satisfies TokenOutcome

const NO_TIME_LEFT: TokenOutcome = {
  kind: 'never_sent',
  status: null,
  body: 'no response (the discovery document arrived too late)',
  traceId: null,
}

function outcomeWithoutResponse({ reason, wasSent }: NoResponse): TokenOutcome {
  const shown: ProviderResponse = { status: null, body: `no response (${reason})`, traceId: null }
  return { kind: wasSent ? 'unknown' : 'never_sent', ...shown }
}

const requestsIdToken = (scope: string): boolean => scope.split(' ').includes('openid')

const NO_BODY = new Set([204, 205, 304])

const toResponse = ({ status, headers, text }: ProviderHttpResponse): Response =>
  new Response(NO_BODY.has(status) ? null : text, { status, headers })

/** The library's revocation request (RFC 7009 §2.1), with the body that the profile wants. */
function revocationRequest(
  form: Parameters<Fetch>[1],
  { revocation }: ProviderProfile,
): Parameters<Fetch>[1] {
  if (revocation.body === 'form') return form
  const token = new URLSearchParams(String(form.body as URLSearchParams)).get('token')
  return {
    ...form,
    headers: { ...form.headers, 'content-type': 'application/json', accept: 'application/json' },
    body: JSON.stringify({ token }),
  }
}

/** @throws {InvalidIdToken} the id token names its company in a way that cannot be read. */
const tokensOf = (
  { wire, idleSeconds, hardSeconds }: TokenResponse,
  { authorization }: ProviderProfile,
): TokenSet => ({
  accessToken: new Secret(wire.access_token),
  refreshToken: wire.refresh_token === undefined ? null : new Secret(wire.refresh_token),
  idToken: wire.id_token === undefined ? null : new Secret(wire.id_token),
  realm: realmOf(claimsOf(wire.id_token), authorization.realmClaim),
  lifetimeSeconds: wire.expires_in,
  idleSeconds,
  hardSeconds,
})
