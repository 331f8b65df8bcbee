/**
 * Rejects requests that other web sites cause in the user's browser. A page of another site must not be able to use a
 * service that needs no key. Such a page can send requests in two ways: under a host name of its own that resolves to
 * loopback (DNS rebinding), or by a link, a prefetch, a form or a script.
 */
import type { MiddlewareHandler, Context } from 'hono'
import { IntegrationError } from '../errors.ts'

const HOST = /^(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:\d{1,5})?$/

/**
 * Rejects a request with 421 unless its `Host` is a loopback name or a name in `further`, with or without a port. The
 * response names the setting `setting`, with which an operator can add host names.
 */
export function allowOwnHosts(further: readonly string[], setting: string): MiddlewareHandler {
  const isServed = (host: string): boolean => isLoopback(host) || further.includes(host)
  return async (c, next) => {
    const host = HOST.exec((c.req.header('Host') ?? '').toLowerCase())?.[1]
    // A request target in absolute form overrides the `Host` header (RFC 9112 §3.2.2).
    const target = new URL(c.req.url).hostname
    if (host === undefined || !isServed(host) || !isServed(target)) {
      return c.text(`This host name is not served here; ${setting} adds names`, 421)
    }
    return next()
  }
}

/**
 * Responds with 403 to prefetch requests, and to requests that a browser sends for another origin. Only browsers send
 * the headers that are checked here, so the requests of other clients are accepted.
 */
export const rejectCrossSite: MiddlewareHandler = async (c, next) => {
  const purpose = ['Sec-Purpose', 'Purpose', 'X-Moz'].map((name) => c.req.header(name) ?? '')
  if (purpose.some((value) => /\b(prefetch|prerender|preview)\b/i.test(value))) {
    throw new IntegrationError('forbidden', 'Fetching ahead of a click is not allowed here')
  }
  // The value `same-site` is rejected too, because a page on another port of localhost is of the same site. The value
  // `none` is accepted, because the user has initiated such a request, for example by opening a bookmark.
  const site = c.req.header('Sec-Fetch-Site') ?? 'none'
  const origin = c.req.header('Origin')
  const isForeign = origin !== undefined && origin !== `http://${c.req.header('Host')}`
  if ((site !== 'same-origin' && site !== 'none') || isForeign) {
    throw new IntegrationError('forbidden', 'Requests from other sites are not allowed here')
  }
  await next()
}

/**
 * Returns whether a host name, spelled as `URL.hostname` returns it, belongs to the loopback interface: `localhost`
 * (RFC 6761 §6.3), `[::1]` or an address of 127.0.0.0/8 (RFC 1122 §3.2.1.3). The whole address is compared, because a
 * comparison of the prefix would accept the public name `127.0.0.1.example.com`.
 */
export const isLoopback = (hostname: string): boolean =>
  hostname === 'localhost' || hostname === '[::1]' || /^127(?:\.\d{1,3}){3}$/.test(hostname)

/**
 * Rejects HEAD requests, which Hono would handle like GET. Browsers and mail scanners check links with HEAD requests,
 * and these must not start an authorization or use up a state.
 */
export function rejectHead(c: Context, allow: string): void {
  if (c.req.method !== 'HEAD') return
  c.header('Allow', allow)
  throw new IntegrationError('method_not_allowed', 'use GET')
}

/**
 * Rejects a request that a browser sends for an image, for a script or with fetch(), because the redirect to the
 * provider is useful only for a navigation. A client without Fetch Metadata headers is not rejected.
 */
export function rejectSubresource(c: Context): void {
  const destination = c.req.header('Sec-Fetch-Dest')
  if (destination === undefined || destination === 'document') return
  throw new IntegrationError('invalid_request', 'open this address as a page of its own')
}
