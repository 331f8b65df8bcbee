/**
 * Signs persons in at an OpenID provider by the authorization code flow with PKCE (RFC 7636). openid-client checks the
 * state, the nonce, the issuer of the response (RFC 9207), and the signature of the id token.
 */
import { IntegrationError } from '@integration-host/shared/errors'
import type { ProxiedFetch } from '@integration-host/shared/http/forward-proxy/tunnel'
import type { Secret } from '@integration-host/shared/secrets/secret'
import {
  allowInsecureRequests,
  authorizationCodeGrant,
  AuthorizationResponseError,
  buildAuthorizationUrl,
  calculatePKCECodeChallenge,
  ClientError,
  ClientSecretBasic,
  ClientSecretPost,
  type Configuration,
  customFetch,
  discovery,
  enableNonRepudiationChecks,
  randomNonce,
  randomPKCECodeVerifier,
  randomState,
  ResponseBodyError,
  WWWAuthenticateChallengeError,
} from 'openid-client'
import type { PersonClaims } from '../../session/authorize.ts'
import type { SignInFlow } from '../../session/sign-in-flow.ts'

export interface OpenIdProviderOptions {
  readonly issuer: string
  readonly clientId: string
  readonly clientSecret: Secret
  readonly scope: string
  /** Returns the address to which the provider sends the browser back. */
  readonly redirectUri: () => string
  /** Reports why a sign-in failed. The reason contains no text from the provider or the browser. */
  readonly onFailure: (reason: string) => void
  /** Sends the requests to the provider. */
  readonly fetch: ProxiedFetch
  /** The time in milliseconds. */
  readonly now: () => number
}

/** The OpenID provider at which persons sign in. */
export interface OpenIdProvider {
  /** The host name of the provider, for the sign-in page. */
  readonly host: string
  /**
   * Returns the address to which the browser is sent, and the data that the browser must bring back. `confirm` is the
   * user name of a person who has signed in before: then the provider confirms the person without showing a page, or
   * reports that it cannot (`prompt=none`, OpenID Connect Core §3.1.2.1).
   *
   * @throws {IntegrationError} `provider_unavailable` if the discovery document cannot be read.
   */
  begin(
    confirm?: string,
  ): Promise<{ readonly url: string; readonly flow: Omit<SignInFlow, 'returnTo'> }>
  /**
   * Exchanges the code of a callback, and returns the claims of the verified id token; `null` if the provider reports
   * that it cannot confirm the person without showing a page. The tokens are not kept. `query` is the query of the
   * callback.
   *
   * @throws {IntegrationError} `sign_in_rejected` if the response does not belong to this flow, or its id token is not
   * valid; `provider_unavailable` if the provider does not respond.
   */
  complete(flow: SignInFlow, query: string): Promise<PersonClaims | null>
}

const TIMEOUT_SECONDS = 10
/** The errors of a provider that may not show a page (OpenID Connect Core §3.1.2.6). */
const NEEDS_PAGE: readonly string[] = [
  'login_required',
  'interaction_required',
  'account_selection_required',
  'consent_required',
]
/** The discovery document is read again after this time, so that changed endpoints and keys are found. */
const REDISCOVER_MS = 60 * 60_000
/** After a failure, the discovery document is not requested again during this time, because anyone can cause requests. */
const RETRY_SECONDS = 5

