import { gzipSync } from 'node:zlib'
import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createGatewayLimits } from './realm/process-rate-limiter.ts'
import { generic } from '@integration-host/shared/provider-profile/profiles'
import { raw } from '@integration-host/shared/test-support/raw-http'
import {
  bodyOf,
  echo,
  type RequestHandler,
  KEY,
  type FakeServer,
  startFakeServer,
  tokenOf,
  startFakeTokenService,
  type FakeTokenService,
} from '../test-support/fake-servers.ts'
import {
  type Gateway,
  startGateway,
  type GatewayOptions,
  publishEvent,
  startFixture,
} from '../test-support/harness.ts'

let upstream: FakeServer
let tokens: FakeTokenService
let opened: AsyncDisposableStack

beforeEach(async () => {
  ;({ opened, upstream, tokens } = await startFixture())
})
afterEach(() => opened.disposeAsync())

const open = async (options: GatewayOptions = {}): Promise<Gateway> =>
  opened.use(await startGateway(upstream.url, tokens.url, options))

/**
 * Returns a handler that responds with the given statuses in turn, and then always with the last status. `drop` closes
 * the connection without a response.
 */
const statuses =
  (
    ...responses: readonly (readonly [number, Record<string, string>?] | 'drop')[]
  ): RequestHandler =>
  async (request, response) => {
    const index = Math.min(upstream.seen.length, responses.length) - 1
    const answer = responses[index] ?? 'drop'
    if (answer === 'drop') return request.socket.destroy()
    const body = await bodyOf(request)
    return response.writeHead(answer[0], answer[1] ?? {}).end(`${answer[0]} ${body.toString()}`)
  }

const text = async (answer: Response) => [answer.status, await answer.text()] as const
const problem = async (answer: Response) => (await answer.json()) as Record<string, unknown>
const call = (proxy: Gateway, method: string, path = '/v3/company/1/x') =>
  proxy.call(path, { method, ...(method !== 'GET' && method !== 'HEAD' && { body: 'body' }) })

