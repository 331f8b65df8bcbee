/**
 * Tests of attacks by callers and by the accounting API: request smuggling, requests that name other hosts, wrong keys,
 * DNS rebinding and leaked secrets.
 */
import { PerformanceObserver } from 'node:perf_hooks'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { openPaths } from '@integration-host/shared/test-support/open-paths'
import { raw } from '@integration-host/shared/test-support/raw-http'
import { AUTH } from '../test-support/callers.ts'
import {
  bodyOf,
  evilListener,
  KEY,
  type FakeServer,
  tokenOf,
  type FakeTokenService,
} from '../test-support/fake-servers.ts'
import { type Gateway, startGateway, startFixture } from '../test-support/harness.ts'

const REALMS = ['1', '2'] as const

/** The arguments that Node passes to a DNS lookup function. */
interface Lookup {
  readonly detail: { readonly hostname: string }
}

let opened: AsyncDisposableStack
let upstream: FakeServer
let tokens: FakeTokenService
let proxy: Gateway
let evil: Awaited<ReturnType<typeof evilListener>>
/** All bytes that callers have received in the tests of this file. The last test searches these bytes for secrets. */
let callerReceived: string

beforeAll(async () => {
  ;({ opened, upstream, tokens } = await startFixture(REALMS, async (request, response) => {
    await bodyOf(request).catch(() => null)
    response.end('ok')
  }))
  proxy = opened.use(await startGateway(upstream.url, tokens.url))
  evil = opened.use(await evilListener())
  callerReceived = ''
})
beforeEach(() => {
  upstream.seen.length = 0
})
afterAll(() => opened.disposeAsync())

async function attack(bytes: string) {
  const answer = await raw(proxy.port, bytes.replaceAll('EVIL', `127.0.0.1:${evil.port}`), 200)
  callerReceived += answer.text
  return answer
}
const countResponses = (text: string): number =>
  text.match(/HTTP\/1\.1 (?!100)\d{3} /g)?.length ?? 0

