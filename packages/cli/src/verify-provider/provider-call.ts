/** Calls the provider with a deadline for the whole response and a size limit for the body. Follows no redirect. */
import { randomBytes } from 'node:crypto'
import { boundedText } from '@integration-host/shared/http/response-body'
import {
  type ProxyFor,
  withoutProxy,
} from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { createProxiedFetch } from '@integration-host/shared/http/forward-proxy/tunnel'
import { parseJsonObject } from '@integration-host/shared/json'
import { reasonOf } from '@integration-host/shared/observability/health'
import type { Secret } from '@integration-host/shared/secrets/secret'

export interface ProviderResponse {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  /** The body as a JSON object; `null` if the body is not a JSON object. */
  readonly json: Readonly<Record<string, unknown>> | null
}

/** No complete response was received. The provider may nevertheless have processed the request. */
export class NoResponse extends Error {
  override readonly name = 'NoResponse'
}

/** @throws {NoResponse} or the reason of the signal. */
export type CallProvider = (
  url: string | URL,
  init?: {
    readonly method?: string
    readonly headers?: Readonly<Record<string, string>>
    readonly body?: string | URLSearchParams
  },
) => Promise<ProviderResponse>

const MAX_BYTES = 1_048_576

export function createCall({
  signal,
  deadlineMs,
  proxyFor = withoutProxy,
  onResponse,
}: {
  /** Aborts all calls. */
  readonly signal: AbortSignal
  readonly deadlineMs: number
  readonly proxyFor?: ProxyFor
  readonly onResponse?: (response: ProviderResponse) => void
}): CallProvider {
  const send = createProxiedFetch(proxyFor)
  return async (url, init = {}) => {
    const deadline = AbortSignal.timeout(deadlineMs)
    try {
      const response = await send(url, {
        ...init,
        headers: { Accept: 'application/json', ...init.headers },
        redirect: 'manual',
        signal: AbortSignal.any([signal, deadline]),
      })
      const { status, headers } = response
      const text = await boundedText(response, MAX_BYTES)
      const whole = { status, headers, text, json: parseJsonObject(text) }
      onResponse?.(whole)
      return whole
    } catch (error) {
      signal.throwIfAborted()
      throw new NoResponse(
        deadline.aborted ? `no response within ${deadlineMs / 1_000} s` : failureOf(error),
        { cause: error },
      )
    }
  }
}

function failureOf(error: unknown): string {
  if (error instanceof RangeError) return error.message // the response is too large
  const reason = reasonOf(error)
  return `no response (${/^[A-Za-z_]{1,50}$/.test(reason) ? reason : 'unknown'})`
}

/** Returns an HTTP Basic header value of the form-encoded client id and secret (RFC 6749 §2.3.1). */
export function basicAuthorization(clientId: string, secret: Secret): string {
  const pair = [clientId, secret.reveal()].map((part) =>
    new URLSearchParams({ v: part }).toString().slice(2),
  )
  return `Basic ${Buffer.from(pair.join(':')).toString('base64')}`
}

/**
 * Presents a made-up code at the token endpoint, which changes nothing there. The result is `right` after
 * `invalid_grant`, `rejected` after `invalid_client` (RFC 6749 §5.2) or a 401 in any format, and `unclear` if the
 * response does not show whether client id and secret are valid.
 */
export async function checkKeyPair(
  call: CallProvider,
  client: {
    readonly tokenEndpoint: string
    readonly clientId: string
    readonly clientSecret: Secret
    readonly redirect: string
    readonly headers: Readonly<Record<string, string>>
  },
): Promise<{
  readonly kind: 'right' | 'rejected' | 'unclear'
  readonly response: ProviderResponse
}> {
  const { tokenEndpoint, clientId, clientSecret, redirect, headers } = client
  const response = await call(tokenEndpoint, {
    method: 'POST',
    headers: { ...headers, Authorization: basicAuthorization(clientId, clientSecret) },
    body: new URLSearchParams({
      grant_type: 'authorization_code',
      code: `made-up-${randomBytes(16).toString('base64url')}`,
      redirect_uri: redirect,
      // A provider that requires PKCE rejects a request without a code verifier. Other providers ignore the verifier.
      code_verifier: randomBytes(32).toString('base64url'),
    }),
  })
  const error = response.json?.['error']
  if (error === 'invalid_grant') return { kind: 'right', response }
  const isRejected = error === 'invalid_client' || response.status === 401
  return { kind: isRejected ? 'rejected' : 'unclear', response }
}
