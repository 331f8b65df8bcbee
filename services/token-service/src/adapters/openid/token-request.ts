/**
 * Sends a token request through openid-client, which builds the request and validates the response. Keeps a copy of the
 * token response, because a rotated token pair must be stored even if openid-client rejects the id token.
 *
 * send-request.ts sends the HTTP request. It does not retry, does not follow redirects, and limits the size of the
 * response.
 */
import type { Configuration } from 'openid-client'
import type { ProxyFor } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { ProviderResponse, TokenOutcome } from '../../provider/provider.ts'
import type { ClientSecrets } from './client-secrets.ts'
import { configure, sendLibraryRequest, toLibraryResponse } from './configuration.ts'
import type { DiscoveredProvider } from './discovery.ts'
import { NoResponse, type ProviderHttpResponse } from './send-request.ts'
import {
  mayHoldTokens,
  outcomeOf,
  readTokenResponse,
  type TokenResponse,
} from './token-response.ts'

/**
 * Calls a grant function of openid-client, for example `refreshTokenGrant`. `response` returns the token response;
 * `null` before it has arrived.
 */
export type Grant = (
  configuration: Configuration,
  response: () => TokenResponse | null,
) => Promise<unknown>

/** A complete token response, and the error of openid-client if it rejects the id token. */
export interface ReceivedTokens {
  readonly kind: 'received'
  readonly raw: ProviderHttpResponse
  readonly response: TokenResponse
  /** The error of openid-client; `null` if openid-client accepts the whole response. */
  readonly rejection: Error | null
}

export interface TokenRequestOptions {
  readonly profile: ProviderProfile
  readonly clientId: string
  readonly clientSecrets: ClientSecrets
  readonly now: () => number
  /** Milliseconds that one HTTP request for signing keys may take. */
  readonly deadlineMs: number
  readonly proxyFor: ProxyFor
}

/**
 * Sends a token request with each client secret until the provider accepts one. A request with a rejected client secret
 * uses up neither the code nor the refresh token.
 *
 * `sent` contains the secrets of the request, which are redacted in the outcome. `until` is the deadline on the clock
 * of `performance.now()`. All requests share this deadline, because another replica that reads the stored intent waits
 * only as long as one request may take (I5 in credential/refresh.ts).
 */
export type SendTokenRequest = (
  provider: DiscoveredProvider,
  grant: Grant,
  sent: readonly string[],
  until: number,
) => Promise<ReceivedTokens | TokenOutcome>

export function createTokenRequest(options: TokenRequestOptions): SendTokenRequest {
  const { profile, clientId, clientSecrets, now, deadlineMs, proxyFor } = options

  async function sendWithSecret(
    provider: DiscoveredProvider,
    secret: Secret,
    grant: Grant,
    sent: readonly string[],
    leftMs: number,
  ): Promise<ReceivedTokens | TokenOutcome> {
    let raw: ProviderHttpResponse | null = null
    let response: TokenResponse | null = null
    let failure: TokenOutcome | null = null
    const configuration = configure(provider, clientId, secret, async (url, outgoing) => {
      // openid-client sends only token requests as POST. A request with any other method fetches the JWKS again,
      // because the id token is signed with an unknown key.
      if (outgoing.method !== 'POST')
        return toLibraryResponse(await sendLibraryRequest(outgoing, url, deadlineMs, proxyFor))
      const headers = { ...outgoing.headers, ...profile.token.requestHeaders }
      try {
        raw = await sendLibraryRequest({ ...outgoing, headers }, url, leftMs, proxyFor)
      } catch (error) {
        failure = outcomeWithoutResponse(
          error instanceof NoResponse ? error : new NoResponse('unknown', true),
        )
        throw error
      }
      response = readTokenResponse(raw, profile.token)
      if (response === null && raw.cutOff !== null) {
        const error = new NoResponse(raw.cutOff, true)
        failure = { ...outcomeWithoutResponse(error), ...(mayHoldTokens(raw) && UNREAD) }
        throw error
      }
      // openid-client rejects deviations from RFC 6749 §5.1 that are common among providers, for example `expires_in`
      // as a string. readTokenResponse accepts them, so openid-client gets a normalized response.
      return response === null ? toLibraryResponse(raw) : Response.json(response.wire)
    })
    const rejection = await grant(configuration, () => response).then(
      () => null,
      (error: unknown) => (error instanceof Error ? error : new TypeError('not an error')),
    )
    // TypeScript does not detect that the callback above assigns these variables.
    const seen = { raw, response, failure } as {
      readonly raw: ProviderHttpResponse | null
      readonly response: TokenResponse | null
      readonly failure: TokenOutcome | null
    }
    if (seen.failure !== null) return seen.failure
    if (seen.raw === null) throw rejection ?? new TypeError('openid-client sent no request')
    return seen.response === null
      ? outcomeOf(seen.raw, [...sent, secret.reveal()], now())
      : { kind: 'received', raw: seen.raw, response: seen.response, rejection }
  }

  return async (provider, grant, sent, until) => {
    let last: ReceivedTokens | TokenOutcome = NO_TIME_LEFT
    for (const secret of clientSecrets.inOrder) {
      const leftMs = until - performance.now()
      if (leftMs <= 0) break
      last = await sendWithSecret(provider, secret, grant, sent, leftMs)
      if (last.kind === 'client_refused') continue
      clientSecrets.accepted(secret)
      break
    }
    return last
  }
}

const NO_TIME_LEFT: TokenOutcome = {
  kind: 'never_sent',
  status: null,
  body: 'no response (the discovery document arrived too late)',
  traceId: null,
}

const UNREAD = { kind: 'unknown', mayHoldTokens: true } as const

function outcomeWithoutResponse({ reason, wasSent }: NoResponse) {
  const shown: ProviderResponse = { status: null, body: `no response (${reason})`, traceId: null }
  return { kind: wasSent ? 'unknown' : 'never_sent', ...shown } as const
}
