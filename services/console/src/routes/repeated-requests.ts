/**
 * Prevents a repeated request from being executed twice. A browser repeats a request that got no response, with the
 * same header `Idempotency-Key`. With Redis, the repetition may reach another replica.
 */
import { createHmac, hash } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'
import { gunzip, gzip } from 'node:zlib'
import { errorCodes, IntegrationError } from '@integration-host/shared/errors'
import { type KeyRing, parseKeyRing, type Place } from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import type { Context, MiddlewareHandler } from 'hono'
import type { RequestStore } from '../session/stores.ts'

export interface RepeatedRequests {
  /**
   * Calls `act`. If a request of the same session with the same key was executed in the last ten minutes, the stored
   * response to that request is sent instead. While the first request is in progress, a repetition waits for the
   * response. A request that was rejected is forgotten, so its repetition is executed. `secret` is the secret of the
   * session.
   *
   * @throws {IntegrationError} `outcome_unknown`: the first request may have been executed, but its response was not
   * stored, or the repetition has another body.
   */
  once(c: Context, secret: string, act: () => Promise<void>): Promise<void>
}

/** What is stored for a request. */
interface Entry {
  /** The HMAC-SHA-256 of the body of the request. Its key is the secret, so the hash does not reveal a short body. */
  readonly bodyHash: string
  /** The time in epoch milliseconds. */
  readonly begunAt: number
  /** The encrypted response; empty while there is none. */
  readonly sealed: string
}

const HEADER = 'Idempotency-Key'
/** The longest time that a request takes, because a request to a service has a timeout of 60 s. */
const LONGEST_MS = 65_000
const POLL_MS = 100

const compress = promisify(gzip)
const decompress = promisify(gunzip)

/** `now` returns epoch milliseconds. */
export function createRepeatedRequests(store: RequestStore, now: () => number): RepeatedRequests {
  /** Returns the response to the first request; `null` if this request is the first one. */
  async function earlierResponse(
    name: string,
    secret: string,
    bodyHash: string,
  ): Promise<Response | null> {
    for (;;) {
      const known = await store.begin(name, textOf({ bodyHash, begunAt: now(), sealed: '' }))
      if (known === null) return null
      const first = entryOf(known)
      if (first.bodyHash !== bodyHash)
        throw outcomeUnknown('A request with another content was sent before')
      if (first.sealed !== '') return responseOf(keysOf(secret).open(first.sealed, placeOf(name)))
      if (now() >= first.begunAt + LONGEST_MS)
        throw outcomeUnknown('The response to the first request was not stored')
      await pause(POLL_MS)
    }
  }

  return {
    async once(c, secret, act) {
      const key = c.req.method === 'POST' ? c.req.header(HEADER) : undefined
      if (key === undefined) return act()
      if (!/^[\w.-]{8,100}$/.test(key))
        throw new IntegrationError(
          'invalid_request',
          `${HEADER} must have 8 to 100 letters, digits, _, . and -`,
        )
      const name = hash('sha256', JSON.stringify([secret, c.req.path, key]), 'hex')
      // The body is read before the wait, because Node closes a connection whose request is incomplete for 30 s.
      const bodyHash = createHmac('sha256', secret)
        .update(await c.req.text())
        .digest('hex')
      const begunAt = now()
      const earlier = await earlierResponse(name, secret, bodyHash)
      if (earlier !== null) {
        c.res = earlier
        return
      }
      await act()
      // If Redis fails now, a repetition gets outcome_unknown.
      await (
        isExecuted(c.res)
          ? sealed(c.res, secret, name).then((response) =>
              store.end(name, textOf({ bodyHash, begunAt, sealed: response })),
            )
          : store.forget(name)
      ).catch(() => undefined)
    },
  }
}

const outcomeUnknown = (reason: string): IntegrationError =>
  new IntegrationError('outcome_unknown', `${reason}. Look whether the action has taken effect`)

/** Whether an action was executed, or may have been executed. */
const isExecuted = ({ ok, status }: Response): boolean =>
  ok || status === errorCodes.outcome_unknown.status

const textOf = ({ bodyHash, begunAt, sealed: response }: Entry): string =>
  `${bodyHash} ${begunAt} ${response}`

function entryOf(text: string): Entry {
  const [bodyHash = '', begunAt = '', response = ''] = text.split(' ')
  return { bodyHash, begunAt: Number(begunAt), sealed: response }
}

/** Returns a response as encrypted text, with a compressed body. */
async function sealed(response: Response, secret: string, name: string): Promise<string> {
  const body = await compress(await response.clone().arrayBuffer())
  const { status, headers } = response
  const text = JSON.stringify({ status, headers: [...headers], body: body.toString('base64') })
  return keysOf(secret).seal(text, placeOf(name))
}

async function responseOf(text: string): Promise<Response> {
  const { body, ...head } = JSON.parse(text) as {
    readonly status: number
    readonly headers: [string, string][]
    readonly body: string
  }
  const bytes = await decompress(Buffer.from(body, 'base64'))
  return new Response(bytes.length === 0 ? null : new Uint8Array(bytes), head)
}

/**
 * Returns the keys of a session. They are derived from its secret, 32 random bytes, which only the person's cookie
 * contains. Therefore the stored responses cannot be read in the store.
 */
const keysOf = (secret: string): KeyRing =>
  parseKeyRing(new Secret(`session:${Buffer.from(secret, 'base64url').toString('base64')}`)).derive(
    'integration-host console response',
  )
const placeOf = (name: string): Place => ({ name, field: 'response', version: 1 })

/** Makes the stored responses available to `needsRole`, which sends such a response if a request is repeated. */
export const recognizeRepeats =
  (repeats: RepeatedRequests): MiddlewareHandler =>
  async (c, next) => {
    c.set('repeats', repeats)
    await next()
  }

/** Calls `act`, or sends the stored response of the same request. The session must be valid. */
export function actOnce(c: Context, secret: string, act: () => Promise<void>): Promise<void> {
  const repeats = c.get('repeats') as RepeatedRequests | undefined
  return repeats === undefined ? act() : repeats.once(c, secret, act)
}
