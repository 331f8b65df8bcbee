/** Selects the headers that are forwarded in each direction. */
import { IntegrationError } from '@integration-host/shared/errors'
import type { HeaderList } from '@integration-host/shared/http/client/header-list'

const at = (list: HeaderList, index: number): string => list[index] ?? ''

// Fields of one connection only (RFC 9110 §7.6.1), and non-standard ones that older clients send.
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
  // These concern the caller and the gateway only.
  'authorization',
  'cookie',
  'cookie2',
  'expect',
  'host',
  'http2-settings',
  // An upstream server may trust these as set by a proxy: they override the caller's address, the path or the method.
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
  // CGI-like servers pass this header to programs as HTTP_PROXY, which many use as the address of their own proxy.
  'proxy',
  // The caller's trace ends at the gateway. With tracing on, the gateway sends a `traceparent` of its own.
  'traceparent',
  'tracestate',
])

const REMOVED_FROM_RESPONSE = new Set([
  ...HOP_BY_HOP,
  'set-cookie',
  'set-cookie2',
  // These apply to the accounting API's origin, and would be applied to the gateway's.
  'alt-svc',
  'clear-site-data',
  'strict-transport-security',
  // The gateway adds its own.
  'x-request-id',
])

/**
 * Returns why a request's headers are rejected; `null` if they are not. If one of these occurred twice, the gateway
 * and a proxy in front of it could each use a different value.
 */
export function headerFault(raw: HeaderList): string | null {
  let hosts = 0
  let authorizations = 0
  for (let i = 0; i < raw.length; i += 2) {
    const name = at(raw, i)
    // The length is compared first: for most names that one comparison is enough.
    if (name.length === 4 && name.toLowerCase() === 'host') hosts += 1
    else if (name.length === 13 && name.toLowerCase() === 'authorization') authorizations += 1
    else if (name.length === 7 && name.toLowerCase() === 'upgrade') return 'upgrades are not served'
  }
  if (hosts > 1) return 'the Host header must be given once'
  if (authorizations > 1) return 'the Authorization header must be given once'
  return null
}

/**
 * Returns why the framing of a request's body is rejected; `null` if it is not.
 *
 * The gateway forwards a body with a framing of its own and without `Transfer-Encoding`. It does not decode any coding
 * but `chunked`, so with another one the accounting API would receive encoded bytes that are not marked as such.
 */
export function transferCodingFault(raw: HeaderList, httpVersion: string): IntegrationError | null {
  let codings: string | null = null
  for (let i = 0; i < raw.length; i += 2) {
    const name = at(raw, i)
    if (name.length !== 17 || name.toLowerCase() !== 'transfer-encoding') continue
    codings = codings === null ? at(raw, i + 1) : `${codings}, ${at(raw, i + 1)}`
  }
  if (codings === null) return null
  // RFC 9112 §6.1: an HTTP/1.0 client does not know this header, so the framing of such a message is faulty.
  if (httpVersion === '1.0')
    return new IntegrationError('target_invalid', 'HTTP/1.0 has no Transfer-Encoding')
  return codings.toLowerCase() === 'chunked'
    ? null
    : new IntegrationError('transfer_coding_unsupported', 'the only transfer coding is chunked')
}

// RFC 9110 §7.6.3: every gateway appends its own `Via` entry to a request.
const VIA = '1.1 integration-host'

/** Returns the headers to send upstream. `Authorization` is added last, so that no rule above can remove it. */
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
  // CGI-like servers treat `X_Forwarded_For` as `X-Forwarded-For`, and `Content_Length` as the length of the body.
  const hyphenated = name.replaceAll('_', '-')
  return hyphenated === 'content-length' || isRemovedFromRequest(hyphenated)
}

/** Returns the headers to send to the caller, without any whose value contains `bearer`. */
export function responseHeaders(raw: HeaderList, bearer: string): string[] {
  const named = namedByConnection(raw)
  const returned: string[] = []
  for (let i = 0; i < raw.length; i += 2) {
    const name = at(raw, i).toLowerCase()
    const value = at(raw, i + 1)
    if (REMOVED_FROM_RESPONSE.has(name) || named?.has(name) === true) continue
    if (value.length >= bearer.length && value.includes(bearer)) continue
    returned.push(at(raw, i), value)
  }
  return returned
}

// The field names listed in `Connection` (RFC 9110 §7.6.1). `Content-Length` and `Content-Type` are ignored there: a
// caller must not be able to remove the framing or the type of a message.
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
