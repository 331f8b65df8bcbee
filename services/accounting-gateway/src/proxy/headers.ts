/** Selects the request headers that are forwarded upstream and the response headers that are relayed to the caller. */
import { IntegrationError } from '@integration-host/shared/errors'
import {
  type HeaderList,
  headerValue,
  headerValues,
} from '@integration-host/shared/http/header-list'

const at = (list: HeaderList, index: number): string => list[index] ?? ''

// These are the hop-by-hop headers, which apply to a single connection (RFC 9110 §7.6.1), and non-standard headers of
// the same kind that older clients send.
const HOP_BY_HOP = [
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authentication-info',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]

const REMOVED_FROM_REQUEST = new Set([
  ...HOP_BY_HOP,
  // These headers are addressed to the gateway, so the accounting API does not get them.
  'acting-for',
  'authorization',
  'cookie',
  'cookie2',
  'expect',
  'host',
  'http2-settings',
  'permit-wait',
  'send-once',
  // Proxies use these headers to report the caller's address, path or method. They are removed, because an upstream
  // server could trust forged values from a caller.
  'forwarded',
  'x-real-ip',
  'x-original-url',
  'x-original-uri',
  'x-rewrite-url',
  'x-http-method',
  'x-http-method-override',
  'x-method-override',
  'x-host',
  'x-client-ip',
  'client-ip',
  'true-client-ip',
  'cf-connecting-ip',
  // CGI-like servers pass the header `Proxy` to programs in the environment variable HTTP_PROXY. Many programs use this
  // variable as the address of their outgoing proxy. A caller could therefore redirect the requests of such a program.
  'proxy',
  // The gateway does not continue the caller's trace. If tracing is on, the gateway sends its own `traceparent`.
  'traceparent',
  'tracestate',
])

const REMOVED_FROM_RESPONSE = new Set([
  ...HOP_BY_HOP,
  'set-cookie',
  'set-cookie2',
  // These response headers are meant for the accounting API's origin, but a caller would apply them to the gateway's
  // origin.
  'alt-svc',
  'clear-site-data',
  'strict-transport-security',
  // The gateway sets this response header itself, so the value of the accounting API is removed.
  'x-request-id',
])

/**
 * Returns the reason why a request with these headers is rejected; `null` if the headers are acceptable. A request that
 * repeats `Host` or `Authorization` is ambiguous: the gateway could use one value, and a proxy in front of the gateway
 * another.
 */
export function headerFault(raw: HeaderList): string | null {
  let hosts = 0
  let authorizations = 0
  for (let i = 0; i < raw.length; i += 2) {
    const name = at(raw, i)
    // For most names, comparing their length is enough to skip the slower comparisons.
    if (name.length === 4 && name.toLowerCase() === 'host') hosts += 1
    else if (name.length === 13 && name.toLowerCase() === 'authorization') authorizations += 1
    else if (name.length === 7 && name.toLowerCase() === 'upgrade') return 'upgrades are not served'
  }
  if (hosts > 1) return 'the Host header must be given once'
  if (authorizations > 1) return 'the Authorization header must be given once'
  return null
}

/**
 * Returns the reason why the framing of a request body is rejected; `null` if the framing is acceptable.
 *
 * The gateway decodes only the transfer coding `chunked`, and forwards a body with its own framing and without
 * `Transfer-Encoding`. With any other coding, the accounting API would receive encoded bytes without knowing the
 * coding.
 */
export function transferCodingFault(raw: HeaderList, httpVersion: string): IntegrationError | null {
  const codings = headerValues(raw, 'transfer-encoding')
  if (codings.length === 0) return null
  // RFC 9112 §6.1: HTTP/1.0 does not define `Transfer-Encoding`, so an HTTP/1.0 message with this header has faulty
  // framing.
  if (httpVersion === '1.0')
    return new IntegrationError('target_invalid', 'HTTP/1.0 has no Transfer-Encoding')
  return codings.join(', ').toLowerCase() === 'chunked'
    ? null
    : new IntegrationError('transfer_coding_unsupported', 'the only transfer coding is chunked')
}

/**
 * Returns how many milliseconds the call may wait for a permit or for the end of a cool-down, from the header
 * `Permit-Wait` (whole seconds). Returns `null` if there is no such header.
 */
export function permitWaitMs(raw: HeaderList): number | null {
  const seconds = headerValue(raw, 'permit-wait')
  return seconds !== null && /^\d{1,6}$/.test(seconds) ? Number(seconds) * 1_000 : null
}

// RFC 9110 §7.6.3: every gateway appends its own `Via` entry to a request.
const VIA = '1.1 integration-host'

/**
 * Returns the headers to send upstream. `Authorization` is added last, so that no rule for the removal of headers
 * applies to this header.
 */
export function requestHeaders(raw: HeaderList, bearer: string): string[] {
  const named = namedByConnection(raw)
  const sent: string[] = []
  for (let i = 0; i < raw.length; i += 2) {
    const name = at(raw, i).toLowerCase()
    if (isRemovedFromRequest(name) || named?.has(name) === true) continue
    sent.push(at(raw, i), at(raw, i + 1))
  }
  sent.push('via', VIA, 'authorization', `Bearer ${bearer}`)
  return sent
}

function isRemovedFromRequest(name: string): boolean {
  if (!name.includes('_')) return REMOVED_FROM_REQUEST.has(name) || name.startsWith('x-forwarded-')
  // An underscore is read as a hyphen, because CGI-like servers treat `X_Forwarded_For` as `X-Forwarded-For` and
  // `Content_Length` as the length of the body.
  const hyphenated = name.replaceAll('_', '-')
  return hyphenated === 'content-length' || isRemovedFromRequest(hyphenated)
}

/**
 * The response headers that may stand only once, because their value is not a list (RFC 9110 §5.3). A caller that gets
 * two of them may read either. Every other header is relayed as often as the accounting API has sent it: it is a list
 * (`Vary`, `Link`, `Cache-Control`, `Server-Timing`, `WWW-Authenticate`), or unknown.
 */
const ONCE = new Set([
  'access-control-allow-credentials',
  'access-control-allow-origin',
  'access-control-max-age',
  'age',
  'content-disposition',
  'content-length',
  'content-location',
  'content-md5',
  'content-range',
  'content-type',
  'date',
  'etag',
  'expires',
  'intuit_tid',
  'last-modified',
  'location',
  'retry-after',
  'server',
  'x-content-type-options',
  'x-frame-options',
  'x-requestid',
])

/**
 * Returns the headers to send to the caller, followed by the headers `added` of the gateway. Removes every header whose
 * value contains the bearer token, `Content-Length` of a response without content (RFC 9110 §8.6), and all but one of
 * the headers that may stand only once. A header of the gateway replaces that of the accounting API.
 */
export function responseHeaders(
  raw: HeaderList,
  bearer: string,
  status = 200,
  added: HeaderList = [],
): string[] {
  const named = namedByConnection(raw)
  const returned: string[] = []
  for (let i = 0; i < raw.length; i += 2) {
    const name = at(raw, i).toLowerCase()
    const value = at(raw, i + 1)
    if (REMOVED_FROM_RESPONSE.has(name) || named?.has(name) === true) continue
    if (value.length >= bearer.length && value.includes(bearer)) continue
    if (name === 'content-length' && (status < 200 || status === 204)) continue
    if (ONCE.has(name) && (isNamed(returned, name) || isNamed(added, name))) continue
    returned.push(at(raw, i), value)
  }
  returned.push(...added)
  return returned
}

const isNamed = (list: HeaderList, name: string): boolean => headerValue(list, name) !== null

// Returns the header names that `Connection` lists. A proxy must not forward these headers (RFC 9110 §7.6.1).
// `Content-Length` and `Content-Type` are ignored in the list, because a caller must not be able to remove the framing
// or the type of a body.
function namedByConnection(raw: HeaderList): ReadonlySet<string> | null {
  let named: Set<string> | null = null
  for (let i = 0; i < raw.length; i += 2) {
    if (at(raw, i).length !== 10 || at(raw, i).toLowerCase() !== 'connection') continue
    for (const option of at(raw, i + 1).split(',')) {
      const name = option.trim().toLowerCase()
      if (name === '' || name === 'keep-alive' || name === 'close') continue
      if (name === 'content-length' || name === 'content-type') continue
      named ??= new Set()
      named.add(name)
    }
  }
  return named
}
