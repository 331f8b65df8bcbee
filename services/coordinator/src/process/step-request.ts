import { realmOf } from '@integration-host/shared/contracts/realm'
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import type { Json } from './json-normalization.ts'

export interface StepRequest {
  /** An absolute URL. With a `credential`, only a path, which is appended to the gateway's address. */
  readonly url: string
  /** Default: GET. */
  readonly method?: string
  readonly query?: Readonly<Record<string, string | number | boolean>>
  readonly headers?: Readonly<Record<string, string>>
  /** The request body. Text is sent unchanged, any other value as JSON. */
  readonly body?: Json
}

export interface Gateway {
  readonly url: string
  readonly key: string
  /** Returns the error that the response body of a provider describes; `null` if the body describes none. */
  readonly faultOf: ProviderProfile['accounting']['faultOf']
}

/**
 * Headers that frame the message or apply to its connection only (RFC 9110 §7.6.1). Only the HTTP client may
 * set them.
 */
const CONNECTION_HEADERS = new Set([
  'connection',
  'content-length',
  'expect',
  'host',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
])

/**
 * Builds the HTTP call of a request. @throws {TypeError} if the request cannot be sent, which is a bug of the
 * step.
 */
export function outgoingCall(
  request: StepRequest,
  credential: string | undefined,
  gateway: Gateway,
) {
  const isGateway = credential !== undefined
  const url = isGateway ? gatewayUrl(request.url, credential, gateway.url) : new URL(request.url)
  if (url.protocol !== 'http:' && url.protocol !== 'https:')
    throw new TypeError('a step can only call http(s) addresses')
  const method = (request.method ?? 'GET').toUpperCase()
  if (!/^[A-Z]{1,20}$/.test(method))
    throw new TypeError('the method of a call must be an HTTP method')
  for (const [name, value] of Object.entries(request.query ?? {}))
    url.searchParams.append(name, String(value))
  const body =
    request.body === undefined
      ? null
      : typeof request.body === 'string'
        ? request.body
        : JSON.stringify(request.body)
  return {
    method,
    url,
    headers: {
      accept: 'application/json',
      ...(body !== null &&
        typeof request.body !== 'string' && { 'content-type': 'application/json' }),
      ...(request.headers !== undefined && headersOf(request.headers)),
      ...(isGateway && { authorization: `Bearer ${gateway.key}` }),
    },
    body,
  }
}

/** @throws {TypeError} for invalid header names and values. */
function headersOf(given: Readonly<Record<string, string>>): Record<string, string> {
  const headers = Object.fromEntries(new Headers(given))
  const foreign = Object.keys(headers).find((name) => CONNECTION_HEADERS.has(name))
  if (foreign !== undefined) throw new TypeError(`a step must not set the header ${foreign}`)
  return headers
}

function gatewayUrl(path: string, credential: string, gateway: string): URL {
  const realm = realmOf(credential)
  const url = new URL(gateway + path)
  // The call carries the coordinator's service key. Therefore it must be sent only to the gateway, and only to
  // the named realm.
  if (!path.startsWith('/') || url.origin !== new URL(gateway).origin)
    throw new TypeError('the url of a call with a credential must be a path, not an address')
  if (!credential.startsWith('ACC-') || !url.pathname.startsWith(`/v3/company/${realm}/`))
    throw new TypeError(`the path must be below /v3/company/<realm>/ of ${credential}`)
  return url
}
