import { IntegrationError } from '@integration-host/shared/errors'
import { allowOwnHosts, rejectCrossSite } from '@integration-host/shared/http/origin-guard'
import { problemResponses, textResponse } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import type { Addresses } from './addresses.ts'
import { mediaType } from './client-authentication.ts'

const CHANGES = ['POST', 'PUT', 'DELETE']

/**
 * Rejects requests that a web page of another origin causes on the control routes, which need no key. A host name other
 * than those of the provider's own addresses may have been resolved to loopback (DNS rebinding). The content type
 * `application/json` on every change, also on one without a body, makes a browser ask with a CORS preflight first, which
 * this provider does not answer; older browsers send no other header that identifies such a request.
 */
export function controlGuard(addresses: () => Addresses) {
  return new Hono().use(
    '/sandbox/*',
    describeRoute({
      responses: {
        421: textResponse('the host name is not served', 'text/plain'),
        ...problemResponses({
          403: 'forbidden: the request was initiated by another site',
          415: 'unsupported_media_type: a change needs the content type application/json',
        }),
      },
    }),
    async (c, next) => {
      const { base, browser } = addresses()
      const own = [new URL(base).hostname, new URL(browser).hostname]
      return allowOwnHosts(own, 'BASE_URL or BROWSER_URL')(c, next)
    },
    rejectCrossSite,
    async (c, next) => {
      if (CHANGES.includes(c.req.method) && mediaType(c) !== 'application/json')
        throw new IntegrationError('unsupported_media_type', 'send application/json')
      await next()
    },
  )
}
