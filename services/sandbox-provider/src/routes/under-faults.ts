import type { IncomingMessage } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import type { Context, MiddlewareHandler } from 'hono'
import {
  authenticationFailed,
  authorizationFailed,
  serviceUnavailable,
  throttleExceeded,
} from '../accounting/documents.ts'
import type { Counters } from '../control/counters.ts'
import type { Fault, Faults, FaultTarget } from '../control/faults.ts'
import type { SettingsControl } from '../control/settings.ts'

export interface UnderFaultsDeps {
  readonly faults: Faults
  readonly settings: SettingsControl
  readonly counters: Counters
  readonly now: () => number
}

export interface AnsweredEnv {
  /** Called once the answer is on its way, or the connection was reset. */
  Variables: { answered?: () => void }
}

/**
 * Lets a fault that was asked for take the place of the handler, or follow it. Latency comes after the
 * effect: a caller that gives up waiting has changed the provider all the same.
 */
export function underFaults(
  target: FaultTarget,
  { faults, settings, counters, now }: UnderFaultsDeps,
): MiddlewareHandler<AnsweredEnv> {
  return async (c, next) => {
    const fault = faults.take(target)
    if (fault !== null) counters.faultServed(target)
    try {
      if (fault?.drop === 'before') return resetConnection(c)
      if (fault?.status === undefined) await next()
      else c.res = faultAnswer(target, fault, fault.status, new Date(now()))
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

/** The `responses` of a route under faults: any of them may be another one, as a fault tells. */
export const responsesUnderFaults = (statuses: Readonly<Record<number, string>>) => ({
  ...Object.fromEntries(
    Object.entries(statuses).map(([status, description]) => [
      status,
      { description, content: ANYTHING },
    ]),
  ),
  default: { description: 'what a fault tells', content: ANYTHING },
})

function resetConnection(c: Context): Response {
  // What @hono/node-server puts there; app.request() has no connection.
  const { incoming } = c.env as { incoming?: IncomingMessage }
  incoming?.socket.resetAndDestroy()
  return new Response(null)
}

function faultAnswer(target: FaultTarget, fault: Fault, status: number, now: Date): Response {
  const fallback = usualAnswer(target, status, now)
  const isTold = fault.body !== undefined
  const body = isTold
    ? typeof fault.body === 'string'
      ? fault.body
      : JSON.stringify(fault.body)
    : fallback.body
  const usualType =
    isTold && typeof fault.body === 'string'
      ? 'text/plain;charset=UTF-8'
      : isTold
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

/** What the real provider answers with this status. */
function usualAnswer(target: FaultTarget, status: number, now: Date) {
  if (target === 'api') {
    if (status === 429) return { body: throttleExceeded(now), contentType: 'application/xml' }
    if (status === 401) return json(authenticationFailed(now))
    if (status === 403) return json(authorizationFailed(now))
    return json(serviceUnavailable(status, now))
  }
  if (target === 'token' && status === 400) return json({ error: 'invalid_grant' })
  if (status === 401) return json({ error: 'invalid_client' })
  return json({ error: status >= 500 ? 'server_error' : 'invalid_request' })
}
