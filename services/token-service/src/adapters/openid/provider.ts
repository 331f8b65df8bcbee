/**
 * The provider over OpenID Connect. openid-client builds the requests and checks the answers; the HTTP
 * exchange between the two is ours (http-exchange.ts), so that nothing is retried, followed or read without
 * bound, and so that an answer can be checked a second time without being asked for a second time.
 */
import {
  allowInsecureRequests,
  authorizationCodeGrant,
  buildAuthorizationUrl,
  calculatePKCECodeChallenge,
  ClientSecretBasic,
  Configuration,
  customFetch,
  enableNonRepudiationChecks,
  refreshTokenGrant,
  setJwksCache,
  tokenRevocation,
} from 'openid-client'
import { IntegrationError } from '@integration-host/shared/errors'
import { Secret } from '@integration-host/shared/secret'
import type {
  CodeExchange,
  Provider,
  ProviderAnswer,
  TokenOutcome,
  TokenSet,
} from '../../provider/provider.ts'
import type { DiscoveredProvider, Discovery } from './discovery.ts'
import { exchangeHttp, type HttpAnswer, NoAnswer } from './http-exchange.ts'
import { answerOf, outcomeOf, readTokenResponse, type TokenResponse } from './token-answer.ts'

export interface OpenIdProviderOptions {
  readonly discovery: Discovery
  readonly clientId: string
  /** Tried in order while the provider refuses the client; the one that works is tried first from then on. */
  readonly clientSecrets: readonly Secret[]
  readonly redirectUri: string
  readonly scope: string
  readonly now: () => number
  /** Milliseconds a token call may take as a whole: the wait for discovery, and every secret that is tried. */
  readonly deadlineMs: number
  /** Tells how long a call took and how it ended. */
  readonly observe?: (
    call: 'exchange' | 'refresh' | 'revoke',
    outcome: string,
    durationMs: number,
  ) => void
  /** An id token that came with a refresh and does not check out: it is not kept, the tokens are. */
  readonly onIdTokenRefused?: () => void
}

type Fetch = NonNullable<Configuration[typeof customFetch]>
type Grant = (configuration: Configuration) => Promise<unknown>

