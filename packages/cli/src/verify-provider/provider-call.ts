/**
 * Calls the provider with a deadline for the whole response and a size limit for the body. Redirects are not followed.
 */
import {
  type ProxyFor,
  withoutProxy,
} from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { ForwardProxyError } from '@integration-host/shared/http/forward-proxy/forward-proxy-error'
import { createProxiedFetch } from '@integration-host/shared/http/forward-proxy/proxied-fetch'
import { parseJsonObject } from '@integration-host/shared/json'
import { reasonOf } from '@integration-host/shared/observability/health'

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

export type CallProvider = (
  url: string | URL,
  init?: {
    readonly method?: string
    readonly headers?: Readonly<Record<string, string>>
    readonly body?: string | URLSearchParams
  },
) => Promise<ProviderResponse>

const BODY_LIMIT_BYTES = 1_048_576

export interface CallOptions {
  /** Aborts all calls. An aborted call throws the reason of this signal. */
  readonly signal: AbortSignal
  readonly deadlineMs: number
  readonly proxyFor?: ProxyFor
  readonly onResponse?: (response: ProviderResponse) => void
}

/** Returns the function that calls the provider. The function throws {@link NoResponse}, or the reason of `signal`. */
export function createCall({
  signal,
  deadlineMs,
  proxyFor = withoutProxy,
  onResponse,
}: CallOptions): CallProvider {
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
      const text = await readBounded(response)
      const whole = {
        status: response.status,
        headers: response.headers,
        text,
        json: parseJsonObject(text),
      }
      onResponse?.(whole)
      return whole
    } catch (error) {
      signal.throwIfAborted()
      if (error instanceof NoResponse) throw error
      const reason = deadline.aborted
        ? `no response within ${deadlineMs / 1_000} s`
        : `no response (${networkReason(error)})`
      throw new NoResponse(reason, { cause: error })
    }
  }
}

async function readBounded(response: Response): Promise<string> {
  const chunks: Uint8Array[] = []
  let size = 0
  const body: AsyncIterable<Uint8Array> | null = response.body
  for await (const chunk of body ?? []) {
    size += chunk.byteLength
    if (size > BODY_LIMIT_BYTES) throw new NoResponse('the response is larger than 1 MiB')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

// fetch rejects with `TypeError: fetch failed`; the network error is its `cause`. The error of a forward proxy has a code
// of its own.
const networkReason = (error: unknown): string => {
  const { cause } = error as { cause?: unknown }
  const isOfProxy = error instanceof ForwardProxyError
  const reason = reasonOf(cause instanceof Error && !isOfProxy ? cause : error)
  return /^[A-Za-z_]{1,50}$/.test(reason) ? reason : 'unknown'
}
