import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type ConsoleFixture, startConsoleFixture } from '../../test-support/console-fixture.ts'
import { type FakeService, startFakeService } from '../../test-support/fake-service.ts'
import type { CompanyLimitsView, LimitsView } from '../contracts/limits.ts'

const realm = {
  Realm: '42',
  HeldUntil: '2126-11-24T03:00:00.000Z',
  Waiting: 3,
  LastSecond: 1,
  LastMinute: 212,
  Failed: 1,
  Metered: 7,
}
const failed = {
  At: '2026-11-24T03:00:00.000Z',
  Method: 'GET',
  Path: '/v3/company/42/invoice/7',
  Status: 503,
  Code: null,
  DurationMs: 1,
  WaitedMs: 0,
  Attempts: 3,
  IntuitTid: '1-65a',
  RequestID: 'a',
}

describe('the limits API of the console', () => {
  let gateway: FakeService
  let tokenService: FakeService
  let isKeyRejected = false
  let at: ConsoleFixture
  let cookie: string

  beforeAll(async () => {
    gateway = await startFakeService(({ url }) => {
      if (isKeyRejected) return { status: 403, body: { code: 'forbidden', detail: 'no scope' } }
      if (url.pathname === '/realms')
        return {
          body: {
            Limits: { PerSecond: 10, PerMinute: 500, Concurrent: 10 },
            Month: '2026-11',
            items: [realm],
          },
        }
      return url.pathname === '/realms/42' ? { body: { ...realm, Calls: [failed] } } : undefined
    })
    tokenService = await startFakeService(({ url }) =>
      url.pathname === '/credentials'
        ? { body: { items: [{ Name: 'ACC-42', Label: 'Rosewood' }], next_cursor: null } }
        : undefined,
    )
    at = await startConsoleFixture({
      GATEWAY_URL: gateway.url,
      TOKEN_SERVICE_URL: tokenService.url,
    })
    cookie = await at.signIn({ Link: at.signInLink().split('#')[1] })
  })
  afterAll(async () => {
    for (const one of [at, gateway, tokenService]) await one?.[Symbol.asyncDispose]()
  })

  it('GET /api/limits lists companies with their labels, and reads the gateways only once for simultaneous requests', async () => {
    const responses = await Promise.all([1, 2, 3].map(() => at.request('/api/limits', { cookie })))
    for (const response of responses) {
      const view = (await response.json()) as LimitsView
      expect(view).toMatchObject({
        Companies: [{ ...realm, Label: 'Rosewood' }],
        Resting: 1,
        Waiting: 3,
        Replicas: 1,
        Silent: [],
      })
    }
    expect(gateway.requests.filter(({ url }) => url.pathname === '/realms')).toHaveLength(1)
  })

  it('GET /api/limits/{realm} shows the failed calls of the company with the trace ids of the provider', async () => {
    const response = await at.request('/api/limits/42', { cookie })
    expect((await response.json()) as CompanyLimitsView).toMatchObject({
      Company: { Realm: '42', Label: 'Rosewood', LastMinute: 212 },
      Limits: { PerMinute: 500 },
      Calls: [failed],
      Replicas: 1,
      Silent: [],
    })
  })

  it('GET /api/limits/{realm} reports that the gateway does not accept the key of the console', async () => {
    isKeyRejected = true
    const response = await at.request('/api/limits/42', { cookie })
    isKeyRejected = false
    expect([response.status, await response.json()]).toMatchObject([
      502,
      { code: 'console_key_rejected' },
    ])
  })

  it('GET /api/limits and GET /api/limits/{realm} respond with 503 while no gateway responds, and say since when', async () => {
    const began = Date.now()
    await using other = await startConsoleFixture({ TOKEN_SERVICE_URL: tokenService.url })
    const session = await other.signIn({ Link: other.signInLink().split('#')[1] })
    for (const path of ['/api/limits', '/api/limits/42']) {
      await expect
        .poll(async () => (await other.request(path, { cookie: session })).json())
        .toMatchObject({
          code: 'service_unavailable',
          detail: expect.stringContaining('accounting-gateway does not respond'),
          since: expect.any(String),
        })
      const response = await other.request(path, { cookie: session })
      expect(response.status).toBe(503)
      const { since } = (await response.json()) as { since: string }
      expect(Date.parse(since)).toBeGreaterThanOrEqual(began)
      expect(Date.parse(since)).toBeLessThanOrEqual(Date.now())
    }
  })

  it('GET /api/limits/{realm} rejects an invalid realm with 400', async () => {
    expect((await at.request('/api/limits/..%2Fx', { cookie })).status).toBe(400)
  })
})