export function createOpenIdProvider(options: OpenIdProviderOptions): Provider {
  const { discovery, clientId, redirectUri, now, deadlineMs } = options
  let secrets = options.clientSecrets

  /** A configuration for one call, whose requests go through `fetch`. */
  function configure(
    { metadata, jwks }: DiscoveredProvider,
    secret: Secret,
    fetch: Fetch,
  ): Configuration {
    const configuration = new Configuration(
      metadata,
      clientId,
      undefined,
      ClientSecretBasic(secret.reveal()),
    )
    // Only where the operator configured http: discovery refuses a step down from https.
    if (new URL(metadata.token_endpoint).protocol === 'http:') allowInsecureRequests(configuration)
    configuration[customFetch] = fetch
    if (jwks !== null) {
      enableNonRepudiationChecks(configuration)
      // Ours are fetched beforehand: a code must not be spent and then lost to a JWKS that is down.
      setJwksCache(configuration, { jwks: { keys: jwks.keys }, uat: Math.floor(now() / 1_000) })
    }
    return configuration
  }

  const exchange = (
    request: Parameters<Fetch>[1],
    url: string,
    leftMs = deadlineMs,
  ): Promise<HttpAnswer> =>
    exchangeHttp(new URL(url), {
      method: request.method,
      headers: request.headers,
      body:
        request.body === undefined || request.body === null
          ? null
          : String(request.body as URLSearchParams),
      deadlineMs: leftMs,
    })

  /** Sends one token request. Tokens as they came, or the outcome that there are none. */
  async function send(
    provider: DiscoveredProvider,
    secret: Secret,
    grant: Grant,
    sent: readonly string[],
    leftMs: number,
  ): Promise<{ readonly answer: HttpAnswer; readonly response: TokenResponse } | TokenOutcome> {
    let answer: HttpAnswer | null = null
    let failure: NoAnswer | null = null
    const configuration = configure(provider, secret, async (url, request) => {
      if (request.method !== 'POST') throw new TypeError('only the token request is sent here')
      try {
        answer = await exchange(
          // Intuit tells when the grant ends for good only to who asks.
          { ...request, headers: { ...request.headers, [HARD_EXPIRY_HEADER]: 'true' } },
          url,
          leftMs,
        )
      } catch (error) {
        failure =
          error instanceof NoAnswer ? error : new NoAnswer('unknown', true, { cause: error })
      }
      // The library must not see the answer yet: it would throw away what it cannot check.
      throw new AnswerHeld()
    })
    await grant(configuration).catch((error: unknown) => {
      if (answer === null && failure === null) throw error
    })
    const failed = failure as NoAnswer | null
    const got = answer as HttpAnswer | null
    if (failed !== null || got === null) {
      const told: ProviderAnswer = {
        status: null,
        body: `no answer (${failed?.reason ?? 'unknown'})`,
        traceId: null,
      }
      return { kind: failed?.wasSent === false ? 'never_sent' : 'unknown', ...told }
    }
    const response = readTokenResponse(got)
    return response === null
      ? outcomeOf(got, [...sent, secret.reveal()], now())
      : { answer: got, response }
  }

  /** Sends with each client secret until one is not refused. Nothing is spent by a refused client. */
  async function sendWithSecrets(
    provider: DiscoveredProvider,
    grant: Grant,
    sent: readonly string[],
    until: number,
  ) {
    let last: Awaited<ReturnType<typeof send>> = NO_TIME_LEFT
    for (const secret of secrets) {
      // One time for all of them: whoever finds our intent waits for one call (I5 of the refresh).
      const leftMs = until - performance.now()
      if (leftMs <= 0) break
      last = await send(provider, secret, grant, sent, leftMs)
      if ('kind' in last && last.kind === 'client_refused') continue
      secrets = [secret, ...secrets.filter((other) => other !== secret)]
      return { result: last, secret }
    }
    return { result: last, secret: secrets[0] as Secret }
  }

  /** Lets the library check an answer that is already here (RFC 6749 §5.1, OpenID Connect Core §3.1.3.7). */
  async function check(
    provider: DiscoveredProvider,
    secret: Secret,
    grant: Grant,
    response: TokenResponse,
  ): Promise<void> {
    const configuration = configure(provider, secret, async (url, request) => {
      if (request.method === 'POST') return Response.json(response)
      // Signing keys that we have not seen: the provider may have rotated them.
      const { status, headers, text } = await exchange(request, url)
      return new Response(text, { status, headers })
    })
    await grant(configuration)
  }

  async function timed<T extends { readonly kind: string }>(
    call: 'exchange' | 'refresh',
    run: () => Promise<T>,
  ): Promise<T> {
    const startedAt = performance.now()
    const outcome = await run()
    options.observe?.(call, outcome.kind, performance.now() - startedAt)
    return outcome
  }

  const known = async (): Promise<DiscoveredProvider> => {
    const provider = await discovery.current()
    if (provider !== null) return provider
    throw new IntegrationError(
      'provider_unavailable',
      'the discovery document of the provider was never had',
      {
        retryAfterSeconds: 5,
      },
    )
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
        ...(asksForIdToken(options.scope) && { nonce }),
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

    exchangeCode: (request) =>
      timed('exchange', async () => {
        const until = performance.now() + deadlineMs
        const provider = await discovery.current()
        if (provider === null) return NOT_DISCOVERED
        const grant = (nonce: string | undefined): Grant => {
          const current = new URL(redirectUri)
          current.searchParams.set('code', request.code.reveal())
          // `iss` was compared when the callback came in; the library asks for it where the provider promises it.
          if (provider.metadata['authorization_response_iss_parameter_supported'] === true) {
            current.searchParams.set('iss', provider.metadata.issuer)
          }
          return (configuration) =>
            authorizationCodeGrant(configuration, current, {
              ...(request.codeVerifier !== null && {
                pkceCodeVerifier: request.codeVerifier.reveal(),
              }),
              ...(nonce !== undefined && { expectedNonce: nonce }),
              idTokenExpected: request.nonce !== null && asksForIdToken(options.scope),
            })
        }
        const sent = [request.code.reveal()]
        const { result, secret } = await sendWithSecrets(provider, grant(undefined), sent, until)
        if ('kind' in result) return result
        const { answer, response } = result
        try {
          await check(
            provider,
            secret,
            grant(expectedNonce(request, response, options.scope)),
            response,
          )
        } catch {
          const body = 'the token response does not check out'
          return { ...answerOf(answer, []), kind: 'refused', error: 'invalid_id_token', body }
        }
        return { kind: 'granted', tokens: tokensOf(response) }
      }),

    refresh: (refreshToken) =>
      timed('refresh', async () => {
        const until = performance.now() + deadlineMs
        const provider = await discovery.current()
        if (provider === null) return NOT_DISCOVERED
        const token = refreshToken.reveal()
        const grant: Grant = (configuration) =>
          refreshTokenGrant(configuration, token, { redirect_uri: redirectUri })
        const { result, secret } = await sendWithSecrets(provider, grant, [token], until)
        if ('kind' in result) return result
        const { response } = result
        try {
          await check(provider, secret, grant, response)
          return { kind: 'granted', tokens: tokensOf(response) }
        } catch {
          // The pair is good and the old one may be dead already: losing it for its id token would lock
          // the company out. The id token is not kept, and nothing else hangs on it.
          options.onIdTokenRefused?.()
          return { kind: 'granted', tokens: { ...tokensOf(response), idToken: null, realm: null } }
        }
      }),

    async revoke(refreshToken) {
      const startedAt = performance.now()
      const provider = await discovery.current()
      let isRevoked = false
      for (const secret of provider?.metadata.revocation_endpoint === undefined ? [] : secrets) {
        try {
          const configuration = configure(
            provider as DiscoveredProvider,
            secret,
            async (url, request) => {
              const { status, headers, text } = await exchange(request, url)
              return new Response(status === 204 ? null : text, { status, headers })
            },
          )
          await tokenRevocation(configuration, refreshToken.reveal(), {
            token_type_hint: 'refresh_token',
          })
          isRevoked = true
          break
        } catch {
          // Refused or away: the caller is told that nothing was confirmed.
        }
      }
      options.observe?.('revoke', isRevoked ? 'revoked' : 'refused', performance.now() - startedAt)
      return isRevoked
    },
  }
}