describe('which failed attempts the gateway repeats', () => {
  it.each([502, 503, 504])(
    'if upstream responds with status %i to a GET, the gateway repeats the GET until it succeeds',
    async (status) => {
      upstream.handle = statuses([status], [status], [200])
      expect(await text(await call(await open(), 'GET'))).toEqual([200, '200 '])
      expect(upstream.seen).toHaveLength(3)
    },
  )

  it('the gateway repeats a PUT if the connection to upstream breaks', async () => {
    upstream.handle = statuses('drop', 'drop', [200])
    expect(await text(await call(await open(), 'PUT'))).toEqual([200, '200 body'])
    expect(upstream.seen).toHaveLength(3)
  })

  it('the gateway relays the last error response unchanged after three retries', async () => {
    upstream.handle = statuses([503, { 'X-From': 'upstream', intuit_tid: 't1' }])
    const answer = await call(await open(), 'GET')
    expect(answer.headers.get('x-from')).toBe('upstream')
    expect(answer.headers.get('intuit_tid')).toBe('t1')
    expect(await text(answer)).toEqual([503, '503 '])
    expect(upstream.seen.map(({ url }) => url)).toEqual(Array(4).fill('/v3/company/1/x'))
  })

  it.each([400, 403, 404, 409, 500])(
    'the gateway relays status %i without a retry and without a token refresh',
    async (status) => {
      upstream.handle = statuses([status])
      expect((await call(await open(), 'GET')).status).toBe(status)
      expect(upstream.seen).toHaveLength(1)
      expect(tokens.refreshes()).toHaveLength(0)
    },
  )

  it('the gateway repeats a failed POST with the same requestid and body', async () => {
    upstream.handle = statuses([503], 'drop', [200])
    const answer = await call(await open(), 'POST')
    const id = answer.headers.get('x-requestid')
    expect(await text(answer)).toEqual([200, '200 body'])
    expect(upstream.seen.map(({ url }) => url)).toEqual(
      Array(3).fill(`/v3/company/1/x?requestid=${id}`),
    )
  })

  describe('a batch without a requestid', () => {
    const batch = (bId: string) =>
      JSON.stringify({ BatchItemRequest: [{ bId, operation: 'create', Customer: {} }] })
    const path = '/v3/company/1/batch?minorversion=75'

    it('the gateway repeats a failed batch with the same requestid if the ids of its items leave room for it', async () => {
      upstream.handle = statuses('drop', [503], [200])
      const proxy = await open()
      const answer = await proxy.call(path, { method: 'POST', body: batch('1') })
      const id = answer.headers.get('x-requestid')
      expect(await text(answer)).toEqual([200, `200 ${batch('1')}`])
      expect(id).toHaveLength(36)
      expect(upstream.seen.map(({ url }) => url)).toEqual(Array(3).fill(`${path}&requestid=${id}`))
    })

    const long = batch(crypto.randomUUID())
    it.each<readonly [string, RequestInit]>([
      ['whose ids are UUIDs', { body: long }],
      [
        'whose ids are UUIDs, with an Idempotency-Key',
        { body: long, headers: { 'Idempotency-Key': 'k' } },
      ],
      ['that is chunked', { body: new Blob([batch('1')]).stream(), duplex: 'half' }],
      [
        'that is compressed',
        { body: gzipSync(batch('1')), headers: { 'Content-Encoding': 'gzip' } },
      ],
    ])('the gateway sends a batch %s once and without a requestid', async (_, init) => {
      upstream.handle = statuses('drop')
      const answer = await (await open()).call(path, { method: 'POST', ...init })
      expect([answer.status, answer.headers.get('x-requestid')]).toEqual([502, null])
      expect(upstream.seen.map(({ url }) => url)).toEqual([path])
    })
  })

  it('after a failed call, the problem document of the gateway has the headers X-RequestId and intuit_tid', async () => {
    upstream.handle = statuses([503, { intuit_tid: 't1' }], 'drop')
    const answer = await call(await open(), 'POST')
    expect(answer.status).toBe(502)
    expect(answer.headers.get('intuit_tid')).toBe('t1')
    expect(upstream.seen.at(-1)?.url).toBe(
      `/v3/company/1/x?requestid=${answer.headers.get('x-requestid')}`,
    )
  })

  describe.each([
    ['a connection that closed without a response', 'drop'],
    ['status 502', [502]],
    ['status 503', [503]],
  ] as const)('a POST that failed with %s', (_, failure) => {
    it.each(['/v3/company/1/x', '/v3/company/1/x?requestid=mine'])(
      'with the provider profile generic, the gateway sends a POST to %s only once, because the profile has no idempotency key',
      async (path) => {
        upstream.handle = statuses(failure, [200])
        const proxy = await open({ settings: { PROVIDER_PROFILE: 'generic' } })
        const response = await call(proxy, 'POST', path)
        expect(response.status).toBe(failure === 'drop' ? 502 : failure[0])
        expect(response.headers.has('x-requestid')).toBe(false)
        expect(upstream.seen.map(({ url }) => url)).toEqual([path])
      },
    )

    it('the gateway repeats a POST with the same requestid if the provider profile is intuit', async () => {
      upstream.handle = statuses(failure, [200])
      const response = await call(await open(), 'POST')
      const path = `/v3/company/1/x?requestid=${response.headers.get('x-requestid')}`
      expect(response.status).toBe(200)
      expect(upstream.seen.map(({ url }) => url)).toEqual([path, path])
    })

    it('the gateway sends a POST only once if the caller spelled requestid in an undocumented way', async () => {
      upstream.handle = statuses(failure, [200])
      await call(await open(), 'POST', '/v3/company/1/x?requestId=mine')
      expect(upstream.seen.map(({ url }) => url)).toEqual(['/v3/company/1/x?requestId=mine'])
    })
  })

  it('the gateway never repeats a PATCH after status 503', async () => {
    upstream.handle = statuses([503], [200])
    expect((await call(await open(), 'PATCH')).status).toBe(503)
    expect(upstream.seen).toHaveLength(1)
  })

  it('the gateway repeats a POST if its chunked body is small enough to be buffered', async () => {
    upstream.handle = statuses([503], [200])
    const body = new Blob(['chunk by chunk']).stream()
    const answer = await (
      await open()
    ).call('/v3/company/1/x', { method: 'POST', body, duplex: 'half' })
    expect(await text(answer)).toEqual([200, '200 chunk by chunk'])
    expect(upstream.seen[1]?.headers['transfer-encoding']).toBe('chunked')
  })

  it('the gateway does not repeat a call after it has sent more than 1 MiB of the body', async () => {
    upstream.handle = async (request, response) => {
      await bodyOf(request)
      response.writeHead(503).end('unchanged')
    }
    const answer = await (
      await open()
    ).call('/v3/company/1/x', { method: 'PUT', body: Buffer.alloc(1_048_577) })
    expect(await text(answer)).toEqual([503, 'unchanged'])
    expect(upstream.seen).toHaveLength(1)
  })

  it('the gateway responds 502 without revealing the address of upstream if upstream rejects the connection', async () => {
    const { port } = upstream
    await upstream[Symbol.asyncDispose]()
    const proxy = await open()
    const answer = await call(proxy, 'GET')
    expect(answer.status).toBe(502)
    const body = await answer.text()
    expect(JSON.parse(body)).toMatchObject({ code: 'upstream_unreachable', status: 502 })
    expect(body).not.toContain(String(port))
    upstream = await startFakeServer(echo, port)
    opened.use(upstream)
    expect((await call(proxy, 'GET')).status).toBe(200)
  })

  it('the gateway responds 504 if upstream sends no response before the deadline', async () => {
    upstream.handle = () => {}
    const answer = await call(await open({ settings: { DEADLINE_SECONDS: '1' } }), 'GET')
    expect(answer.status).toBe(504)
    expect(await problem(answer)).toMatchObject({ code: 'upstream_timeout' })
    expect(upstream.seen).toHaveLength(1)
  })

  it('the gateway responds 408 if the caller does not send the complete request body before the deadline', async () => {
    const proxy = await open({ settings: { DEADLINE_SECONDS: '1' } })
    const head = `POST /v3/company/1/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${KEY}\r\nContent-Length: 10\r\n\r\n`
    const answer = await raw(proxy.port, `${head}half`)
    expect(answer.status).toBe(408)
    expect(upstream.seen).toHaveLength(0)
  })
})

