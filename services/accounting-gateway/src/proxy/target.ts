/**
 * Decides by the raw request target (RFC 9112 §3.2) where a request goes. A target that two parsers could read
 * differently is rejected rather than normalized: the gateway's reading selects the credential, and the accounting
 * API's reading selects the company, so a difference would send one company's token to another.
 */

/** A company call: `path`, with its query, is sent to the accounting API byte for byte. */
export interface CompanyTarget {
  readonly kind: 'company'
  readonly realm: string
  readonly path: string
}

export type Target =
  | CompanyTarget
  /** A resource of the gateway itself, or a path that does not exist. */
  | { readonly kind: 'own' }
  | { readonly kind: 'rejected'; readonly reason: string }

const COMPANY = '/v3/company/'
const REALM = /^[A-Za-z0-9_-]{1,64}$/
// `/` and the characters that the WHATWG URL parser leaves as they are (RFC 3986 §3.3 pchar, `[`, `]`, `|`).
const PATH = /^(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/[\]|]|%[0-9A-Fa-f]{2})*$/
// Encoded dots, slashes, backslashes, percent signs and control characters change the path's meaning once decoded.
const AMBIGUOUS_ENCODING = /%(?:2e|2f|5c|25|[01][0-9a-f]|7f)/i
// Servers that support path parameters read `..;x` as a dot segment.
const DOT_SEGMENT = /\/\.{1,2}(?:[/;]|$)/

const rejected = (reason: string): Target => ({ kind: 'rejected', reason })

/** Parses a raw request target such as `/v3/company/123/query?query=select%20*`. */
export function readTarget(target: string): Target {
  if (!target.startsWith('/')) return rejected('the target must be a path')
  if (target.startsWith('//')) return rejected('the target must not contain a host')
  if (target.includes('#')) return rejected('the target must not have a fragment')
  const end = target.indexOf('?')
  const path = end === -1 ? target : target.slice(0, end)
  if (!PATH.test(path))
    return rejected('the path contains a character that must be percent-encoded')
  if (AMBIGUOUS_ENCODING.test(path))
    return rejected('the path contains a percent-encoded character that is not allowed')
  if (DOT_SEGMENT.test(path)) return rejected('the path contains a dot segment')
  if (!path.startsWith(COMPANY)) return { kind: 'own' }
  const realmEnd = path.indexOf('/', COMPANY.length)
  const realm = path.slice(COMPANY.length, realmEnd === -1 ? undefined : realmEnd)
  if (!REALM.test(realm)) return rejected('the realm must be 1-64 of A-Z a-z 0-9 _ -')
  return realmEnd === -1 ? { kind: 'own' } : { kind: 'company', realm, path: target }
}

/** The address of the accounting API: its origin, and a prefix for the path of every call, which may be empty. */
export interface UpstreamBase {
  readonly origin: string
  readonly pathPrefix: string
}

/** @param url absolute, as in `ACCOUNTING_URL` */
export function upstreamBase(url: string): UpstreamBase {
  const { origin, pathname } = new URL(url)
  return { origin, pathPrefix: pathname.replace(/\/+$/, '') }
}

/** Whether `path` is Intuit's batch operation, which has a rate limit of its own. */
export const isBatch = (path: string): boolean =>
  /^\/v3\/company\/[^/]+\/batch\/?(?:\?|$)/i.test(path)
