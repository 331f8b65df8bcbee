/**
 * Rejects requests that other web sites cause. The demo API needs no key, so a page open in the user's browser must
 * not be able to use it: neither by its own host name resolved to loopback (DNS rebinding) nor by a link, a prefetch
 * or a form.
 */
import { IntegrationError } from '@integration-host/shared/errors'
import type { MiddlewareHandler } from 'hono'

const LOOPBACK_NAMES = ['127.0.0.1', 'localhost', '[::1]'] as const
const HOST = /^(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:\d{1,5})?$/

/** Rejects a request unless its `Host` is a loopback name or one of `further`, with or without port. */
export function allowOwnHosts(further: readonly string[]): MiddlewareHandler {
  const names = new Set<string>([...LOOPBACK_NAMES, ...further])
  return async (c, next) => {
    const host = HOST.exec((c.req.header('Host') ?? '').toLowerCase())?.[1]
    // The absolute form of a request target overrides the header (RFC 9112 §3.2.2).
    const target = new URL(c.req.url).hostname
    if (host === undefined || !names.has(host) || !names.has(target)) {
      return c.text('This host name is not served here; ALLOWED_HOSTS adds names', 421)
    }
    return next()
  }
}

/** Rejects cross-site and prefetch requests of browsers. Other clients send none of these headers and are accepted. */
export const rejectCrossSite: MiddlewareHandler = async (c, next) => {
  const purpose = ['Sec-Purpose', 'Purpose', 'X-Moz'].map((name) => c.req.header(name) ?? '')
  if (purpose.some((value) => /\b(prefetch|prerender|preview)\b/i.test(value))) {
    throw new IntegrationError('forbidden', 'Fetching ahead of a click is not allowed here')
  }
  const origin = c.req.header('Origin')
  const isForeign = origin !== undefined && origin !== `http://${c.req.header('Host')}`
  if (c.req.header('Sec-Fetch-Site') === 'cross-site' || isForeign) {
    throw new IntegrationError('forbidden', 'Requests from other sites are not allowed here')
  }
  await next()
}

/** Responds with 405 to all other methods, HEAD included: the router would run the GET route for it, which has effects. */
export function allowMethods(...methods: readonly string[]): MiddlewareHandler {
  return async (c, next) => {
    if (methods.includes(c.req.method)) return next()
    c.header('Allow', methods.join(', ')) // RFC 9110 §15.5.6
    throw new IntegrationError('method_not_allowed', `Use ${methods.join(' or ')}`)
  }
}