describe('the gateway after a 401 response from upstream', () => {
  const rejectVersion =
    (bad: number): RequestHandler =>
    async (request, response) => {
      const isBad = request.headers.authorization === `Bearer ${tokenOf('1', bad)}`
      const body = await bodyOf(request)
      response.writeHead(isBad ? 401 : 200).end(body)
    }

  it('the gateway refreshes the token once for 50 calls that received 401, and repeats all 50 calls', async () => {
    upstream.handle = rejectVersion(1)
    const proxy = await open()
    const answers = await Promise.all(Array.from({ length: 50 }, () => call(proxy, 'POST')))
    expect(await Promise.all(answers.map(text))).toEqual(answers.map(() => [200, 'body']))
    expect(tokens.refreshes()).toHaveLength(1)
    expect(tokens.credentials.get('1')?.version).toBe(2)
  })

  it('the gateway repeats a PATCH after 401, because the accounting API did not execute it', async () => {
    upstream.handle = rejectVersion(1)
    expect(await text(await call(await open(), 'PATCH'))).toEqual([200, 'body'])
  })

  it('the gateway relays 401 if the refreshed token is rejected as well', async () => {
    upstream.handle = statuses([401, { 'WWW-Authenticate': 'Bearer realm="upstream"' }])
    const answer = await call(await open(), 'GET')
    expect(answer.headers.get('www-authenticate')).toBe('Bearer realm="upstream"')
    expect(await text(answer)).toEqual([401, '401 '])
    expect(upstream.seen).toHaveLength(2)
  })

  it('the gateway relays 401 if the request body cannot be sent again, and refreshes the token for the next call', async () => {
    upstream.handle = rejectVersion(1)
    const proxy = await open()
    const big = await proxy.call('/v3/company/1/x', {
      method: 'POST',
      body: Buffer.alloc(1_048_577),
    })
    expect(big.status).toBe(401)
    await big.arrayBuffer()
    await eventually(() => expect(tokens.refreshes()).toHaveLength(1))
    expect((await call(proxy, 'GET')).status).toBe(200)
  })

  it('the gateway refreshes the token only once for several calls if upstream rejects every token', async () => {
    upstream.handle = statuses([401])
    const proxy = await open()
    for (let made = 0; made < 10; made += 1) expect((await call(proxy, 'GET')).status).toBe(401)
    expect(tokens.refreshes()).toHaveLength(1)
    // Upstream received the first call twice, and each later call once.
    expect(upstream.seen).toHaveLength(11)

    // After a `refreshed` event, no forced refresh is permitted within the minute. After a `stored` event (a new
    // grant), a forced refresh is permitted at once.
    await publishEvent(proxy.bus, '1', 'refreshed', 2)
    await eventually(async () => {
      expect((await call(proxy, 'GET')).status).toBe(401)
      expect(tokens.tokens().length).toBeGreaterThan(2)
    })
    expect(tokens.refreshes()).toHaveLength(1)
    await publishEvent(proxy.bus, '1', 'stored', 3)
    await eventually(async () => {
      expect((await call(proxy, 'GET')).status).toBe(401)
      expect(tokens.refreshes()).toHaveLength(2)
    })
  })

  it('the gateway responds 424 if the refresh after a 401 reports a faulted credential', async () => {
    const proxy = await open()
    await (await call(proxy, 'GET')).text()
    const credential = tokens.credentials.get('1')
    if (credential !== undefined) credential.fault = 'gone'
    upstream.handle = statuses([401])
    expect(await problem(await call(proxy, 'GET'))).toMatchObject({
      status: 424,
      code: 'credential_faulted',
      detail: 'gone',
    })
  })
})

