import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type ConsoleFixture, startConsoleFixture } from '../../test-support/console-fixture.ts'
import { type FakeService, startFakeService } from '../../test-support/fake-service.ts'

describe('the sandbox page of the console', () => {
  let sandbox: FakeService
  let tokenService: FakeService
  let at: ConsoleFixture
  let cookie: string

  beforeAll(async () => {
    sandbox = await startFakeService(({ url, method, headers }) => {
      // As the sandbox does for every change, also without a body.
      if (method !== 'GET' && headers['content-type'] !== 'application/json')
        return { status: 415, body: {} }
      if (url.pathname === '/sandbox/realms/404/revoke') return { status: 404, body: {} }
      if (url.pathname === '/sandbox/faults' && method === 'GET')
        return {
          body: {
            waiting: [
              { target: 'api', calls: 3, status: 503 },
              { target: 'token', calls: 1, drop: 'after' },
              { target: 'api', calls: 2, latencyMs: 5_000 },
            ],
          },
        }
      return { status: method === 'POST' ? 200 : 204, body: method === 'POST' ? {} : '' }
    })
    tokenService = await startFakeService(({ url }) =>
      url.pathname === '/credentials' ? { body: { items: [], next_cursor: null } } : undefined,
    )
    at = await startConsoleFixture({
      SANDBOX_URL: sandbox.url,
      TOKEN_SERVICE_URL: tokenService.url,
    })
    cookie = await at.signIn({ Link: at.signInLink().split('#')[1] })
  })
  afterAll(async () => {
    for (const one of [at, sandbox, tokenService]) await one?.[Symbol.asyncDispose]()
  })

  const post = (path: string, body: object = {}): Promise<Response> =>
    at.request(`/api/sandbox/${path}`, { method: 'POST', cookie, body: JSON.stringify(body) })

  it('GET /api/sandbox returns a text for each failure that the sandbox was set to cause', async () => {
    const response = await at.request('/api/sandbox', { cookie })
    expect(await response.json()).toEqual({
      Companies: [],
      Faults: [
        { Target: 'api', Calls: 3, Text: 'status 503' },
        { Target: 'token', Calls: 1, Text: 'no response' },
        { Target: 'api', Calls: 2, Text: '5000 ms late' },
      ],
    })
  })

  it.each([
    ['companies/42/revoke', {}, 'POST /sandbox/realms/42/revoke '],
    ['companies/42/expire', {}, 'POST /sandbox/realms/42/expire '],
    [
      'faults',
      { Target: 'api', Failure: 'throttled', Calls: 3 },
      'POST /sandbox/faults {"target":"api","calls":3,"status":429,"headers":{"Retry-After":"30"}}',
    ],
    ['faults/clear', {}, 'DELETE /sandbox/faults '],
    ['reset', {}, 'POST /sandbox/reset '],
  ])(
    '%s causes one request without a key to the sandbox, and is logged with the name of the person',
    async (path, body, expected) => {
      const since = sandbox.requests.filter(({ url }) => url.pathname.startsWith('/sandbox')).length
      expect((await post(path, body)).status).toBe(204)
      const sent = sandbox.requests.filter(({ url }) => url.pathname.startsWith('/sandbox'))
      expect(
        sent.slice(since).map((one) => `${one.method} ${one.url.pathname} ${one.body}`),
      ).toEqual([expected])
      expect(sent.at(-1)?.headers.authorization).toBeUndefined()
      expect(at.log()).toContain('person changed the sandbox')
    },
  )

  it('the console rejects an action with 404 if the sandbox does not have the company', async () => {
    expect((await post('companies/404/revoke')).status).toBe(404)
  })

  it.each([
    ['faults', { Target: 'discovery', Failure: 'slow', Calls: 1 }],
    ['faults', { Target: 'api', Failure: 'slow', Calls: 0 }],
    ['companies/42/remove', {}],
    ['companies/..%2Fx/revoke', {}],
  ])('POST /api/sandbox/%s with the body %j is rejected with 400', async (path, body) => {
    expect((await post(path, body)).status).toBe(400)
  })

  it('every route of the sandbox page responds with 404 in an installation without a sandbox', async () => {
    await using without = await startConsoleFixture({ TOKEN_SERVICE_URL: tokenService.url })
    const session = await without.signIn({ Link: without.signInLink().split('#')[1] })
    expect((await without.request('/api/sandbox', { cookie: session })).status).toBe(404)
    const reset = await without.request('/api/sandbox/reset', {
      method: 'POST',
      cookie: session,
      body: '{}',
    })
    expect(reset.status).toBe(404)
  })
})