const HARD_EXPIRY_HEADER = 'x-include-refresh-token-hard-expires-in'

const NOT_DISCOVERED: TokenOutcome = {
  kind: 'never_sent',
  status: null,
  body: 'no answer (the discovery document was never had)',
  traceId: null,
}

const NO_TIME_LEFT: TokenOutcome = {
  kind: 'never_sent',
  status: null,
  body: 'no answer (the discovery document came too late)',
  traceId: null,
}

/** Ends the library's part in a request whose answer is looked at first. */
class AnswerHeld extends Error {
  override readonly name = 'AnswerHeld'
}

const asksForIdToken = (scope: string): boolean => scope.split(' ').includes('openid')

const tokensOf = (response: TokenResponse): TokenSet => ({
  accessToken: new Secret(response.access_token),
  refreshToken: response.refresh_token === undefined ? null : new Secret(response.refresh_token),
  idToken: response.id_token === undefined ? null : new Secret(response.id_token),
  realm: claimOf(response.id_token, 'realmid'),
  lifetimeSeconds: response.expires_in,
  idleSeconds: response.x_refresh_token_expires_in ?? null,
  hardSeconds: response.x_refresh_token_hard_expires_in ?? null,
})

/**
 * The nonce an id token must carry. Where the authorization request was another application's, its nonce is
 * that application's to check, so the token's own is taken: the library has no way to leave it unchecked.
 */
function expectedNonce(
  request: CodeExchange,
  response: TokenResponse,
  scope: string,
): string | undefined {
  if (request.nonce !== null) return asksForIdToken(scope) ? request.nonce : undefined
  return claimOf(response.id_token, 'nonce') ?? undefined
}

/** A claim of an id token as it is written there; null unless it is a string. Checks nothing. */
function claimOf(idToken: string | undefined, claim: string): string | null {
  try {
    const payload = Buffer.from(idToken?.split('.')[1] ?? '', 'base64url').toString('utf8')
    const value = (JSON.parse(payload) as Record<string, unknown>)[claim]
    return typeof value === 'string' ? value : null
  } catch {
    return null
  }
}