describe('the gateway after a 429 response from upstream', () => {
  it('after a 429, the gateway sends only calls of other realms upstream until the time in Retry-After has passed', async () => {
    upstream.handle = statuses([429, { 'Retry-After': '3' }], [200])
    const proxy = await open()
    const startedAt = performance.now()
    const first = call(proxy, 'GET')
    await eventually(async () =>
      expect(await (await fetch(`${proxy.url}/metrics`)).text()).toMatch(
        /gateway_realms_on_hold\{[^}]*\} 1/,
      ),
    )
    const second = call(proxy, 'GET')
    expect((await call(proxy, 'GET', '/v3/company/2/x')).status).toBe(200)
    expect(upstream.seen.map(({ url }) => url.split('/')[3])).toEqual(['1', '2'])
    expect((await second).status).toBe(200)
    expect((await first).status).toBe(200)
    expect(performance.now() - startedAt).toBeGreaterThan(2_990)
  })

  it('the gateway accepts an HTTP date in Retry-After', async () => {
    const at = new Date(Date.now() + 2_000).toUTCString()
    upstream.handle = statuses([429, { 'Retry-After': at }], [200])
    expect((await call(await open(), 'GET')).status).toBe(200)
    expect(upstream.seen).toHaveLength(2)
  })

  it.each([
    ['a huge value', '99999999999999999999', 3_600],
    ['a date in the far future', 'Fri, 20 Nov 2999 12:00:00 GMT', 3_600],
    ['a negative value', '-120', 60],
    ['an invalid value', 'soon', 60],
  ])(
    'the gateway starts a cool-down of bounded length after 429 with %s in Retry-After',
    async (_what, value, seconds) => {
      upstream.handle = statuses([429, { 'Retry-After': value }], [200])
      const proxy = await open({ settings: { DEADLINE_SECONDS: '30' } })
      const answer = await call(proxy, 'GET')
      expect([answer.status, answer.headers.get('x-requestid')]).toEqual([429, null])
      const next = await call(proxy, 'GET')
      expect(next.headers.get('retry-after')).toBe(String(seconds))
      expect(upstream.seen).toHaveLength(1)
    },
  )

  it.each(['1.5', 'abc', '-1', ''])(
    'a 429 with %j in Retry-After leaves the gateway with one Retry-After, which can be read',
    async (value) => {
      upstream.handle = statuses([429, { 'Retry-After': value }])
      const proxy = await open({ settings: { DEADLINE_SECONDS: '3', HOLD_SECONDS: '60' } })
      expect((await call(proxy, 'GET')).headers.get('retry-after')).toBe('60')
    },
  )

  it('the gateway relays a 429 response at once, with Retry-After added, if the cool-down ends after the deadline of the call', async () => {
    upstream.handle = statuses([429], [200])
    const proxy = await open({ settings: { DEADLINE_SECONDS: '30', HOLD_SECONDS: '60' } })
    const from = performance.now()
    const answer = await call(proxy, 'GET')
    expect(answer.headers.get('retry-after')).toBe('60')
    expect(await text(answer)).toEqual([429, '429 '])
    const next = await call(proxy, 'GET')
    expect(next.headers.get('retry-after')).toBe('60')
    expect(await problem(next)).toMatchObject({ status: 429, code: 'throttled' })
    // The gateway rejects both calls at once. Both would wait if the cool-down ended before their deadline of 30 s.
    expect(performance.now() - from).toBeLessThan(20_000)
    expect(upstream.seen).toHaveLength(1)
    const metrics = await (await fetch(`${proxy.url}/metrics`)).text()
    expect(metrics).toMatch(/gateway_holds_total\{[^}]*\} 1/)
    expect(metrics).toMatch(/gateway_requests_total\{[^}]*status="429"[^}]*\} 2/)
    expect(metrics).toMatch(/gateway_throttled_total\{[^}]*\} 1/)
    expect(metrics).toMatch(/gateway_realms_on_hold\{[^}]*\} 1/)
  })

  it('the gateway relays 429 at once if the cool-down ends after the `Permit-Wait` of the call', async () => {
    upstream.handle = statuses([429, { 'Retry-After': '3' }], [200])
    const proxy = await open({ settings: { DEADLINE_SECONDS: '30' } })
    const answer = await proxy.call('/v3/company/1/x', { headers: { 'Permit-Wait': '2' } })
    expect([answer.status, answer.headers.get('retry-after')]).toEqual([429, '3'])
    expect(upstream.seen).toHaveLength(1)
  })

  it('a 429 response starts a cool-down even if the call must not be repeated', async () => {
    upstream.handle = statuses([429], [200])
    const proxy = await open({ settings: { DEADLINE_SECONDS: '30' } })
    expect((await call(proxy, 'PATCH')).status).toBe(429)
    expect(await problem(await call(proxy, 'GET'))).toMatchObject({ code: 'throttled' })
  })
})

