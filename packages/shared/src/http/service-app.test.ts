import { hash } from 'node:crypto'
import { gunzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { AccessKeys } from '../access/access-keys.ts'
import { IntegrationError } from '../errors.ts'
import { createHealth } from '../observability/health.ts'
import { createLogger } from '../observability/logger.ts'
import { createMetrics } from '../observability/metrics.ts'
import { Secret } from '../secrets/secret.ts'
import { routedFixedPath } from './openapi.ts'
import { createServiceApp, validate } from './service-app.ts'

const KEY = 'k'.repeat(32)
const logger = createLogger('test', 'silent')

const CONSOLE_KEY = 'c'.repeat(32)

function serve(lines?: string[]) {
  const health = createHealth(logger)
  const keys = new AccessKeys([new Secret('o'.repeat(32)), new Secret(KEY)])
  keys.replaceList([
    {
      id: 'console',
      sha256: hash('sha256', CONSOLE_KEY, 'hex'),
      scopes: ['credentials:read', 'act-for'],
      realms: ['*'],
      processes: ['*'],
    },
  ])
  const app = createServiceApp(
    {
      name: 'test-service',
      purpose: 'for tests',
      logger:
        lines === undefined
          ? logger
          : createLogger('test', 'info', { write: (line: string) => void lines.push(line) }),
      health,
      metrics: createMetrics('test'),
      keys,
      openPaths: ['/open', '/below/*'],
      fixedPaths: ['/things/all'],
      maxBodyBytes: 100,
    },
    (routes) => {
      routes.get(routedFixedPath('/things/all'), (c) => c.text('all of them'))
      routes.get('/open', (c) => c.text('open'))
      routes.get('/below/:name', (c) => c.text('open'))
      routes.get('/things/:id', (c) => c.text(c.req.param('id')))
      routes.post('/things', validate('json', z.strictObject({ name: z.string().max(5) })), (c) =>
        c.json(c.req.valid('json'), 201),
      )
      routes.get('/busy', () => {
        throw new IntegrationError('provider_unavailable', 'later', { retryAfterSeconds: 1.2 })
      })
      routes.get('/wrong-code', () => {
        throw new IntegrationError('code_exchange_failed', 'invalid_grant')
      })
      routes.get('/full', () => {
        throw new IntegrationError('too_many_watchers', 'later')
      })
      routes.get('/bug', () => {
        throw new Error('AT-canary-7f3a9c51d2e84b06')
      })
    },
  )
  const call = (
    path: string,
    init: Omit<RequestInit, 'headers'> & {
      key?: string | null
      headers?: Record<string, string>
    } = {},
  ) => {
    const { key = KEY, headers, ...rest } = init
    return app.request(path, {
      ...rest,
      headers: { ...(key !== null && { Authorization: `Bearer ${key}` }), ...headers },
    })
  }
  return { app, call, health }
}

describe('the HTTP app of a service', () => {
  it('a service serves a fixed path beside a path with a parameter, and names the fixed path in log and documentation', async () => {
    const lines: string[] = []
    const { app, call } = serve(lines)
    expect(await (await call('/things/all?page=1')).text()).toBe('all of them')
    expect(await (await call('/things/7')).text()).toBe('7')
    expect(await (await call('/things%23all')).json()).toMatchObject({ status: 404 })
    expect((await call('/things/all', { method: 'DELETE' })).headers.get('Allow')).toBe('GET, HEAD')
    expect(lines.map((line) => (JSON.parse(line) as { route: string }).route)).toEqual([
      '/things/all',
      '/things/:id',
      '/*',
      '/*',
    ])
    const document = (await (await call('/openapi.json')).json()) as { paths: object }
    expect(Object.keys(document.paths)).not.toContain('/things#all')
    expect(app.router.name).toBe('SmartRouter + RegExpRouter')
  })

  it('a service logs requests at level info, but health checks and successful reads by the console at level debug', async () => {
    const lines: string[] = []
    const { call } = serve(lines)
    const person = { 'Acting-For': 'ada' }
    await call('/health/live')
    await call('/things/1', { key: CONSOLE_KEY })
    await call('/things/2')
    await call('/things/3', { key: CONSOLE_KEY, headers: person })
    await call('/missing', { key: CONSOLE_KEY })
    const body = JSON.stringify({ name: 'a' })
    const headers = { 'Content-Type': 'application/json' }
    await call('/things', { key: CONSOLE_KEY, method: 'POST', body, headers })
    const logged = lines.map((line) => JSON.parse(line) as { status: number; key: string })
    expect(logged.map(({ status }) => status)).toEqual([200, 200, 404, 201])
    expect(logged.map(({ key }) => key === 'console')).toEqual([false, true, true, true])
  })

  it('a service accepts callers with any of the service keys and rejects all others', async () => {
    const { call } = serve()
    expect((await call('/things/1')).status).toBe(200)
    expect((await call('/things/1', { key: 'o'.repeat(32) })).status).toBe(200)
    for (const authorization of [
      '',
      `Bearer ${'x'.repeat(32)}`,
      `Basic ${KEY}`,
      `Bearer\t${KEY}`,
      `Token ${KEY}`,
      KEY,
      `Bearer ${KEY} `,
      `Bearer ${KEY},`,
    ]) {
      const response = await call('/things/1', {
        key: null,
        headers: { Authorization: authorization },
      })
      // The class `Headers` removes a trailing space, so this request has a valid key.
      if (authorization.trimEnd() === `Bearer ${KEY}`) continue
      expect(response.status, authorization).toBe(401)
      expect(response.headers.get('WWW-Authenticate')).toMatch(/^Bearer/)
      expect(await response.json()).toMatchObject({ code: 'unauthorized', status: 401 })
    }
  })

  it.each(['/open', '/below/x', '/health/live', '/metrics', '/openapi.json', '/docs'])(
    'a service serves %s to a request without a service key',
    async (path) => {
      expect((await serve().call(path, { key: null })).status).toBe(200)
    },
  )

  it('a service redirects its root to the documentation page, responds 204 to a request for an icon, and logs neither request', async () => {
    const lines: string[] = []
    const { call } = serve(lines)
    const root = await call('/', { key: null })
    expect([root.status, root.headers.get('Location')]).toEqual([302, '/docs'])
    const icon = await call('/favicon.ico', { key: null })
    expect([icon.status, await icon.text()]).toEqual([204, ''])
    expect(lines).toEqual([])
  })

  it('the documentation page may load scripts only from its own service, and the URL of its script contains the version', async () => {
    const { call } = serve()
    const page = await call('/docs', { key: null })
    const policy = page.headers.get('Content-Security-Policy') ?? ''
    expect(policy).toContain("default-src 'none'")
    expect(policy).toMatch(/script-src 'self' 'sha256-[^;']+';/)
    expect(policy).toContain("connect-src 'self'")
    const src = /<script src="([^"]+)">/.exec(await page.text())?.[1] ?? ''
    expect(src).toMatch(/^\/docs\/reference\.js\?v=\d+\.\d+\.\d+$/)
    const plain = await call(src, { key: null })
    const compressed = await call(src, { key: null, headers: { 'Accept-Encoding': 'br, gzip' } })
    expect(plain.headers.get('Content-Encoding')).toBeNull()
    expect(compressed.headers.get('Content-Encoding')).toBe('gzip')
    for (const { headers } of [plain, compressed])
      expect([headers.get('Content-Type'), headers.get('Cache-Control')]).toEqual([
        'text/javascript; charset=utf-8',
        'public, max-age=31536000, immutable',
      ])
    const script = Buffer.from(await plain.arrayBuffer())
    expect(gunzipSync(await compressed.arrayBuffer()).equals(script)).toBe(true)
    expect(script.includes('createApiReference')).toBe(true)
  })

  it.each([
    '/open/',
    '//open',
    '/OPEN',
    '/below',
    '/below-x',
    '/things/1?/health/live',
    '/nothing',
  ])('a service requires a service key for %s', async (path) => {
    expect((await serve().call(path, { key: null })).status).toBe(401)
  })

  it('a service responds 404 to an unknown path, and 405 with an Allow header to an unsupported method', async () => {
    const { call } = serve()
    expect((await call('/nothing')).status).toBe(404)
    const response = await call('/things/1', { method: 'DELETE' })
    expect([response.status, response.headers.get('Allow')]).toEqual([405, 'GET, HEAD'])
    expect((await call('/things', { method: 'GET' })).headers.get('Allow')).toBe('POST')
  })

  it('the response to an invalid request body names the invalid member and the violated rule, but not the value', async () => {
    const { call } = serve()
    const response = await call('/things', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: '{"name":"<script>"}',
    })
    const text = await response.text()
    expect([response.status, response.headers.get('Content-Type')]).toEqual([
      400,
      'application/problem+json',
    ])
    expect(text).toContain('name: ')
    expect(text).not.toContain('<script>')
  })

  it.each([
    ['a body that is not JSON', '{', 400],
    ['a body of another content type', 'name=a', 400],
    ['a body with an unknown member', '{"name":"a","version":1}', 400],
    ['a body beyond the size limit', JSON.stringify({ name: 'x'.repeat(200) }), 413],
  ])('a service rejects %s', async (what, body, status) => {
    const headers = {
      'Content-Type': what === 'a body of another content type' ? 'text/plain' : 'application/json',
    }
    const response = await serve().call('/things', { method: 'POST', headers, body })
    expect([response.status, response.headers.get('Content-Type')]).toEqual([
      status,
      'application/problem+json',
    ])
  })

  it('a service sends Retry-After in whole seconds, rounded up, if an error contains a retry delay', async () => {
    const response = await serve().call('/busy')
    expect([response.status, response.headers.get('Retry-After')]).toEqual([503, '2'])
  })

  it('a service responds 500 without details to an unexpected error, and logs the error without secrets', async () => {
    const lines: string[] = []
    const response = await serve(lines).call('/bug')
    expect([response.status, await response.json()]).toEqual([
      500,
      expect.objectContaining({ code: 'internal_error' }),
    ])
    expect(lines.join('')).toContain('request failed')
    expect(lines.join('')).not.toContain('canary')
  })

  it('a service logs an error that callers can cause at will at level info, and an outage at level error', async () => {
    const levelOf = async (path: string): Promise<string> => {
      const lines: string[] = []
      await serve(lines).call(path)
      const line = lines.find((text) => text.includes('request failed')) ?? '{}'
      return (JSON.parse(line) as { level: string }).level
    }
    expect([await levelOf('/full'), await levelOf('/wrong-code')]).toEqual(['info', 'info'])
    expect([await levelOf('/busy'), await levelOf('/bug')]).toEqual(['error', 'error'])
  })

  it('a service logs the route pattern of a request, not its path', async () => {
    const lines: string[] = []
    await serve(lines).call('/things/secret-realm')
    expect(lines.join('')).toContain('/things/:id')
    expect(lines.join('')).not.toContain('secret-realm')
  })

  it('a service reports ready if every dependency is up, and otherwise names the dependencies that are down', async () => {
    const { call, health } = serve()
    const redis = health.dependency('redis')
    redis.down('ECONNREFUSED')
    const waiting = await call('/health/ready', { key: null })
    expect([waiting.status, await waiting.json()]).toEqual([
      503,
      expect.objectContaining({
        status: 'waiting',
        dependencies: {
          redis: expect.objectContaining({ status: 'down', reason: 'ECONNREFUSED' }),
        },
      }),
    ])
    redis.up()
    expect((await call('/health/ready', { key: null })).status).toBe(200)
  })

  it('a service exports a gauge for each dependency, which is 1 while the dependency is up', async () => {
    const { call, health } = serve()
    const dependency = health.dependency('redis')
    const read = async () => (await call('/metrics')).text()
    expect(await read()).toContain('dependency_up{dependency="redis",service="test"} 0\n')
    dependency.up()
    expect(await read()).toContain('dependency_up{dependency="redis",service="test"} 1\n')
  })

  it('a service exports its event loop lag in seconds', async () => {
    expect(await (await serve().call('/metrics')).text()).toMatch(
      /^nodejs_eventloop_lag_p99_seconds\{service="test"\} \d/m,
    )
  })

  it('a service sends response headers that forbid caching and referrers', async () => {
    const { headers } = await serve().call('/things/1')
    expect([
      headers.get('Cache-Control'),
      headers.get('Referrer-Policy'),
      headers.get('X-Content-Type-Options'),
    ]).toEqual(['no-store', 'no-referrer', 'nosniff'])
  })
})
