/** The checks of routes that a browser navigates to, and that send it on to a provider. */
import type { Context } from 'hono'
import { IntegrationError } from '../errors.ts'

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