describe('the throttle of the gateway', () => {
  it('the gateway delays calls that exceed the rate limit instead of rejecting them', async () => {
    const proxy = await open({ settings: { REQUESTS_PER_SECOND: '5' } })
    const from = performance.now()
    const answers = await Promise.all(Array.from({ length: 11 }, () => call(proxy, 'GET')))
    expect(answers.map(({ status }) => status)).toEqual(Array(11).fill(200))
    expect(performance.now() - from).toBeGreaterThan(1_900)
  })

  it('the gateway never has more calls in flight upstream than CONCURRENT_REQUESTS', async () => {
    let openCalls = 0
    let most = 0
    upstream.handle = async (_request, response) => {
      most = Math.max(most, (openCalls += 1))
      await new Promise((resolve) => setTimeout(resolve, 10))
      openCalls -= 1
      response.end()
    }
    const proxy = await open({ settings: { CONCURRENT_REQUESTS: '3' } })
    const answers = await Promise.all(Array.from({ length: 30 }, () => call(proxy, 'GET')))
    expect(answers.every(({ status }) => status === 200)).toBe(true)
    expect(most).toBe(3)
  })

  it('the gateway limits batch calls to BATCHES_PER_MINUTE without delaying other calls of the realm', async () => {
    const proxy = await open({ settings: { BATCHES_PER_MINUTE: '2', DEADLINE_SECONDS: '5' } })
    const batch = () => call(proxy, 'POST', '/v3/company/1/batch?minorversion=75')
    const answers = await Promise.all([batch(), batch(), batch()])
    expect(answers.filter(({ ok }) => ok)).toHaveLength(2)
    const rejected = answers.find(({ status }) => status === 429)
    expect(Number(rejected?.headers.get('retry-after'))).toBeGreaterThan(50)
    expect((await call(proxy, 'GET', '/v3/company/1/batches')).status).toBe(200)
    expect((await call(proxy, 'POST', '/v3/company/2/batch')).status).toBe(200)
  })

  it('the gateway rejects a call that gets no permit within its `Permit-Wait`', async () => {
    const held: (() => void)[] = []
    upstream.handle = (_request, response) => void held.push(() => response.end())
    const proxy = await open({ settings: { CONCURRENT_REQUESTS: '1', DEADLINE_SECONDS: '30' } })
    const first = call(proxy, 'GET')
    await eventually(() => expect(held).toHaveLength(1))
    const patient = call(proxy, 'GET')
    const answer = await proxy.call('/v3/company/1/x', { headers: { 'Permit-Wait': '1' } })
    expect(answer.headers.get('retry-after')).toBe('1')
    expect(await problem(answer)).toMatchObject({ status: 429, code: 'throttled' })
    held[0]?.()
    await eventually(() => expect(held).toHaveLength(2))
    held[1]?.()
    expect([(await first).status, (await patient).status]).toEqual([200, 200])
  })

  it('when a caller disconnects, the gateway gives the concurrency slot of its call to the next call', async () => {
    const held: (() => void)[] = []
    upstream.handle = (_request, response) => void held.push(() => response.end())
    const proxy = await open({ settings: { CONCURRENT_REQUESTS: '1' } })
    const gone = new AbortController()
    const first = proxy.call('/v3/company/1/x', { signal: gone.signal }).catch(() => null)
    await eventually(() => expect(held).toHaveLength(1))
    const second = call(proxy, 'GET')
    gone.abort()
    await first
    await eventually(() => expect(held).toHaveLength(2))
    held[1]?.()
    expect((await second).status).toBe(200)
  })
})