// Request smuggling (RFC 9112 §6, §7.1, §11.2). Each example contains a second request, for another realm and without a
// key. The second request could reach upstream only if the gateway and upstream disagreed about the end of the first
// request's body.
const SMUGGLED = 'GET /v3/company/2/smuggled HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'
const smugglers: readonly (readonly [what: string, headers: string, body: string])[] = [
  [
    'Content-Length before Transfer-Encoding',
    'Content-Length: 4\r\nTransfer-Encoding: chunked',
    '0\r\n\r\n',
  ],
  [
    'Content-Length after Transfer-Encoding',
    'Transfer-Encoding: chunked\r\nContent-Length: 4',
    '0\r\n\r\n',
  ],
  [
    'Content-Length 0 before Transfer-Encoding',
    'Content-Length: 0\r\nTransfer-Encoding: chunked',
    '0\r\n\r\n',
  ],
  ['two different Content-Length headers', 'Content-Length: 0\r\nContent-Length: 40', ''],
  ['two equal Content-Length headers', 'Content-Length: 0\r\nContent-Length: 0', ''],
  ['a list in Content-Length', 'Content-Length: 0, 40', ''],
  ['a Content-Length with a sign', 'Content-Length: +0', ''],
  ['a negative Content-Length', 'Content-Length: -1', ''],
  ['a hexadecimal Content-Length', 'Content-Length: 0x0', ''],
  ['a Content-Length with a fraction', 'Content-Length: 0.0', ''],
  ['a Content-Length with an underscore between digits', 'Content-Length: 1_0', '0123456789'],
  ['a Content-Length of 2^64', 'Content-Length: 18446744073709551616', ''],
  ['an empty Content-Length', 'Content-Length: ', ''],
  ['a space between Content-Length and its colon', 'Content-Length : 0', ''],
  ['a tab between Content-Length and its colon', 'Content-Length\t: 0', ''],
  ['a folded Content-Length (obs-fold)', 'Content-Length:\r\n 0', ''],
  ['a NUL in a header name before Content-Length', 'X\0: y\r\nContent-Length: 0', ''],
  ['a bare carriage return before Content-Length', 'X: y\rContent-Length: 40', ''],
  ['a bare line feed before Content-Length', 'X: y\nContent-Length: 40', ''],
  ['the coding chunked listed twice', 'Transfer-Encoding: chunked, chunked', '0\r\n\r\n'],
  [
    'two Transfer-Encoding headers with chunked',
    'Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked',
    '0\r\n\r\n',
  ],
  ['the coding identity after chunked', 'Transfer-Encoding: chunked, identity', '0\r\n\r\n'],
  [
    'a second Transfer-Encoding header with identity',
    'Transfer-Encoding: chunked\r\nTransfer-Encoding: identity',
    '0\r\n\r\n',
  ],
  ['the coding chunked in quotes', 'Transfer-Encoding: "chunked"', '0\r\n\r\n'],
  ['a vertical tab before the coding chunked', 'Transfer-Encoding: \x0bchunked', '0\r\n\r\n'],
  ['a comma before the coding chunked', 'Transfer-Encoding: ,chunked', '0\r\n\r\n'],
  ['the unknown coding xchunked', 'Transfer-Encoding: xchunked', '0\r\n\r\n'],
  ['a parameter of the coding chunked', 'Transfer-Encoding: chunked;q=1', '0\r\n\r\n'],
  ['the coding gzip before chunked', 'Transfer-Encoding: gzip, chunked', '0\r\n\r\n'],
  ['a space between Transfer-Encoding and its colon', 'Transfer-Encoding : chunked', '0\r\n\r\n'],
  ['a folded Transfer-Encoding (obs-fold)', 'Transfer-Encoding:\r\n chunked', '0\r\n\r\n'],
  ['Transfer_Encoding with an underscore', 'Transfer_Encoding: chunked', ''],
  ['a chunk size with a sign', 'Transfer-Encoding: chunked', '+0\r\n\r\n'],
  ['a chunk size with the prefix 0x', 'Transfer-Encoding: chunked', '0x0\r\n\r\n'],
  ['a chunk size of 2^64', 'Transfer-Encoding: chunked', '10000000000000000\r\n\r\n'],
  ['a space before the chunk size', 'Transfer-Encoding: chunked', ' 0\r\n\r\n'],
  ['a chunk longer than its announced size', 'Transfer-Encoding: chunked', '1\r\nabc\r\n0\r\n\r\n'],
  ['a bare line feed after a chunk', 'Transfer-Encoding: chunked', '1\r\na\n0\r\n\r\n'],
  ['a line feed in a chunk extension', 'Transfer-Encoding: chunked', '0;a=\nb\r\n\r\n'],
  ['Content-Length as a trailer', 'Transfer-Encoding: chunked', '0\r\nContent-Length: 40\r\n\r\n'],
  ['Authorization as a trailer', 'Transfer-Encoding: chunked', `0\r\n${AUTH}\r\n`],
  ['more bytes than its Content-Length', 'Content-Length: 5', 'hello, world'],
  [
    'a Connection header that lists content-length',
    'Connection: content-length\r\nContent-Length: 5',
    'hello',
  ],
]

describe('request smuggling through the gateway', () => {
  it.each(smugglers)(
    'the gateway forwards no second request that is smuggled by %s',
    async (_what, headers, body) => {
      const head = `PUT /v3/company/1/x HTTP/1.1\r\nHost: x\r\n${AUTH}${headers}\r\n\r\n`
      const { text, status } = await attack(head + body + SMUGGLED)
      expect(
        upstream.seen.filter(({ url }) => url.includes('smuggled')),
        text,
      ).toEqual([])
      expect(upstream.seen.length).toBeLessThanOrEqual(1)
      // The gateway closes the connection after it has rejected a request. The following bytes are therefore not read
      // as another request.
      if (status === 400 || status === 501) expect(countResponses(text), text).toBe(1)
    },
  )
})

