import type { IncomingMessage } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import type { Context, MiddlewareHandler } from 'hono'
import { apiErrorBody, apiErrorOf, apiErrors } from '../accounting/api-errors.ts'
import type { Fault, FaultTarget } from '../control/faults.ts'
import type { Provider } from '../provider.ts'

/**
 * The bodies of the error `invalid_grant` at the token endpoint, as users report them. Intuit does not document the
 * texts of `error_description` or the cases to which they belong. For every rejected code, this sandbox sends the text
 * that users report for a made-up code.
 */
export const invalidGrant = {
  code: { error: 'invalid_grant', error_description: 'Invalid authorization code' },
  refreshToken: {
    error: 'invalid_grant',
    error_description: 'Incorrect or invalid refresh token',
  },
} as const

export interface AnsweredEnv {
  /** Called when the response was sent or the connection was reset. */
  Variables: { answered?: () => void }
}

/**
 * Returns the middleware that applies the next fault for `target`. Some faults replace the response or reset the
 * connection before the route runs, so the call has no effect. Other faults delay or drop the response after the route
 * has run, so the call takes effect even if the client gets no response.
 */
export function underFaults(
  target: FaultTarget,
  { faults, settings, counters, now }: Provider,
): MiddlewareHandler<AnsweredEnv> {
  return async (c, next) => {
    const fault = faults.take(target)
    if (fault !== null) counters.faultServed(target)
    try {
      if (fault?.drop === 'before') return resetConnection(c)
      const status = fault?.status ?? (fault?.fault && apiErrors[fault.fault].status)
      if (fault === null || status === undefined) await next()
      else c.res = faultResponse(c, fault, status, new Date(now()))
      const latencyMs = settings.current().latencyMs + (fault?.latencyMs ?? 0)
      if (latencyMs > 0) await delay(latencyMs, undefined, { ref: false })
      if (fault?.drop === 'after') return resetConnection(c)
      return undefined
    } finally {
      c.get('answered')?.()
    }
  }
}

const ANYTHING = { '*/*': {} }

/** Returns the OpenAPI `responses` of a route whose responses can be replaced by a fault. */
export const responsesUnderFaults = (statuses: Readonly<Record<number, string>>) => ({
  ...Object.fromEntries(
    Object.entries(statuses).map(([status, description]) => [
      status,
      { description, content: ANYTHING },
    ]),
  ),
  default: { description: 'the response that a fault specifies', content: ANYTHING },
})

function resetConnection(c: Context): Response {
  // `incoming` comes from @hono/node-server. It is undefined under app.request(), which uses no connection.
  const { incoming } = c.env as { incoming?: IncomingMessage }
  incoming?.socket.resetAndDestroy()
  return new Response(null)
}

function faultResponse(c: Context, fault: Fault, status: number, now: Date): Response {
  const fallback = usualBody(c, fault, status, now)
  const isGiven = fault.body !== undefined
  const body = isGiven
    ? typeof fault.body === 'string'
      ? fault.body
      : JSON.stringify(fault.body)
    : fallback.body
  const usualType =
    isGiven && typeof fault.body === 'string'
      ? 'text/plain;charset=UTF-8'
      : isGiven
        ? 'application/json'
        : fallback.contentType
  const hasNoBody = status === 204 || status === 205 || status === 304
  return new Response(hasNoBody ? null : body, {
    status,
    headers: { ...fault.headers, 'Content-Type': fault.contentType ?? usualType },
  })
}

const json = (document: unknown) => ({
  body: JSON.stringify(document),
  contentType: 'application/json',
})

/** Returns the body that Intuit sends with this status or error code. */
function usualBody(c: Context, { target, fault }: Fault, status: number, now: Date) {
  if (target === 'api') {
    const error = fault === undefined ? apiErrorOf(status) : apiErrors[fault]
    return apiErrorBody(error, c.req.header('Accept'), now)
  }
  if (target === 'token' && status === 400) return json(invalidGrant.refreshToken)
  if (status === 401) return json({ error: 'invalid_client' })
  return json({ error: status >= 500 ? 'server_error' : 'invalid_request' })
}
