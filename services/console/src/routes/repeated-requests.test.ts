import { errorCodes, IntegrationError } from '@integration-host/shared/errors'
import { randomBytes } from 'node:crypto'
import { Hono } from 'hono'
import { beforeEach, describe, expect, it } from 'vitest'
import { createMemoryRequestStore } from '../adapters/memory/stores.ts'
import { KEPT_SECONDS, type RequestStore } from '../session/stores.ts'
import { createRepeatedRequests } from './repeated-requests.ts'

const SECRET = randomBytes(32).toString('base64url')
const OTHER_SECRET = randomBytes(32).toString('base64url')

describe('requests with an Idempotency-Key', () => {
  let now: number
  let executed: number
  let store: RequestStore
  let act: () => Promise<Response>

  beforeEach(() => {
    now = 0
    executed = 0
    store = createMemoryRequestStore(() => now)
    act = async () => Response.json({ executed }, { status: 202, headers: { Location: '/x' } })
  })

  /** Returns a replica of a console whose only route counts how often it was executed. */
  function replica(secret = SECRET): Hono {
    const repeats = createRepeatedRequests(store, () => now)
    const app = new Hono()
    app.onError((error) => {
      const code = error instanceof IntegrationError ? error.code : 'internal_error'
      return Response.json({ code }, { status: errorCodes[code].status })
    })
    app.use((c, next) => repeats.once(c, secret, next))
    app.post('/act', () => {
      executed += 1
      return act()
    })
    return app
  }
  const post = (app: Hono, body = '{}') =>
    app.request('/act', {
      method: 'POST',
      headers: { 'Idempotency-Key': 'a-key-of-one-dialog' },
      body,
    })
  /** Sends a request whose action has begun and never ends. */
  async function postEndless(): Promise<void> {
    const begun = Promise.withResolvers<void>()
    act = () => {
      begun.resolve()
      return new Promise(() => undefined)
    }
    void post(replica())
    await begun.promise
    act = async () => new Response(null, { status: 204 })
  }
  const codeOf = async (response: Response): Promise<unknown> => [
    response.status,
    ((await response.json()) as { code: string }).code,
  ]
  const UNKNOWN = [504, 'outcome_unknown']

  it('a repetition at another replica gets the first response with its status and headers, and is not executed', async () => {
    const first = await post(replica())
    const repeated = await post(replica())
    expect(executed).toBe(1)
    expect([repeated.status, repeated.headers.get('Location'), await repeated.json()]).toEqual([
      first.status,
      '/x',
      await first.json(),
    ])
  })

  it('a repetition waits for the first request, and is executed if that one is rejected', async () => {
    const first = Promise.withResolvers<Response>()
    const begun = Promise.withResolvers<void>()
    act = () => {
      begun.resolve()
      return first.promise
    }
    const rejected = post(replica())
    await begun.promise
    const repeated = post(replica())
    act = async () => new Response(null, { status: 204 })
    first.resolve(new Response(null, { status: 409 }))
    expect([(await rejected).status, (await repeated).status]).toEqual([409, 204])
    expect(executed).toBe(2)
  })

  it('a repetition of a request whose action threw an error is executed', async () => {
    act = () => Promise.reject(new Error('a defect'))
    expect(await codeOf(await post(replica()))).toEqual([500, 'internal_error'])
    act = async () => new Response(null, { status: 204 })
    expect((await post(replica())).status).toBe(204)
    expect(executed).toBe(2)
  })

  it('if the replica with the first request never stores a response, a repetition gets outcome_unknown, and is executed only after ten minutes', async () => {
    await postEndless()
    for (const time of [65_000, KEPT_SECONDS * 1_000 - 1]) {
      now = time
      expect(await codeOf(await post(replica()))).toEqual(UNKNOWN)
    }
    expect(executed).toBe(1)
    now = KEPT_SECONDS * 1_000
    expect((await post(replica())).status).toBe(204)
    expect(executed).toBe(2)
  })

  it('a repetition of a request whose outcome the console does not know is not executed', async () => {
    act = () => Promise.reject(new IntegrationError('outcome_unknown', 'no response in time'))
    for (const _ of [1, 2]) expect(await codeOf(await post(replica()))).toEqual(UNKNOWN)
    expect(executed).toBe(1)
  })

  it('a request with the same key and another body is executed only if the first one was rejected', async () => {
    await post(replica(), '{"Outcome":"done"}')
    expect(await codeOf(await post(replica(), '{"Outcome":"not_done"}'))).toEqual(UNKNOWN)
    expect(executed).toBe(1)
    const other = OTHER_SECRET
    act = async () => new Response(null, { status: 409 })
    await post(replica(other), '{"Outcome":"done"}')
    act = async () => new Response(null, { status: 204 })
    expect((await post(replica(other), '{"Outcome":"not_done"}')).status).toBe(204)
  })

  it('an action whose response cannot be stored is not executed again', async () => {
    store = { ...store, end: () => Promise.reject(new Error('Redis is unavailable')) }
    expect((await post(replica())).status).toBe(202)
    now = 65_000
    expect(await codeOf(await post(replica()))).toEqual(UNKNOWN)
    expect(executed).toBe(1)
  })

  it('a rejection is sent even if the rejected request cannot be forgotten', async () => {
    store = { ...store, forget: () => Promise.reject(new Error('Redis is unavailable')) }
    act = async () => new Response(null, { status: 409 })
    expect((await post(replica())).status).toBe(409)
  })

  it('an action is not executed while the store is unavailable', async () => {
    const unavailable = new IntegrationError('store_unavailable', 'Redis is unavailable')
    store = { ...store, begin: () => Promise.reject(unavailable) }
    expect(await codeOf(await post(replica()))).toEqual([503, 'store_unavailable'])
    expect(executed).toBe(0)
  })

  it('another session with the same key executes its own request', async () => {
    await post(replica())
    await post(replica(OTHER_SECRET))
    expect(executed).toBe(2)
  })

  it('the memory of a console keeps the newest 1,000 requests, and a repetition of the oldest one among them is not executed', async () => {
    for (let index = 0; index < 1_001; index += 1) await store.begin(`name-${index}`, 'entry')
    expect(await store.begin('name-1', 'entry')).toBe('entry')
    expect(await store.begin('name-0', 'entry')).toBeNull()
  })
})