describe('a request to the gateway that tries to select another host', () => {
  it.each([
    ['another host in Host', 'Host: EVIL'],
    ['userinfo and another host in Host', 'Host: x@EVIL'],
    ['X-Forwarded-Host', 'Host: x\r\nX-Forwarded-Host: EVIL'],
    ['Forwarded', 'Host: x\r\nForwarded: host=EVIL;proto=http'],
    [
      'X-Forwarded-Server and X-Forwarded-Port',
      'Host: x\r\nX-Forwarded-Server: EVIL\r\nX-Forwarded-Port: 1',
    ],
    ['X-Original-URL', 'Host: x\r\nX-Original-URL: http://EVIL/v3/company/2/x'],
    ['X-Forwarded-Uri', 'Host: x\r\nX-Forwarded-Uri: /health/live'],
    ['the User-Agent of a Kubernetes probe', 'Host: x\r\nUser-Agent: kube-probe/1.30'],
    [
      'Proxy-Connection',
      'Host: x\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic eDp5',
    ],
  ])(
    'the gateway sends a request with %s only to the configured address, and only with a valid key',
    async (_what, headers) => {
      const lines = `GET /v3/company/1/x HTTP/1.1\r\n${headers}\r\nConnection: close\r\n`
      expect((await attack(`${lines}\r\n`)).status).toBe(401)
      expect(upstream.seen).toHaveLength(0)
      await attack(`${lines}${AUTH}\r\n`)
      expect(upstream.seen).toHaveLength(1)
      expect(upstream.seen[0]).toMatchObject({
        url: '/v3/company/1/x',
        headers: { host: new URL(upstream.url).host, authorization: `Bearer ${tokenOf('1', 1)}` },
      })
      expect(JSON.stringify(upstream.seen[0])).not.toContain(String(evil.port))
    },
  )

  it.each([
    ['no HTTP version', 'GET /v3/company/1/x\r\n\r\n'],
    ['version HTTP/0.9', `GET /v3/company/1/x HTTP/0.9\r\nHost: x\r\n${AUTH}\r\n`],
    ['version HTTP/2.0', `GET /v3/company/1/x HTTP/2.0\r\nHost: x\r\n${AUTH}\r\n`],
    ['version HTTP/1.2', `GET /v3/company/1/x HTTP/1.2\r\nHost: x\r\n${AUTH}\r\n`],
    ['the bytes of a TLS ClientHello', '\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03'],
    ['a space in its target', `GET /v3/company/1/x y HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`],
    ['a space in its realm', `GET /v3/company/1 /x HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`],
    ['a method in lower case', `get /v3/company/1/x HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`],
    [
      'an unknown value of Expect',
      `PUT /v3/company/1/x HTTP/1.1\r\nHost: x\r\n${AUTH}Expect: x\r\n\r\n`,
    ],
  ])('the gateway rejects a request with %s and sends nothing upstream', async (_what, bytes) => {
    const { status, text } = await attack(bytes)
    expect([400, 417, 505], text).toContain(status)
    expect(upstream.seen).toHaveLength(0)
  })

  it.each([
    'CONNECT EVIL HTTP/1.1',
    'CONNECT 127.0.0.1:5432 HTTP/1.1',
    'GET http://EVIL/ HTTP/1.1',
  ])(
    'the gateway opens no tunnel for the request line %s, and ignores all bytes after the request head',
    async (line) => {
      const { text } = await attack(`${line}\r\nHost: EVIL\r\n${AUTH}\r\nGET / HTTP/1.1\r\n\r\n`)
      expect(text).toMatch(/^HTTP\/1\.1 400 /)
      expect(upstream.seen).toHaveLength(0)
    },
  )
})

