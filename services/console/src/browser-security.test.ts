/**
 * Tests that the console rejects a request of a browser unless the request has a valid session, a sufficient role and a
 * page of the console as its origin. The routes come from the console's router, so a new route is tested as soon as it
 * exists.
 */
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { request as httpRequest } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { userLine } from '@integration-host/shared/access/user-line'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  bundledApp,
  type ConsoleFixture,
  consoleRoutes,
  type Route,
  startConsoleFixture,
} from '../test-support/console-fixture.ts'

const PASSWORD = 'a long password'
/** The routes of `/api` that a browser uses before it has a session. */
const BEFORE_SESSION = ['GET /api/sign-in', 'POST /api/session']
/** The routes that change only the session of the caller. */
const OWN_SESSION = ['DELETE /api/session', 'DELETE /api/sessions/:id']
/** The routes that show business data, which viewers do not see. */
const DATA = [
  'GET /api/dead-letters/:process',
  'GET /api/runs/:process/:id/data',
  'GET /api/runs/:process/:id/text',
]
/** The whole policy, so that a test fails if a source is added. */
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
/** The routes that Prometheus and probes read at the address of a pod. They contain no data of a company or person. */
const OPEN_TO_SCRAPERS = [
  'GET /health/live',
  'GET /health/ready',
  'GET /metrics',
  'GET /metrics/summary',
]

const nameOf = ({ method, path }: Route): string => `${method} ${path}`
const isChange = ({ method }: Route): boolean => method !== 'GET'
const routes = consoleRoutes()
const apiRoutes = routes.filter(({ path }) => path.startsWith('/api/'))
const protectedRoutes = apiRoutes.filter((route) => !BEFORE_SESSION.includes(nameOf(route)))

