import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { request as httpRequest } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type ConsoleFixture,
  SERVICE_KEY,
  startConsoleFixture,
} from '../test-support/console-fixture.ts'
import { userLine } from '@integration-host/shared/access/user-line'

interface Operation {
  readonly method: string
  readonly path: string
  readonly summary: string
}

describe('the API of the console', () => {
  let at: ConsoleFixture
  let folder: string
  let viewer: string
  let operator: string
  let operations: readonly Operation[]

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'console-users-'))
    const file = join(folder, 'users')
    await writeFile(file, `# people\n${await userLine('vera', 'viewer', 'a long password')}\n`)
    at = await startConsoleFixture({ SIGN_IN: 'link,password', USERS_FILE: file })
    viewer = await at.signIn({ User: 'vera', Password: 'a long password' })
    operator = await at.signIn({ Link: at.signInLink().split('#')[1] })
    const document = (await (await fetch(`${at.url}/openapi.json`)).json()) as {
      paths: Record<string, Record<string, { summary: string }>>
    }
    operations = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, { summary }]) => ({
        method: method.toUpperCase(),
        path,
        summary,
      })),
    )
  })
  afterAll(async () => {
    await at?.[Symbol.asyncDispose]()
    await rm(folder, { recursive: true })
  })

  /** The routes for which a session is needed, from the OpenAPI document. */
  const protectedOperations = (): readonly Operation[] =>
    operations.filter(
      ({ method, path }) =>
        path.startsWith('/api/') &&
        !(path === '/api/session' && method === 'POST') &&
        path !== '/api/sign-in',
    )
  const send = ({ method, path }: Operation, options: Parameters<ConsoleFixture['request']>[1]) =>
    at.request(path, { method, ...(method === 'POST' && { body: '{}' }), ...options })

  it('the console responds with 401 to every API route without a session', async () => {
    expect(protectedOperations().length).toBeGreaterThanOrEqual(5)
    for (const operation of protectedOperations())
      for (const cookie of [undefined, 'console=', 'console=an-unknown-secret']) {
        const response = await send(operation, cookie === undefined ? {} : { cookie })
        const where = `${operation.method} ${operation.path} ${cookie}`
        expect(
          [response.status, ((await response.json()) as { code: string }).code],
          where,
        ).toEqual([401, 'sign_in_needed'])
      }
  })

  it('the console responds with 403 to a viewer at every route that acts', async () => {
    const acting = protectedOperations().filter(({ method }) => method === 'POST')
    expect(acting.length).toBeGreaterThanOrEqual(1)
    for (const operation of acting)
      expect((await send(operation, { cookie: viewer })).status, operation.path).toBe(403)
  })

  it('the console accepts a viewer at the routes that only read', async () => {
    for (const path of ['/api/now', '/api/services', '/api/session'])
      expect((await at.request(path, { cookie: viewer })).status, path).toBe(200)
  })

  it.each([
    ['of another origin', { Origin: 'http://127.0.0.1:9' }],
    ['of another port, as Sec-Fetch-Site', { 'Sec-Fetch-Site': 'same-site' }],
    ['of another site, as Sec-Fetch-Site', { 'Sec-Fetch-Site': 'cross-site' }],
    ['that the user typed into the address bar', { 'Sec-Fetch-Site': 'none' }],
    ['without Origin and Sec-Fetch-Site', { Origin: '' }],
  ])('the console responds with 403 to a request %s, with a valid session', async (_, headers) => {
    for (const operation of operations.filter(({ path }) => path.startsWith('/api/'))) {
      const response = await send(operation, { cookie: operator, headers })
      await response.body?.cancel()
      expect(response.status, `${operation.method} ${operation.path}`).toBe(403)
    }
  })

  it('the console rejects a body that a form can send with 415', async () => {
    const response = await at.request('/api/session', {
      method: 'POST',
      body: '{"Link":"x"}',
      headers: { 'Content-Type': 'text/plain' },
    })
    expect(response.status).toBe(415)
  })

  it('the console responds with 421 to a request for a foreign host name', async () => {
    const { port } = new URL(at.url)
    for (const path of ['/', '/api/now', '/metrics'])
      expect(await statusFor(Number(port), path, 'rebound.example.com'), path).toBe(421)
    expect(await statusFor(Number(port), '/', `console.localhost:${port}`)).toBe(200)
  })

  it('the console sends its security headers with every kind of response', async () => {
    for (const path of ['/', '/api/now', '/assets/none.js', '/nothing', '/health/live']) {
      const { headers } = await at.request(path)
      expect(headers.get('Content-Security-Policy'), path).toContain("default-src 'none'")
      expect(headers.get('Content-Security-Policy'), path).not.toContain('unsafe')
      expect(headers.get('Cross-Origin-Resource-Policy'), path).toBe('same-origin')
      expect(headers.get('Referrer-Policy'), path).toBe('no-referrer')
      expect(headers.get('X-Content-Type-Options'), path).toBe('nosniff')
      expect(headers.get('Access-Control-Allow-Origin'), path).toBeNull()
    }
  })

  it('the cookie of a session is strict, cannot be read by scripts, and is worthless after the sign-out', async () => {
    const response = await at.request('/api/session', {
      method: 'POST',
      body: JSON.stringify({ Link: at.signInLink().split('#')[1] }),
    })
    const [cookie = ''] = response.headers.getSetCookie()
    expect(cookie).toMatch(/^console=[\w-]{43}; Max-Age=43200; Path=\/; HttpOnly; SameSite=Strict$/)
    const sent = { cookie: cookie.split(';')[0] ?? '' }
    expect((await at.request('/api/session', { method: 'DELETE', ...sent })).status).toBe(204)
    expect((await at.request('/api/now', sent)).status).toBe(401)
  })

  it('signing out ends the event streams of the session', async () => {
    const cookie = await at.signIn({ Link: at.signInLink().split('#')[1] })
    const stream = await at.request('/api/stream', { cookie })
    expect(stream.headers.get('Content-Type')).toBe('text/event-stream')
    await at.request('/api/session', { method: 'DELETE', cookie })
    expect(await stream.text()).toMatch(/event: bye\ndata: \{"Reason":"signed_out"\}\n\n$/)
  })

  it('a one-time link works once', async () => {
    const body = JSON.stringify({ Link: at.signInLink().split('#')[1] })
    const first = await at.request('/api/session', { method: 'POST', body })
    const second = await at.request('/api/session', { method: 'POST', body })
    expect([first.status, second.status]).toEqual([200, 401])
  })

  it('only a service key can create a one-time link', async () => {
    const path = '/sign-in-links'
    expect((await at.request(path, { method: 'POST' })).status).toBe(401)
    const headers = { Authorization: `Bearer ${SERVICE_KEY}` }
    const created = await at.request(path, { method: 'POST', headers })
    expect(created.status).toBe(201)
    const { Url } = (await created.json()) as { Url: string }
    expect(Url.startsWith(`${at.url}/sign-in#`)).toBe(true)
    expect(await at.signIn({ Link: Url.split('#')[1] })).toMatch(/^console=/)
  })

  it('after a wrong password the next check for the name is delayed, and nothing secret is logged', async () => {
    const attempt = (Password: string) =>
      at.request('/api/session', {
        method: 'POST',
        body: JSON.stringify({ User: 'mallory', Password }),
      })
    const wrong = await attempt('a wrong password')
    const soon = await attempt('a wrong password')
    expect([wrong.status, soon.status]).toEqual([401, 429])
    expect(soon.headers.get('Retry-After')).toBe('1')
    expect(at.log()).toContain('sign-in was rejected')
    for (const secret of ['a wrong password', 'a long password', operator.split('=')[1] ?? ''])
      expect(at.log()).not.toContain(secret)
  })
})

/** Sends a request with this `Host` header, which fetch does not allow. */
const statusFor = (port: number, path: string, host: string): Promise<number | undefined> =>
  new Promise((resolve, reject) => {
    httpRequest({ host: '127.0.0.1', port, path, headers: { Host: host } }, (response) => {
      response.resume()
      resolve(response.statusCode)
    })
      .on('error', reject)
      .end()
  })
