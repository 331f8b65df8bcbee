import { IntegrationError } from '@integration-host/shared/errors'
import { allowOwnHosts, rejectCrossSite } from '@integration-host/shared/http/origin-guard'
import { problems, textResponse } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute, type DescribeRouteOptions } from 'hono-openapi'
import type { Addresses } from '../provider.ts'
import { mediaType } from './client-authentication.ts'

const CHANGES = ['POST', 'PUT', 'DELETE']

/**
 * Rejects requests whose `Host` header does not name this provider. Otherwise an attacker could make another host name
 * resolve to a loopback address (DNS rebinding).
 */
export function hostGuard(addresses: () => Addresses) {
  return new Hono().use(
    describeRoute({
      responses: { 421: textResponse('the host name is not served', 'text/plain') },
    }),
    async (c, next) => {
      const { base, browser } = addresses()
      const own = [new URL(base).hostname, new URL(browser).hostname]
      return allowOwnHosts(own, 'BASE_URL or BROWSER_URL')(c, next)
    },
  )
}

/**
 * Protects the control routes, which require no key, against requests from web pages of other origins.
 *
 * Every request that changes something must have the content type `application/json`, even without a body. A browser
 * sends a CORS preflight before such a request to another origin, and this provider rejects the preflight. This check
 * also covers older browsers, whose requests have no header that identifies a cross-site request.
 */
export const controlGuard = new Hono().use(
  '/sandbox/*',
  describeRoute({
    responses: problems('forbidden', 'unsupported_media_type'),
  }),
  rejectCrossSite,
  async (c, next) => {
    if (CHANGES.includes(c.req.method) && mediaType(c) !== 'application/json')
      throw new IntegrationError('unsupported_media_type', 'send application/json')
    await next()
  },
)

/** Describes a control route. */
export const operation = (
  operationId: string,
  summary: string,
  responses: NonNullable<DescribeRouteOptions['responses']>,
  description?: string,
) =>
  describeRoute({
    operationId,
    tags: ['sandbox'],
    summary,
    ...(description !== undefined && { description }),
    responses,
  })