/** Reads the discovery document when the first person signs in, so that the console starts without the provider. */
export function createOpenIdProvider(options: OpenIdProviderOptions): OpenIdProvider {
  const { clientId, scope, redirectUri, onFailure, now } = options
  const issuer = new URL(options.issuer)
  const secret = options.clientSecret.reveal()
  /** The current discovery, which all sign-ins share; `null` for a configuration that could not be read. */
  let discovered: Promise<Configuration | null> | null = null
  let usableUntil = Number.NEGATIVE_INFINITY

  const discover = (): Promise<Configuration> =>
    discovery(
      issuer,
      clientId,
      undefined,
      (server, client, body, headers) => {
        // Providers decode the header of HTTP Basic in different ways, so the client credentials in the body are
        // preferred. A provider that names no methods supports HTTP Basic (RFC 8414 §2).
        const methods = server.token_endpoint_auth_methods_supported ?? []
        const authenticate = methods.includes('client_secret_post')
          ? ClientSecretPost(secret)
          : ClientSecretBasic(secret)
        return authenticate(server, client, body, headers)
      },
      {
        timeout: TIMEOUT_SECONDS,
        [customFetch]: (url, init) => options.fetch(url, init as RequestInit),
        // readConfig accepts an http issuer only at a loopback address.
        execute: [
          enableNonRepudiationChecks,
          ...(issuer.protocol === 'http:' ? [allowInsecureRequests] : []),
        ],
      },
    )

  async function begunDiscovery(): Promise<Configuration | null> {
    try {
      const configuration = await discover()
      usableUntil = now() + REDISCOVER_MS
      return configuration
    } catch (cause) {
      usableUntil = now() + RETRY_SECONDS * 1_000
      onFailure(`the discovery document cannot be used: ${reasonOf(cause)}`)
      return null
    }
  }

  async function configured(): Promise<Configuration> {
    if (discovered === null || now() >= usableUntil) {
      usableUntil = Number.POSITIVE_INFINITY
      discovered = begunDiscovery()
    }
    const configuration = await discovered
    if (configuration === null) throw unavailable()
    return configuration
  }

  return {
    host: issuer.host,
    async begin(confirm) {
      const flow = {
        state: randomState(),
        nonce: randomNonce(),
        verifier: randomPKCECodeVerifier(),
      }
      const url = buildAuthorizationUrl(await configured(), {
        redirect_uri: redirectUri(),
        scope,
        state: flow.state,
        nonce: flow.nonce,
        code_challenge: await calculatePKCECodeChallenge(flow.verifier),
        code_challenge_method: 'S256',
        ...(confirm !== undefined && { prompt: 'none' }),
        // Without it, a provider at which the person has several accounts would have to ask for the account.
        ...(confirm?.includes('@') === true && { login_hint: confirm }),
      })
      return { url: url.href, flow }
    },
    async complete(flow, query) {
      const configuration = await configured()
      try {
        const tokens = await authorizationCodeGrant(configuration, new URL(redirectUri() + query), {
          expectedState: flow.state,
          expectedNonce: flow.nonce,
          pkceCodeVerifier: flow.verifier,
          idTokenExpected: true,
        })
        const claims = tokens.claims()
        if (claims === undefined) throw new ClientError('there is no id token')
        return claims
      } catch (cause) {
        // openid-client has verified the state of the error response before.
        if (cause instanceof AuthorizationResponseError && NEEDS_PAGE.includes(cause.error))
          return null
        onFailure(reasonOf(cause))
        if (isUnavailable(cause)) throw unavailable()
        throw new IntegrationError(
          'sign_in_rejected',
          cause instanceof AuthorizationResponseError && cause.error === 'access_denied'
            ? 'The sign-in was cancelled at the provider'
            : 'The response of the provider does not belong to this sign-in, or has expired',
        )
      }
    },
  }
}

// The errors of openid-client contain parameters and claims, so they are never the `cause` of an error that is logged.
const unavailable = (): IntegrationError =>
  new IntegrationError('provider_unavailable', 'The sign-in provider does not respond', {
    retryAfterSeconds: RETRY_SECONDS,
  })

/** Returns whether the provider did not respond, or reported an internal failure. */
function isUnavailable(error: unknown): boolean {
  if (error instanceof ResponseBodyError) return error.status >= 500
  if (error instanceof ClientError) {
    const { code, cause } = error
    return code === 'OAUTH_TIMEOUT' || (cause instanceof Response && cause.status >= 500)
  }
  return isFailedFetch(error)
}

const isFailedFetch = (error: unknown): boolean =>
  error instanceof TypeError && error.message === 'fetch failed'

/** Returns a reason for the log. The reason is a text or code of the library, never a text of the provider. */
function reasonOf(error: unknown): string {
  if (error instanceof AuthorizationResponseError) return 'the provider reported an error'
  if (error instanceof ResponseBodyError || error instanceof WWWAuthenticateChallengeError)
    return `the provider responded with ${error.status}`
  if (!(error instanceof ClientError) && !isFailedFetch(error)) return 'the response is not valid'
  // The cause of a ClientError is an error of oauth4webapi, whose message names the invalid member.
  const { cause, message } = error as Error
  if (cause instanceof Error && cause.message !== '') return cause.message
  return message
}
