import { realmOf } from '@integration-host/shared/contracts/realm'
import type { Json } from './json-normalization.ts'

export interface StepRequest {
  /** Absolute; a path when `credential` is given, because the gateway's address comes before it. */
  readonly url: string
  /** GET unless given. */
  readonly method?: string
  readonly query?: Readonly<Record<string, string | number | boolean>>
  readonly headers?: Readonly<Record<string, string>>
  /** Text is sent as it is, anything else as JSON. */
  readonly body?: Json
}

export interface Gateway {
  readonly url: string
  readonly key: string
}

/** They say where a message ends and whose it is: that is for whoever sends it. */
const OF_THE_CONNECTION = new Set([
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

/** The call a request stands for. @throws {TypeError} for a request that cannot be sent, which is a bug of the step. */
export function outgoingCall(
  request: StepRequest,
  credential: string | undefined,
  gateway: Gateway,
) {
  const isGateway = credential !== undefined
  const url = isGateway ? gatewayUrl(request.url, credential, gateway.url) : new URL(request.url)
  if (url.protocol !== 'http:' && url.protocol !== 'https:')
    throw new TypeError('a step calls http(s) addresses')
  const method = (request.method ?? 'GET').toUpperCase()
  if (!/^[A-Z]{1,20}$/.test(method)) throw new TypeError('a step calls with an HTTP method')
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

/** @throws {TypeError} for names and values that no header can have. */
function headersOf(given: Readonly<Record<string, string>>): Record<string, string> {
  const headers = Object.fromEntries(new Headers(given))
  const foreign = Object.keys(headers).find((name) => OF_THE_CONNECTION.has(name))
  if (foreign !== undefined) throw new TypeError(`a step does not set the header ${foreign}`)
  return headers
}

function gatewayUrl(path: string, credential: string, gateway: string): URL {
  const realm = realmOf(credential)
  const url = new URL(gateway + path)
  // Our own key travels with this call, so it must reach the gateway, and only for the realm that was named.
  if (!path.startsWith('/') || url.origin !== new URL(gateway).origin)
    throw new TypeError('a call with a credential takes a path, not an address')
  if (!credential.startsWith('ACC-') || !url.pathname.startsWith(`/v3/company/${realm}/`))
    throw new TypeError(`the path must be below /v3/company/<realm>/ of ${credential}`)
  return url
}
