/**
 * Where a request goes, decided on its raw target (RFC 9112 §3.2). Whatever two parsers could read
 * differently is refused rather than repaired: one of them picks the credential, the other the company.
 */

/** A call to a company: `path` is sent to the accounting API byte for byte, query included. */
export interface CompanyTarget {
  readonly kind: 'company'
  readonly realm: string
  readonly path: string
}

export type Target =
  | CompanyTarget
  /** A resource of the gateway itself, or none. */
  | { readonly kind: 'own' }
  | { readonly kind: 'refused'; readonly why: string }

const COMPANY = '/v3/company/'
const REALM = /^[A-Za-z0-9_-]{1,64}$/
// What a URL parser leaves as it is (RFC 3986 pchar without the bytes it would encode) and `/`.
const PATH = /^(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/[\]|]|%[0-9A-Fa-f]{2})*$/
// Slash, backslash, dot, percent and control characters gain a meaning when somebody decodes them.
const TREACHEROUS = /%(?:2e|2f|5c|25|[01][0-9a-f]|7f)/i
// `..;x` is a dot segment to servers that know path parameters.
const DOT_SEGMENT = /\/\.{1,2}(?:[/;]|$)/

const refused = (why: string): Target => ({ kind: 'refused', why })

/** Reads a raw request target such as `/v3/company/123/query?query=select%20*`. */
export function readTarget(target: string): Target {
  if (!target.startsWith('/')) return refused('the target must be a path')
  if (target.startsWith('//')) return refused('the target must not name a host')
  if (target.includes('#')) return refused('the target must have no fragment')
  const end = target.indexOf('?')
  const path = end === -1 ? target : target.slice(0, end)
  if (!PATH.test(path)) return refused('the path holds a character that must be encoded')
  if (TREACHEROUS.test(path)) return refused('the path encodes a character that must not be')
  if (DOT_SEGMENT.test(path)) return refused('the path has a dot segment')
  if (!path.startsWith(COMPANY)) return { kind: 'own' }
  const realmEnd = path.indexOf('/', COMPANY.length)
  const realm = path.slice(COMPANY.length, realmEnd === -1 ? undefined : realmEnd)
  if (!REALM.test(realm)) return refused('the realm must be 1-64 of A-Z a-z 0-9 _ -')
  return realmEnd === -1 ? { kind: 'own' } : { kind: 'company', realm, path: target }
}

/** The accounting API: a fixed origin, and a path in front of every call when it has one. */
export interface UpstreamBase {
  readonly origin: string
  readonly pathPrefix: string
}

/** @param url absolute, as in `ACCOUNTING_URL` */
export function upstreamBase(url: string): UpstreamBase {
  const { origin, pathname } = new URL(url)
  return { origin, pathPrefix: pathname.replace(/\/+$/, '') }
}

/** Whether `path` is that of Intuit's batch operation, which has a limit of its own. */
export const isBatch = (path: string): boolean =>
  /^\/v3\/company\/[^/]+\/batch\/?(?:\?|$)/i.test(path)