describe('an unavailable token-service', () => {
  it('while token-service is unavailable, the gateway uses the cached token until it expires, and then responds 503', async () => {
    const credential = tokens.credentials.get('1')
    // The gateway does not use a token in the last five seconds of its lifetime.
    if (credential !== undefined) credential.expiresAt = Date.now() + 7_000
    const proxy = await open()
    expect((await call(proxy, 'GET')).status).toBe(200)
    await tokens[Symbol.asyncDispose]()
    expect((await call(proxy, 'GET')).status).toBe(200)
    await eventually(async () => expect((await call(proxy, 'GET')).status).toBe(503), {
      everyMs: 250,
    })
    const answer = await call(proxy, 'GET')
    expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0)
    expect(await problem(answer)).toMatchObject({ code: 'token_service_unavailable' })
    await eventually(async () => {
      const ready = await fetch(`${proxy.url}/health/ready`)
      expect([ready.status, JSON.stringify(await ready.json())]).toEqual([
        503,
        expect.stringContaining('"token-service":{"status":"down"'),
      ])
    })
    const { port } = tokens
    opened.use(await startFakeTokenService(['1'], port))
    await eventually(
      async () => expect((await fetch(`${proxy.url}/health/ready`)).status).toBe(200),
      { everyMs: 100 },
    )
    expect((await call(proxy, 'GET')).status).toBe(200)
  })

  it('the gateway responds 503 for a realm without a cached token while token-service is unavailable', async () => {
    await tokens[Symbol.asyncDispose]()
    const answer = await call(await open(), 'GET')
    expect([answer.status, (await problem(answer))['code']]).toEqual([
      503,
      'token_service_unavailable',
    ])
    expect(upstream.seen).toHaveLength(0)
  })

  it.each([
    [
      "another realm's token",
      { Name: 'ACC-2', Authenticator: 'x', Expiry: '2099-01-01T00:00:00Z', Version: 1 },
    ],
    [
      'an empty token',
      { Name: 'ACC-1', Authenticator: '', Expiry: '2099-01-01T00:00:00Z', Version: 1 },
    ],
    [
      'a token that contains a line break',
      {
        Name: 'ACC-1',
        Authenticator: 'x\r\nHost: evil',
        Expiry: '2099-01-01T00:00:00Z',
        Version: 1,
      },
    ],
    ['none of the required members', { token: 'x' }],
  ])(
    'the gateway responds 503 and sends nothing upstream after a token response with %s',
    async (_what, answer) => {
      tokens.handle = (_request, response) => response.end(JSON.stringify(answer))
      expect((await call(await open(), 'GET')).status).toBe(503)
      expect(upstream.seen).toHaveLength(0)
    },
  )

  it.each(['provider_unavailable', 'provider_client_rejected'])(
    'the gateway forwards the error %s of token-service together with Retry-After',
    async (code) => {
      tokens.handle = (_request, response) => {
        response.writeHead(503, { 'Content-Type': 'application/problem+json', 'Retry-After': '17' })
        response.end(JSON.stringify({ type: 'x', title: 'x', status: 503, code }))
      }
      const answer = await call(await open(), 'GET')
      expect(answer.headers.get('retry-after')).toBe('17')
      expect(await problem(answer)).toMatchObject({ status: 503, code })
    },
  )
})

