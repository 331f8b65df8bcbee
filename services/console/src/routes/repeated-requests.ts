/**
 * Prevents a repeated request from being executed twice. A browser repeats a request that got no response, with the
 * same header `Idempotency-Key`.
 */
import { IntegrationError } from '@integration-host/shared/errors'
import type { Context, MiddlewareHandler } from 'hono'

interface KeptResponse {
  readonly status: number
  readonly headers: readonly (readonly [string, string])[]
  readonly body: ArrayBuffer
}

interface Kept {
  readonly at: number
  /** The response; `null` if the request was rejected. A repetition of a rejected request is executed. */
  readonly response: Promise<KeptResponse | null>
}

export interface RepeatedRequests {
  /**
   * Calls `act`. If a request of the same session with the same key has succeeded in the last ten minutes, the stored
   * response to that request is sent instead. While the first request is in progress, a repetition waits for the
   * response.
   */
  once(c: Context, sessionId: string, act: () => Promise<void>): Promise<void>
}

const KEPT_MS = 600_000
const MAX_KEPT = 1_000
const HEADER = 'Idempotency-Key'

/** `now` is a clock in milliseconds. The responses are in the memory of this process. */
export function createRepeatedRequests(now: () => number): RepeatedRequests {
  const kept = new Map<string, Kept>()

  function forget(): void {
    // The first entry of the map is the oldest one.
    for (const [name, { at }] of kept) {
      if (now() - at < KEPT_MS && kept.size <= MAX_KEPT) return
      kept.delete(name)
    }
  }

  return {
    async once(c, sessionId, act) {
      const key = c.req.method === 'POST' ? c.req.header(HEADER) : undefined
      if (key === undefined) return act()
      if (!/^[\w.-]{8,100}$/.test(key))
        throw new IntegrationError(
          'invalid_request',
          `${HEADER} must have 8 to 100 letters, digits, _, . and -`,
        )
      forget()
      const name = JSON.stringify([sessionId, c.req.path, key])
      // If the first request was rejected, its entry has been removed from the map. The loop reads the map again,
      // because another repetition may have added an entry in the meantime.
      for (let first = kept.get(name); first !== undefined; first = kept.get(name)) {
        const sent = await first.response
        if (sent === null) continue
        c.res = new Response(sent.body.byteLength === 0 ? null : sent.body, {
          status: sent.status,
          headers: sent.headers.map(([header, value]): [string, string] => [header, value]),
        })
        return
      }
      const response = Promise.withResolvers<KeptResponse | null>()
      kept.set(name, { at: now(), response: response.promise })
      let result: KeptResponse | null = null
      try {
        await act()
        result = c.res.ok ? await keptResponse(c.res) : null
      } finally {
        if (result === null) kept.delete(name)
        response.resolve(result)
      }
    },
  }
}

const keptResponse = async (response: Response): Promise<KeptResponse> => ({
  status: response.status,
  headers: [...response.headers],
  body: await response.clone().arrayBuffer(),
})

/** Makes the stored responses available to `needsRole`, which sends such a response if a request is repeated. */
export const recognizeRepeats =
  (repeats: RepeatedRequests): MiddlewareHandler =>
  async (c, next) => {
    c.set('repeats', repeats)
    await next()
  }

/** Calls `act`, or sends the stored response of the same request. The session must be valid. */
export function actOnce(c: Context, sessionId: string, act: () => Promise<void>): Promise<void> {
  const repeats = c.get('repeats') as RepeatedRequests | undefined
  return repeats === undefined ? act() : repeats.once(c, sessionId, act)
}
