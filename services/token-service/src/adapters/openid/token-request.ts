/**
 * Sends a token request (RFC 6749 §4.1.3 and §6) and reads its response.
 *
 * Both are code of this service, because they are the refresh protocol: a rotated token pair must be read from a response
 * in any form, and an outcome must say whether the provider may have used up the refresh token. send-request.ts does not
 * retry, does not follow redirects, and limits the size of the response.
 */
import type { ProxyFor } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { ProviderResponse, TokenOutcome } from '../../provider/provider.ts'
import { basicAuthorization } from './basic-authorization.ts'
import type { ClientSecrets } from './client-secrets.ts'
import { NoResponse, type ProviderHttpResponse, sendRequest } from './send-request.ts'
import {
  mayHoldTokens,
  outcomeOf,
  readTokenResponse,
  type TokenResponse,
} from './token-response.ts'

/** A token response from which the tokens could be read. Its id token is not verified yet. */
export interface ReceivedTokens {
  readonly kind: 'received'
  readonly raw: ProviderHttpResponse
  readonly response: TokenResponse
}

export interface TokenRequestOptions {
  readonly profile: ProviderProfile
  readonly clientId: string
  readonly clientSecrets: ClientSecrets
  readonly now: () => number
  readonly proxyFor: ProxyFor
}

/**
 * Sends a token request with each client secret until the provider accepts one. A request with a rejected client secret
 * uses up neither the code nor the refresh token.
 *
 * `grant` contains the parameters of the request except the credentials of the client. `secrets` contains the secrets
 * among them, which are redacted in the outcome. `until` is the deadline on the clock of `performance.now()`. All
 * requests share this deadline, because another replica that reads the stored intent waits only as long as one request
 * may take (I5 in credential/refresh.ts).
 */
export type SendTokenRequest = (
  endpoint: URL,
  grant: Readonly<Record<string, string>>,
  secrets: readonly string[],
  until: number,
) => Promise<ReceivedTokens | TokenOutcome>

export function createTokenRequest(options: TokenRequestOptions): SendTokenRequest {
  const { profile, clientId, clientSecrets, now, proxyFor } = options

  async function sendWithSecret(
    endpoint: URL,
    secret: Secret,
    grant: Readonly<Record<string, string>>,
    secrets: readonly string[],
    deadlineMs: number,
  ): Promise<ReceivedTokens | TokenOutcome> {
    const headers = {
      accept: 'application/json',
      authorization: basicAuthorization(clientId, secret),
      'content-type': 'application/x-www-form-urlencoded;charset=UTF-8',
      'user-agent': 'integration-host',
      ...profile.token.requestHeaders,
    }
    const body = new URLSearchParams(grant).toString()
    let raw: ProviderHttpResponse
    try {
      raw = await sendRequest(endpoint, { method: 'POST', headers, body, deadlineMs }, proxyFor)
    } catch (error) {
      return outcomeWithoutResponse(
        error instanceof NoResponse ? error : new NoResponse('unknown', true),
      )
    }
    const response = readTokenResponse(raw, profile.token)
    if (response !== null) return { kind: 'received', raw, response }
    if (raw.cutOff === null) return outcomeOf(raw, [...secrets, secret.reveal()], now())
    const incomplete = outcomeWithoutResponse(new NoResponse(raw.cutOff, true))
    return { ...incomplete, ...(mayHoldTokens(raw) && UNREAD) }
  }

  return async (endpoint, grant, secrets, until) => {
    let last: ReceivedTokens | TokenOutcome = NO_TIME_LEFT
    for (const secret of clientSecrets.inOrder) {
      const leftMs = until - performance.now()
      if (leftMs <= 0) break
      last = await sendWithSecret(endpoint, secret, grant, secrets, leftMs)
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
