/**
 * Sends the requests with which this client authenticates itself to the provider: token requests (RFC 6749 §4.1.3 and
 * §6) and revocations (RFC 7009).
 *
 * Sending a token request and reading its response are code of this service, because they are the refresh protocol: a
 * rotated token pair must be read from a response in any form, and an outcome must say whether the provider may have used
 * up the refresh token. send-request.ts does not retry, does not follow redirects, and limits the size of the response.
 */
import type { ProxyFor } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { TokenOutcome } from '../../provider/provider.ts'
import type { DiscoveredProvider } from './discovery.ts'
import { isSuccess, NoResponse, type ProviderHttpResponse, sendRequest } from './send-request.ts'
import {
  mayHoldTokens,
  outcomeOf,
  readTokenResponse,
  type TokenResponse,
} from './token-response.ts'

/** A token response from which the tokens could be read. Its id token is not verified yet. */
interface ReceivedTokens {
  readonly kind: 'received'
  readonly raw: ProviderHttpResponse
  readonly response: TokenResponse
}

export function createClientRequests(options: {
  readonly profile: ProviderProfile
  readonly clientId: string
  readonly clientSecrets: readonly Secret[]
  readonly now: () => number
  readonly proxyFor: ProxyFor
}) {
  const { profile, clientId, now, proxyFor } = options
  /**
   * The client secrets in the order in which requests try them. During a rotation, the old and the new secret are
   * configured, and the provider accepts one of them or both. A secret moves to the front after it was accepted.
   */
  let secrets = options.clientSecrets

  const post = (
    endpoint: string,
    secret: Secret,
    contentType: string,
    body: string,
    deadlineMs: number,
    moreHeaders: Readonly<Record<string, string>> = {},
  ): Promise<ProviderHttpResponse> => {
    const headers = {
      accept: 'application/json',
      authorization: basicAuthorization(clientId, secret),
      'content-type': contentType,
      'user-agent': 'integration-host',
      ...moreHeaders,
    }
    return sendRequest(new URL(endpoint), { method: 'POST', headers, body, deadlineMs }, proxyFor)
  }

  async function tokensWith(
    secret: Secret,
    endpoint: string,
    grant: Readonly<Record<string, string>>,
    sensitive: string,
    deadlineMs: number,
  ): Promise<ReceivedTokens | TokenOutcome> {
    const { requestHeaders } = profile.token
    const form = new URLSearchParams(grant).toString()
    let raw: ProviderHttpResponse
    try {
      raw = await post(endpoint, secret, FORM, form, deadlineMs, requestHeaders)
    } catch (error) {
      return withoutResponse(error instanceof NoResponse ? error : new NoResponse('unknown', true))
    }
    const response = readTokenResponse(raw, profile.token)
    if (response !== null) return { kind: 'received', raw, response }
    if (raw.cutOff === null) return outcomeOf(raw, [sensitive, secret.reveal()], now())
    const incomplete = withoutResponse(new NoResponse(raw.cutOff, true))
    return { ...incomplete, ...(mayHoldTokens(raw) && UNREAD) }
  }

  /**
   * Sends a token request with each client secret until the provider accepts one. A request with a rejected client
   * secret uses up neither the code nor the refresh token.
   *
   * `grant` contains the parameters of the request except the credentials of the client. `sensitive` is the secret
   * among them, which is redacted in the outcome. `until` is the deadline on the clock of `performance.now()`. All
   * requests share this deadline, because another replica that reads the stored intent waits only as long as one
   * request may take (I5 in credential/refresh.ts).
   */
  async function requestTokens(
    { metadata }: DiscoveredProvider,
    grant: Readonly<Record<string, string>>,
    sensitive: string,
    until: number,
  ): Promise<ReceivedTokens | TokenOutcome> {
    let last: ReceivedTokens | TokenOutcome = withoutResponse(
      new NoResponse('the discovery document arrived too late', false),
    )
    for (const secret of secrets) {
      const leftMs = until - performance.now()
      if (leftMs <= 0) break
      last = await tokensWith(secret, metadata.token_endpoint, grant, sensitive, leftMs)
      if (last.kind === 'client_refused') continue
      secrets = [secret, ...secrets.filter((other) => other !== secret)]
      break
    }
    return last
  }

  /**
   * Revokes a refresh token, as RFC 7009 or the provider profile specifies. Resolves with `true` if the provider
   * confirmed that the grant has ended, whether by this request or earlier. Tries the next client secret only after a
   * 401. Never throws.
   */
  async function revoke(
    provider: DiscoveredProvider | null,
    refreshToken: Secret,
    deadlineMs: number,
  ): Promise<boolean> {
    const endpoint = provider?.metadata.revocation_endpoint
    if (endpoint === undefined) return false
    const token = refreshToken.reveal()
    const [contentType, body] =
      profile.revocation.body === 'form'
        ? [FORM, new URLSearchParams({ token, token_type_hint: 'refresh_token' }).toString()]
        : ['application/json', JSON.stringify({ token })]
    for (const secret of secrets) {
      const response = await post(endpoint, secret, contentType, body, deadlineMs).catch(() => null)
      if (response === null) return false
      // The status alone confirms the revocation, whatever the body is and even if its end is missing. According to
      // RFC 7009 §2.2, the revocation of an invalid token also succeeds.
      if (isSuccess(response.status)) return true
      if (response.cutOff === null && profile.revocation.isAlreadyRevoked(response)) return true
      if (response.status !== 401) return false
    }
    return false
  }

  return { requestTokens, revoke }
}

const FORM = 'application/x-www-form-urlencoded;charset=UTF-8'

const UNREAD = { kind: 'unknown', mayHoldTokens: true } as const

/** Returns the outcome of a request that got no response. */
export const withoutResponse = ({ reason, wasSent }: NoResponse) =>
  ({
    kind: wasSent ? 'unknown' : 'never_sent',
    status: null,
    body: `no response (${reason})`,
    traceId: null,
  }) as const

/**
 * Returns the header `Authorization` that authenticates the client by HTTP Basic with form-encoded client id and secret
 * (RFC 6749 §2.3.1).
 *
 * ClientSecretBasic of openid-client also percent-encodes `-`, `_` and `.`, which form encoding leaves unchanged. A
 * provider that compares the header without decoding it would reject a secret with a percent-encoded hyphen. Intuit's
 * SDKs do not encode these characters.
 */
function basicAuthorization(clientId: string, secret: Secret): string {
  const credentials = `${formEncoded(clientId)}:${formEncoded(secret.reveal())}`
  return `Basic ${Buffer.from(credentials).toString('base64')}`
}

const formEncoded = (text: string): string => new URLSearchParams({ '': text }).toString().slice(1)