describe('a hostile response of upstream', () => {
  it.each([301, 302, 303, 307, 308])(
    'the gateway relays a %i redirect to another host without following it',
    async (status) => {
      const before = upstream.handle
      upstream.handle = (_request, response) =>
        response.writeHead(status, { Location: `http://127.0.0.1:${evil.port}/` }).end()
      const answer = await proxy.call('/v3/company/1/x', { method: 'PUT', body: 'x' })
      upstream.handle = before
      expect([answer.status, upstream.seen.length]).toEqual([status, 1])
    },
  )

  it("the gateway removes response headers that set cookies, apply to the gateway's origin, or contain the token", async () => {
    const before = upstream.handle
    upstream.handle = (request, response) =>
      response
        .writeHead(403, {
          'WWW-Authenticate': 'Bearer realm="upstream"',
          'Set-Cookie': 'a=b',
          'Alt-Svc': 'h2="evil:443"',
          'Clear-Site-Data': '"*"',
          'Strict-Transport-Security': 'max-age=1',
          'X-Echo': request.headers.authorization ?? '',
          Server: 'upstream',
        })
        .end()
    const answer = await proxy.call('/v3/company/1/x')
    upstream.handle = before
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      'www-authenticate': 'Bearer realm="upstream"',
      server: 'upstream',
    })
    for (const name of [
      'set-cookie',
      'alt-svc',
      'clear-site-data',
      'strict-transport-security',
      'x-echo',
    ])
      expect(answer.headers.has(name), name).toBe(false)
  })
})

describe('the authorization of callers by the gateway', () => {
  const other = 'another-service-key-0123456789abcdefghij'
  const keys: readonly (readonly [string, Readonly<Record<string, string>>])[] = [
    ['no key', {}],
    ['another key', { Authorization: `Bearer ${other}` }],
    ['a part of the key', { Authorization: `Bearer ${KEY.slice(0, -1)}` }],
    ['another scheme', { Authorization: `Token ${KEY}` }],
    ['the access token of the realm', { Authorization: `Bearer ${tokenOf('1', 1)}` }],
    ['the key in X-Api-Key and Cookie', { 'X-Api-Key': KEY, Cookie: `key=${KEY}` }],
  ]
  const methods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']
  const companyPaths = REALMS.map((realm) => `/v3/company/${realm}/x`)

  it.each(keys)(
    'the gateway serves only public resources to a request with %s',
    async (_what, headers) => {
      for (const path of [...companyPaths, '/v3/company/unknown/x', '/v3', '/healthz', '/docs/x'])
        for (const method of methods) {
          const answer = await fetch(proxy.url + path, { method, headers })
          expect([method, path, answer.status]).toEqual([method, path, 401])
        }
      for (const path of openPaths) {
        const answer = await fetch(proxy.url + path, { headers })
        expect([path, answer.status]).not.toEqual([path, 401])
        callerReceived += await answer.text()
      }
      expect(upstream.seen).toHaveLength(0)
    },
  )

  it('the gateway accepts the service key for every realm, and sends each call with the token of its realm', async () => {
    for (const path of companyPaths)
      for (const method of methods) expect((await proxy.call(path, { method })).status).toBe(200)
    expect(upstream.seen).toHaveLength(companyPaths.length * methods.length)
    for (const { url, headers } of upstream.seen) {
      const realm = /company\/(\w+)\//.exec(url)?.[1] ?? ''
      expect(headers.authorization).toBe(`Bearer ${tokenOf(realm, 1)}`)
    }
  })

  it('the gateway responds 401 if the service key is in the query', async () => {
    const answer = await fetch(`${proxy.url}/v3/company/1/x?access_token=${KEY}`)
    expect(answer.status).toBe(401)
  })
})

