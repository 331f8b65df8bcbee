/**
 * A request that a browser sends again because it got no response must not act twice. The browser sends the header
 * `Idempotency-Key`, which is the same in each repetition.
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
  /** `null` if the request was rejected, so that a repetition acts. */
  readonly response: Promise<KeptResponse | null>
}

export interface RepeatedRequests {
  /**
   * Calls `act` unless a request of the same session with the same key has succeeded in the last ten minutes; then its
   * response is sent again. A repetition waits for the first request while that is in progress.
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
    // The oldest entry is the first one.
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
      // A rejected request was removed from the map, but another repetition may already be stored in its place.
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

/** Lets `needsRole` recognize the repetitions of requests. */
export const recognizeRepeats =
  (repeats: RepeatedRequests): MiddlewareHandler =>
  async (c, next) => {
    c.set('repeats', repeats)
    await next()
  }

/** Continues with `act`, or sends the response of the same request again. The session must be valid. */
export function actOnce(c: Context, sessionId: string, act: () => Promise<void>): Promise<void> {
  const repeats = c.get('repeats') as RepeatedRequests | undefined
  return repeats === undefined ? act() : repeats.once(c, sessionId, act)
}
