/** Which headers travel on. */
import type { HeaderList } from '@integration-host/shared/http/client/header-list'

const at = (list: HeaderList, index: number): string => list[index] ?? ''

// RFC 9110 §7.6.1, with those that older clients send.
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

const NOT_SENT = new Set([
  ...HOP_BY_HOP,
  // The gateway's own business with its caller.
  'authorization',
  'cookie',
  'cookie2',
  'expect',
  'host',
  'http2-settings',
  // What a server behind could take for a proxy's word about the caller, the path or the method.
  'forwarded',
  'x-real-ip',
  'x-original-url',
  'x-original-uri',
  'x-rewrite-url',
  'x-http-method',
  'x-http-method-override',
  'x-method-override',
])

const NOT_RETURNED = new Set([
  ...HOP_BY_HOP,
  'set-cookie',
  'set-cookie2',
  // They speak for the accounting API's origin, which is not the gateway's.
  'alt-svc',
  'clear-site-data',
  'strict-transport-security',
  // The gateway gives its own.
  'x-request-id',
])

/** Why a request's headers cannot be trusted, or null. Two of these, and two readers each believe another. */
export function headerFault(raw: HeaderList): string | null {
  let hosts = 0
  let authorizations = 0
  for (let i = 0; i < raw.length; i += 2) {
    const name = at(raw, i)
    // Most names are neither of these lengths, so most cost one comparison.
    if (name.length === 4 && name.toLowerCase() === 'host') hosts += 1
    else if (name.length === 13 && name.toLowerCase() === 'authorization') authorizations += 1
    else if (name.length === 7 && name.toLowerCase() === 'upgrade') return 'upgrades are not served'
  }
  if (hosts > 1) return 'the Host header must be given once'
  if (authorizations > 1) return 'the Authorization header must be given once'
  return null
}

// RFC 9110 §7.6.3: what a gateway adds to each request, after what gateways before it have added.
const VIA = '1.1 integration-host'

/** The headers to send upstream; `bearer` is injected last, when nothing can take it away again. */
export function requestHeaders(raw: HeaderList, bearer: string): string[] {
  const named = namedByConnection(raw)
  const sent: string[] = []
  for (let i = 0; i < raw.length; i += 2) {
    const name = at(raw, i).toLowerCase()
    if (isWithheld(name) || named?.has(name) === true) continue
    sent.push(at(raw, i), at(raw, i + 1))
  }
  sent.push('via', VIA, 'authorization', `Bearer ${bearer}`)
  return sent
}

function isWithheld(name: string): boolean {
  // CGI-like servers read `X_Forwarded_For` as `X-Forwarded-For`.
  const plain = name.includes('_') ? name.replaceAll('_', '-') : name
  return NOT_SENT.has(plain) || plain.startsWith('x-forwarded-')
}

/** The headers to return to the caller; `bearer` never is among their values. */
export function responseHeaders(raw: HeaderList, bearer: string): string[] {
  const named = namedByConnection(raw)
  const returned: string[] = []
  for (let i = 0; i < raw.length; i += 2) {
    const name = at(raw, i).toLowerCase()
    const value = at(raw, i + 1)
    if (NOT_RETURNED.has(name) || named?.has(name) === true) continue
    if (value.length >= bearer.length && value.includes(bearer)) continue
    returned.push(at(raw, i), value)
  }
  return returned
}

// Names in `Connection` belong to this hop. Never those that say where the message ends or whose it is.
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