describe('the protection of the console against requests of browsers', () => {
  let at: ConsoleFixture
  let folder: string
  let viewer: string
  let operator: string

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'console-users-'))
    const file = join(folder, 'users')
    await writeFile(
      file,
      `${await userLine('vera', 'viewer', PASSWORD)}\n${await userLine('ada', 'operator', PASSWORD)}\n`,
    )
    at = await startConsoleFixture({ SIGN_IN: 'password', USERS_FILE: file })
    viewer = await at.signIn({ User: 'vera', Password: PASSWORD })
    operator = await at.signIn({ User: 'ada', Password: PASSWORD })
  })
  afterAll(async () => {
    await at?.[Symbol.asyncDispose]()
    await rm(folder, { recursive: true })
  })

  type Options = Parameters<ConsoleFixture['request']>[1]

  /** Sends a request to a route. The body is not read, because the event stream never ends. */
  async function send({ method, path }: Route, options: Options): Promise<Response> {
    const filled = path.replaceAll(/:\w+/g, 'x')
    const response = await at.request(filled, {
      method,
      ...(method !== 'GET' && { headers: { 'Content-Type': 'application/json' } }),
      ...(method !== 'GET' && method !== 'DELETE' && { body: '{}' }),
      ...options,
    })
    await response.body?.cancel()
    return response
  }
  const statuses = async (of: readonly Route[], options: Options) =>
    Object.fromEntries(
      await Promise.all(
        of.map(async (route) => [nameOf(route), (await send(route, options)).status]),
      ),
    ) as Readonly<Record<string, number>>
  const all = (of: readonly Route[], status: number) =>
    Object.fromEntries(of.map((route) => [nameOf(route), status]))

  it('a browser without a valid session gets 401 from every route of the console that returns data', async () => {
    expect(protectedRoutes.length).toBeGreaterThan(15)
    const ended = await at.signIn({ User: 'ada', Password: PASSWORD })
    await at.request('/api/session', { method: 'DELETE', cookie: ended })
    for (const cookie of [undefined, 'console=', 'console=an-unknown-secret', ended])
      expect(await statuses(protectedRoutes, cookie === undefined ? {} : { cookie })).toEqual(
        all(protectedRoutes, 401),
      )
  })

  it('a viewer gets 403 from every route of the console that acts or shows business data', async () => {
    const reserved = protectedRoutes.filter(
      (route) =>
        DATA.includes(nameOf(route)) || (isChange(route) && !OWN_SESSION.includes(nameOf(route))),
    )
    expect(reserved.length).toBeGreaterThan(10)
    expect(await statuses(reserved, { cookie: viewer })).toEqual(all(reserved, 403))
    const reading = protectedRoutes.filter((route) => !isChange(route) && !reserved.includes(route))
    for (const [route, status] of Object.entries(await statuses(reading, { cookie: viewer })))
      expect(status, route).not.toBe(403)
  })

  it.each([
    ['of a page of another site', { 'Sec-Fetch-Site': 'cross-site' }],
    ['of a page on another port', { 'Sec-Fetch-Site': 'same-site' }],
    ['of a page on another port, in an old browser', { Origin: 'http://127.0.0.1:9' }],
    ['from the address bar', { 'Sec-Fetch-Site': 'none' }],
    ['of a sandboxed page', { Origin: 'null' }],
    ['without Origin and Sec-Fetch-Site', { Origin: '' }],
  ])(
    'every route of the API rejects a request %s with 403, even if the session is valid',
    async (_, headers) => {
      expect(await statuses(apiRoutes, { cookie: operator, headers })).toEqual(all(apiRoutes, 403))
    },
  )

  it('every route of the console that changes something requires the header Origin, even if Sec-Fetch-Site is present', async () => {
    const changes = apiRoutes.filter(isChange)
    const headers = { 'Sec-Fetch-Site': 'same-origin', Origin: '' }
    expect(await statuses(changes, { cookie: operator, headers })).toEqual(all(changes, 403))
  })

  it('every route of the console responds 421 to a foreign host name, so that DNS rebinding reads nothing', async () => {
    const { port } = new URL(at.url)
    for (const { method, path } of routes) {
      const status = await statusFor(Number(port), method, path, 'rebound.example.com')
      const isOpen = OPEN_TO_SCRAPERS.includes(`${method} ${path}`)
      expect(status, `${method} ${path}`).toBe(isOpen ? 200 : 421)
    }
    expect(await statusFor(Number(port), 'GET', '/', `console.localhost:${port}`)).toBe(200)
  })

  it('every kind of response of the console has the security headers, and none allows another origin', async () => {
    const staying = routes.filter((route) => !OWN_SESSION.includes(nameOf(route)))
    const responses = [
      ...(await Promise.all(staying.map((route) => send(route, { cookie: operator })))),
      await at.request('/api/session', { method: 'DELETE', cookie: viewer }),
      ...(await Promise.all(routes.map((route) => send(route, {})))),
      ...(await Promise.all(routes.map(({ path }) => send({ method: 'PUT', path }, {})))),
      await at.request('/nothing'),
      await at.request('/assets/none.js'),
      await at.request('/api/session', { method: 'POST', body: '{}', headers: { Origin: 'null' } }),
      await at.request('/api/session', { method: 'POST', body: 'x'.repeat(70_000) }),
      await at.request('/api/session', {
        method: 'POST',
        headers: { 'Content-Type': 'text/plain' },
      }),
    ]
    const kinds = new Set(responses.map(({ status }) => status))
    for (const status of [200, 204, 400, 401, 403, 404, 405, 413, 415, 503])
      expect([...kinds], String(status)).toContain(status)
    for (const { url, status, headers } of responses) {
      const where = `${status} ${url}`
      const policy = headers.get('Content-Security-Policy') ?? ''
      if (url.endsWith('/docs')) {
        expect(policy, where).toContain("default-src 'none'")
        expect(policy, where).toContain("frame-ancestors 'none'")
      } else expect(policy, where).toBe(POLICY)
      expect(headers.get('Cross-Origin-Opener-Policy'), where).toBe('same-origin')
      expect(headers.get('Cross-Origin-Resource-Policy'), where).toBe('same-origin')
      expect(headers.get('Permissions-Policy'), where).toBe(
        'camera=(), microphone=(), geolocation=()',
      )
      expect(headers.get('Referrer-Policy'), where).toBe('no-referrer')
      expect(headers.get('X-Content-Type-Options'), where).toBe('nosniff')
      expect(headers.get('X-Frame-Options'), where).toBe('DENY')
      expect(headers.get('Access-Control-Allow-Origin'), where).toBeNull()
      if (new URL(url).pathname.startsWith('/api/'))
        expect(headers.get('Cache-Control'), where).toBe('no-store')
    }
  })

  it('a console at an https address tells browsers to use only https, and its cookie is sent only over https', async () => {
    const file = join(folder, 'users')
    await using https = await startConsoleFixture({
      CONSOLE_URL: 'https://127.0.0.1',
      SIGN_IN: 'password',
      USERS_FILE: file,
    })
    for (const path of ['/', '/api/session', '/nothing']) {
      const { headers } = await https.request(path)
      expect(headers.get('Strict-Transport-Security'), path).toMatch(/^max-age=[1-9]\d{6,}/)
    }
    const signedIn = await https.request('/api/session', {
      method: 'POST',
      body: JSON.stringify({ User: 'ada', Password: PASSWORD }),
      headers: { Origin: https.url.replace('http:', 'https:') },
    })
    const cookies = signedIn.headers.getSetCookie()
    expect(cookies).toHaveLength(2) // of the session and of the known browser
    for (const cookie of cookies) expect(cookie).toMatch(/^__Host-.*; HttpOnly; Secure(;|$)/)
  })
})