describe('a request with a wrong service key', () => {
  it('the gateway sends the same 401 response to every wrong key, even if the key is similar to the valid key', async () => {
    const answers = new Set<string>()
    for (const key of [
      `x${KEY.slice(1)}`,
      `${KEY.slice(0, -1)}x`,
      KEY.slice(0, -1),
      `${KEY}x`,
      KEY.toUpperCase(),
      'x',
      'x'.repeat(512),
    ]) {
      const answer = await proxy.call('/v3/company/1/x', {
        headers: { Authorization: `Bearer ${key}` },
      })
      answers.add(`${answer.status} ${await answer.text()}`)
    }
    expect([...answers]).toEqual([expect.stringMatching(/^401 .*"unauthorized"/)])
  })

  it('the gateway serves a call with a valid key, and forwards none of 1,000 concurrent calls with wrong keys', async () => {
    const before = tokens.seen.length
    const wrong = Array.from({ length: 1_000 }, async (_, index) => {
      const headers = { Authorization: `Bearer ${KEY.slice(0, -4)}${1_000 + index}` }
      const answer = await proxy.call('/v3/company/2/x', { headers })
      await answer.body?.cancel()
      return answer.status
    })
    const right = await proxy.call('/v3/company/1/x')
    expect([right.status, await right.text()]).toEqual([200, 'ok'])
    expect(new Set(await Promise.all(wrong))).toEqual(new Set([401]))
    expect(upstream.seen).toHaveLength(1)
    expect(tokens.seen.slice(before).filter(({ url }) => url.includes('ACC-2'))).toEqual([])
  })
})

describe('resolution of host names (DNS rebinding)', () => {
  it('the gateway resolves only the host name of ACCOUNTING_URL, and does so once per upstream connection', async () => {
    const { port } = new URL(upstream.url)
    await using named = await startGateway(`http://localhost:${port}`, tokens.url)
    const lookups: string[] = []
    using observed = new DisposableStack()
    const observer = new PerformanceObserver((list) => {
      for (const { detail } of list.getEntries() as unknown as Lookup[])
        lookups.push(detail.hostname)
    })
    observer.observe({ entryTypes: ['dns'] })
    observed.defer(() => observer.disconnect())
    const connections = new Set<unknown>()
    upstream.server.on('connection', (socket) => connections.add(socket))
    for (const host of ['rebind.invalid', 'localhost.', '0x7f.1', '2130706433']) {
      const lines = `Host: ${host}\r\nX-Forwarded-Host: ${host}\r\nForwarded: host=${host}\r\n${AUTH}`
      const { status } = await raw(
        named.port,
        `GET /v3/company/1/x HTTP/1.1\r\n${lines}Connection: close\r\n\r\n`,
      )
      expect([host, status]).toEqual([host, 200])
      await raw(named.port, `GET http://${host}/v3/company/1/x HTTP/1.1\r\n${lines}\r\n`)
    }
    expect(upstream.seen).toHaveLength(4)
    expect(new Set(upstream.seen.map(({ headers }) => headers.host))).toEqual(
      new Set([`localhost:${port}`]),
    )
    await eventually(() =>
      expect(lookups.filter((name) => name === 'localhost').length).toBe(connections.size),
    )
    expect(new Set(lookups)).toEqual(new Set(['localhost']))
  })
})

it('the gateway opens no connection to the hosts in the hostile targets, headers and redirects of this test file', () => {
  expect(evil.connections()).toBe(0)
})

it('the gateway writes no token or key to a response, a metric or the log in any test of this file', async () => {
  const log = proxy.logText()
  // The search for secrets is only useful if tokens were requested and calls were logged.
  expect(tokens.tokens().length).toBeGreaterThan(0)
  expect(log.length).toBeGreaterThan(10_000)
  const everything = log + callerReceived + (await (await fetch(`${proxy.url}/metrics`)).text())
  const secrets = [KEY, ...REALMS.map((realm) => tokenOf(realm, 1))]
  for (const secret of secrets) {
    const bytes = Buffer.from(secret)
    const base64 = [0, 1, 2].map((shift) =>
      // The first and the last base64 characters are not compared, because they also depend on the bytes next to the
      // secret.
      Buffer.concat([Buffer.alloc(shift), bytes])
        .toString('base64')
        .slice(4, -4),
    )
    for (const form of [
      secret,
      secret.slice(0, 16),
      secret.slice(-16),
      encodeURIComponent(secret),
      bytes.toString('hex'),
      ...base64,
    ])
      expect(everything.includes(form), form).toBe(false)
  }
})