describe('the gateway after a credential event', () => {
  it.each(['stored', 'refreshed', 'faulted', 'removed'] as const)(
    'the gateway requests the token again after the event credential.%s',
    async (kind) => {
      const proxy = await open()
      await (await call(proxy, 'GET')).text()
      await (await call(proxy, 'GET')).text()
      expect(tokens.tokens()).toHaveLength(1)
      const credential = tokens.credentials.get('1')
      if (credential !== undefined) credential.version = 2
      await publishEvent(proxy.bus, '1', kind, 2)
      await eventually(async () => {
        await (await call(proxy, 'GET')).text()
        expect(upstream.seen.at(-1)?.headers.authorization).toBe(`Bearer ${tokenOf('1', 2)}`)
      })
      expect(tokens.tokens()).toHaveLength(2)
    },
  )
})

describe('the address of the accounting API', () => {
  const settings = (url: string) => ({ settings: { ACCOUNTING_URL: '', DISCOVERY_URL: url } })

  it('the gateway uses accounting_url of the discovery document if ACCOUNTING_URL is not set', async () => {
    const provider = opened.use(
      await startFakeServer((_request, response) =>
        response.end(JSON.stringify({ accounting_url: `${upstream.url}/base` })),
      ),
    )
    const proxy = await open(settings(`${provider.url}/.well-known/x`))
    await eventually(async () => expect((await call(proxy, 'GET')).status).toBe(200))
    expect(upstream.seen.at(-1)?.url).toBe('/base/v3/company/1/x')
    expect(provider.seen).toHaveLength(1)
  })

  it('the gateway is not ready and responds 503 until the discovery document has been fetched', async () => {
    const provider = opened.use(
      await startFakeServer((_request, response) => response.writeHead(500).end()),
    )
    const proxy = await open(settings(provider.url))
    const answer = await call(proxy, 'GET')
    expect(await problem(answer)).toMatchObject({ status: 503, code: 'provider_unavailable' })
    expect((await fetch(`${proxy.url}/health/ready`)).status).toBe(503)
    provider.handle = (_request, response) =>
      response.end(JSON.stringify({ accounting_url: upstream.url }))
    await eventually(async () => expect((await call(proxy, 'GET')).status).toBe(200))
    expect((await fetch(`${proxy.url}/health/ready`)).status).toBe(200)
  })

  it("the gateway uses the profile's accounting address if the discovery document, like Intuit's, has no accounting_url", async () => {
    const document = {
      issuer: 'https://oauth.platform.intuit.com/op/v1',
      userinfo_endpoint: 'https://sandbox-accounts.platform.intuit.com/v1/openid_connect/userinfo',
    }
    const provider = opened.use(
      await startFakeServer((_request, response) => response.end(JSON.stringify(document))),
    )
    const proxy = await open(settings(provider.url))
    expect((await fetch(`${proxy.url}/health/ready`)).status).toBe(200)
  })

  it("the gateway prefers accounting_url of the discovery document to the profile's address", async () => {
    const document = {
      issuer: 'https://oauth.platform.intuit.com/op/v1',
      accounting_url: upstream.url,
    }
    const provider = opened.use(
      await startFakeServer((_request, response) => response.end(JSON.stringify(document))),
    )
    const proxy = await open(settings(provider.url))
    expect((await call(proxy, 'GET')).status).toBe(200)
    expect(upstream.seen).toHaveLength(1)
  })

  it('without an address of the accounting API, the gateway does not start, and its error names ACCOUNTING_URL', async () => {
    const provider = opened.use(
      await startFakeServer((_request, response) => response.end('{"issuer":"x"}')),
    )
    await expect(open(settings(provider.url))).rejects.toThrow('set ACCOUNTING_URL')
  })
})