/** Matches a text that is the path, or the end of the path, of a route that returns tokens. */
const TOKEN_PATH = /\/(?:token|exports|imports|key-rotations|exchanges|v3)(?=[/?`'"$]|$)/

describe('the paths in the program of the console', () => {
  it('the browser bundle of the console contains no path of the routes for tokens, exports, imports and the proxy', async () => {
    const { assets } = await bundledApp()
    expect(assets.length).toBeGreaterThan(1)
    // The texts of the help page are left out, because they describe these paths.
    const program = assets.filter(({ path }) => !/\/(?:errors|runbook)-[^/]*\.md$/.test(path))
    for (const { path, body } of program)
      expect(TOKEN_PATH.exec(Buffer.from(body).toString()), path).toBeNull()
  })

  it('no source of the console server contains a path of the routes for tokens, exports, imports and the proxy', async () => {
    const root = join(import.meta.dirname, '..')
    const files = (
      await Promise.all(
        ['src', 'app'].map(async (folder) =>
          (await readdir(join(root, folder), { recursive: true })).map((file) =>
            join(folder, file),
          ),
        ),
      )
    )
      .flat()
      .filter((file) => /(?<!\.test)\.tsx?$/.test(file))
    expect(files.length).toBeGreaterThan(60)
    for (const file of files)
      expect(TOKEN_PATH.exec(await readFile(join(root, file), 'utf8')), file).toBeNull()
  })

  it('the pattern that finds the paths of routes for tokens matches each of three example texts', () => {
    for (const text of ['`/credentials/${name}/token`', '"/exports"', "'/v3/company'"])
      expect(text).toMatch(TOKEN_PATH)
  })
})

/** Sends a request with this `Host` header, which fetch does not allow. */
const statusFor = (
  port: number,
  method: string,
  path: string,
  host: string,
): Promise<number | undefined> =>
  new Promise((resolve, reject) => {
    httpRequest({ host: '127.0.0.1', port, method, path, headers: { Host: host } }, (response) => {
      resolve(response.statusCode)
      response.destroy()
    })
      .on('error', reject)
      .end()
  })
