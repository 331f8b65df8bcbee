/**
 * Decides by the raw request target (RFC 9112 §3.2) whether the gateway forwards a request as a call for a company
 * (`/v3/company/<realm>/…`).
 *
 * The realm that the gateway reads selects the access token, and the realm that the accounting API reads selects the
 * company. If the two parsers disagreed, one company's token would be sent with another company's request. A target
 * that two parsers could read differently is therefore rejected instead of normalized.
 */
import type { Scope } from '@integration-host/shared/access/scope'

/** The target of a call for a company. `path` includes the query and is sent to the accounting API byte for byte. */
export interface CompanyTarget {
  readonly kind: 'company'
  readonly realm: string
  readonly path: string
}

export type Target =
  | CompanyTarget
  /** A path that the gateway serves itself, or that does not exist. */
  | { readonly kind: 'own' }
  | { readonly kind: 'rejected'; readonly reason: string }

const COMPANY = '/v3/company/'
const REALM = /^[A-Za-z0-9_-]{1,64}$/
// Matches a path that consists of `/` and of characters that the WHATWG URL parser does not change: the pchar set of
// RFC 3986 §3.3, and `[`, `]` and `|`.
const PATH = /^(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/[\]|]|%[0-9A-Fa-f]{2})*$/
// Matches percent-encoded dots, slashes, backslashes, percent signs and control characters. A server that decodes them
// would read another path.
const AMBIGUOUS_ENCODING = /%(?:2e|2f|5c|25|[01][0-9a-f]|7f)/i
// Matches a dot segment with a path parameter. Servers that support path parameters read `..;x` as `..`.
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

/** The base address of the accounting API: an origin, and a path prefix for every call. The prefix may be empty. */
export interface UpstreamBase {
  readonly origin: string
  readonly pathPrefix: string
}

/**
 * Splits the base URL of the accounting API into origin and path prefix.
 *
 * @param url an absolute URL, as in `ACCOUNTING_URL`
 */
export function upstreamBase(url: string): UpstreamBase {
  const { origin, pathname } = new URL(url)
  return { origin, pathPrefix: pathname.replace(/(?<!\/)\/+$/, '') }
}

/** Returns whether `path` is Intuit's batch operation, which has its own rate limit. */
export const isBatch = (path: string): boolean =>
  /^\/v3\/company\/[^/]+\/batch\/?(?:\?|$)/i.test(path)

const QUERY = /^\/v3\/company\/[^/]+\/query(?:\?|$)/

/**
 * Returns the scope that a call needs. A query needs only `gateway:read`, even if it is sent as POST. A path in another
 * spelling needs `gateway:write`, because the accounting API may read such a path as an operation that writes.
 */
export const scopeOf = (method: string, { path }: CompanyTarget): Scope =>
  method === 'GET' || method === 'HEAD' || (method === 'POST' && QUERY.test(path))
    ? 'gateway:read'
    : 'gateway:write'