describe('shutdown of the gateway', () => {
  it('the gateway completes calls in flight at shutdown, and rejects waiting calls with shutting_down', async () => {
    let finish = (): void => {}
    upstream.handle = (_request, response) => {
      response.writeHead(200)
      response.write('half ')
      finish = () => response.end('whole')
    }
    const { calls, batches } = createGatewayLimits({
      ...generic.accounting.limits,
      calls: { ...generic.accounting.limits.calls, concurrent: 1 },
    })
    const isQueued = Promise.withResolvers<void>()
    const acquire: typeof calls.acquire = (realm, waitLimit) => {
      const permit = calls.acquire(realm, waitLimit)
      if (upstream.seen.length === 1) isQueued.resolve()
      return permit
    }
    const proxy = await startGateway(upstream.url, tokens.url, {
      limits: { calls: { ...calls, acquire }, batches },
    })
    const inFlight = await call(proxy, 'GET')
    const waiting = call(proxy, 'GET')
    await isQueued.promise
    const disposed = proxy[Symbol.asyncDispose]()
    expect(await problem(await waiting)).toMatchObject({ status: 503, code: 'shutting_down' })
    finish()
    expect(await inFlight.text()).toBe('half whole')
    await disposed
    await expect(fetch(`${proxy.url}/health/live`)).rejects.toThrow('fetch failed')
  })
})

it('the gateway responds 504 if upstream accepts connections and never responds', async () => {
  const unresponsive = createServer(() => {})
  unresponsive.listen(0, '127.0.0.1')
  await once(unresponsive, 'listening')
  const proxy = opened.use(
    await startGateway(
      `http://127.0.0.1:${(unresponsive.address() as AddressInfo).port}`,
      tokens.url,
      {
        settings: { DEADLINE_SECONDS: '1', CONCURRENT_REQUESTS: '1' },
      },
    ),
  )
  // The realm has a single concurrency slot. The second call can be sent only because the first call released the slot.
  expect((await call(proxy, 'GET')).status).toBe(504)
  expect((await call(proxy, 'GET')).status).toBe(504)
  unresponsive.close()
})
