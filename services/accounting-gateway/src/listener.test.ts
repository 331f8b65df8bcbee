import { once } from 'node:events'
import { connect } from 'node:net'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { raw } from '@integration-host/shared/test-support/raw-http'
import { AUTH } from '../test-support/callers.ts'
import {
  evilListener,
  type FakeServer,
  tokenOf,
  type FakeTokenService,
} from '../test-support/fake-servers.ts'
import { type Gateway, startGateway, startFixture } from '../test-support/harness.ts'

// The tests in this file send raw bytes, because an HTTP client library would normalize hostile targets and headers.
const get = (target: string, headers = `Host: x\r\n${AUTH}`): string =>
  `GET ${target} HTTP/1.1\r\n${headers}\r\n`

let opened: AsyncDisposableStack
let upstream: FakeServer
let tokens: FakeTokenService
let proxy: Gateway
let evil: Awaited<ReturnType<typeof evilListener>>

beforeAll(async () => {
  ;({ opened, upstream, tokens } = await startFixture())
  proxy = opened.use(await startGateway(upstream.url, tokens.url))
  evil = opened.use(await evilListener())
})
beforeEach(() => {
  upstream.seen.length = 0
})
afterAll(() => opened.disposeAsync())

const stillServes = async (): Promise<void> => {
  const answer = await raw(
    proxy.port,
    get('/v3/company/1/x', `Host: x\r\n${AUTH}Connection: close\r\n`),
  )
  expect(answer.status).toBe(200)
}

describe('a request with a hostile target', () => {
  it.each([
    ['a URL instead of a path (absolute form)', 'http://127.0.0.1:EVIL/v3/company/1/x'],
    ['a URL with userinfo instead of a path', 'http://127.0.0.1@127.0.0.1:EVIL/v3/company/1/x'],
    ['a URL of another scheme instead of a path', 'ftp://127.0.0.1:EVIL/v3/company/1/x'],
    ['an authority in the path', '//127.0.0.1:EVIL/v3/company/1/x'],
    ['an authority after a backslash', '/\\127.0.0.1:EVIL/v3/company/1/x'],
    ['an authority after two backslashes', '/\\\\127.0.0.1:EVIL/v3/company/1/x'],
    ['a leading @', '@127.0.0.1:EVIL/v3/company/1/x'],
    ['userinfo after two slashes', '//user@127.0.0.1:EVIL/v3/company/1/x'],
    ['a dot segment', '/v3/company/1/../2/x'],
    ['an encoded dot segment', '/v3/company/1/%2e%2e/2/x'],
    ['a partly encoded dot segment', '/v3/company/1/.%2e/2/x'],
    ['an encoded slash', '/v3/company/1/..%2f2/x'],
    ['a doubly encoded dot segment', '/v3/company/1/%252e%252e/2/x'],
    ['a backslash segment', '/v3/company/1\\..\\2/x'],
    ['a fragment', '/v3/company/1/x#/health/live'],
    ['a public path before a fragment', '/v3/company/1/x?/health/live#'],
    ['an asterisk instead of a path', '*'],
    ['a dot in its realm', '/v3/company/1.1/x'],
    ['a realm of 65 characters', `/v3/company/${'1'.repeat(65)}/x`],
    ['an encoded carriage return', '/v3/company/1/x%0d%0aX:y'],
    ['an encoded NUL', '/v3/company/1/%00'],
    ['a dot segment before a NUL', '/v3/company/1/..%00/2/x'],
    ['a dot segment with a parameter', '/v3/company/1/..;/2/x'],
    ['a dot segment between encoded slashes', '/v3/company/1%2f..%2f2/x'],
    ['an @ in its realm', '/v3/company/1@127.0.0.1:EVIL/x'],
    ['an empty realm', '/v3/company//x'],
  ])(
    'the gateway responds 400 to a target with %s and sends nothing upstream',
    async (_what, target) => {
      const answer = await raw(proxy.port, get(target.replace('EVIL', String(evil.port))))
      expect(answer.status, answer.text).toBe(400)
      expect(upstream.seen).toHaveLength(0)
      await stillServes()
    },
  )

  it.each([
    ['a tab character', '/v3/company/1/\tx'],
    ['a bare carriage return', '/v3/company/1/\rx'],
    ['a NUL character', '/v3/company/1/\0x'],
  ])(
    'the gateway responds 400 to %s in the target and sends nothing upstream',
    async (_what, target) => {
      const answer = await raw(proxy.port, get(target))
      expect(answer.status).toBe(400)
      expect(upstream.seen).toHaveLength(0)
    },
  )

  it('the gateway responds 400 to a request without a key if the target is ambiguous, and 401 if the target is valid', async () => {
    expect((await raw(proxy.port, get('//x/v3/company/1/x', 'Host: x\r\n'))).status).toBe(400)
    expect((await raw(proxy.port, get('/v3/company/1/x?/health/live', 'Host: x\r\n'))).status).toBe(
      401,
    )
  })
})

describe('requests that address the proxy itself, such as CONNECT and Upgrade', () => {
  it.each([
    ['CONNECT', `CONNECT 127.0.0.1:EVIL HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`],
    ['CONNECT with a path', `CONNECT /v3/company/1/x HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`],
    ['TRACE', `TRACE /v3/company/1/x HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`],
    ['OPTIONS *', `OPTIONS * HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`],
    [
      'a websocket upgrade',
      get(
        '/v3/company/1/x',
        `Host: x\r\n${AUTH}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n`,
      ),
    ],
    [
      'an h2c upgrade',
      get(
        '/v3/company/1/x',
        `Host: x\r\n${AUTH}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n`,
      ),
    ],
    ['HTTP/2 by prior knowledge', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    ['an unknown method', `DEBUGGER /v3/company/1/x HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`],
  ])('the gateway responds 400 to %s and sends nothing upstream', async (_what, bytes) => {
    const answer = await raw(proxy.port, bytes.replace('EVIL', String(evil.port)))
    expect(answer.status, answer.text).toBe(400)
    expect(upstream.seen).toHaveLength(0)
    await stillServes()
  })
})

describe('a request with hostile headers', () => {
  it.each([
    ['two Authorization headers', `Host: x\r\n${AUTH}Authorization: Bearer other\r\n`],
    [
      'two Authorization headers, the key last',
      `Host: x\r\nAuthorization: Bearer other\r\n${AUTH}`,
    ],
    ['two Host headers', `Host: x\r\nHost: y\r\n${AUTH}`],
    ['no Host header', AUTH],
    ['a folded header (obs-fold)', `Host: x\r\n${AUTH}X-A: b\r\n c\r\n`],
    ['a space between a header name and its colon', `Host : x\r\n${AUTH}`],
    [
      'Content-Length beside Transfer-Encoding',
      `Host: x\r\n${AUTH}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n`,
    ],
    [
      'two different Content-Length headers',
      `Host: x\r\n${AUTH}Content-Length: 4\r\nContent-Length: 5\r\n`,
    ],
    [
      'the coding identity after chunked in Transfer-Encoding',
      `Host: x\r\n${AUTH}Transfer-Encoding: chunked, identity\r\n`,
    ],
    ['a Content-Length with a sign', `Host: x\r\n${AUTH}Content-Length: +4\r\n`],
    ['a bare line feed', `Host: x\nX-A: b\r\n${AUTH}`],
    ['a NUL in a header value', `Host: x\r\nX-A: \0\r\n${AUTH}`],
  ])('the gateway responds 400 to %s and sends nothing upstream', async (_what, headers) => {
    const answer = await raw(proxy.port, get('/v3/company/1/x', headers))
    expect(answer.status, answer.text).toBe(400)
    expect(upstream.seen).toHaveLength(0)
    await stillServes()
  })

  it('the gateway responds 431 to a request head of more than 16 KiB', async () => {
    const answer = await raw(
      proxy.port,
      get('/v3/company/1/x', `Host: x\r\n${AUTH}X-A: ${'a'.repeat(20_000)}\r\n`),
    )
    expect(answer.status).toBe(431)
    expect(upstream.seen).toHaveLength(0)
  })

  it('the gateway removes hostile request headers, and no Connection header can remove the headers of the gateway', async () => {
    const answer = await raw(
      proxy.port,
      get(
        '/v3/company/1/x',
        `Host: 127.0.0.1:${evil.port}\r\n${AUTH}Connection: close, authorization, host, x-hop\r\nX-Hop: 1\r\nCookie: a=b\r\nProxy-Authorization: Basic eA==\r\nX-Forwarded-Host: evil\r\nX-Forwarded-For: 1.2.3.4\r\nX_Forwarded_User: root\r\nForwarded: host=evil\r\nTE: trailers\r\nX-Original-URL: /v3/company/2/x\r\nX-HTTP-Method-Override: DELETE\r\nX-Kept: yes\r\n`,
      ),
    )
    expect(answer.status).toBe(200)
    const [seen] = upstream.seen
    expect(Object.keys(seen?.headers ?? {}).toSorted()).toEqual([
      'authorization',
      'connection',
      'host',
      'via',
      'x-kept',
    ])
    expect(seen?.headers).toMatchObject({
      authorization: `Bearer ${tokenOf('1', 1)}`,
      host: new URL(upstream.url).host,
      connection: 'keep-alive',
    })
    expect(upstream.seen).toHaveLength(1)
  })

  it('the gateway forwards bytes within Content-Length as the body, even if they look like a second request', async () => {
    const smuggled = get('/v3/company/2/x', `Host: x\r\nConnection: close\r\n`)
    const first = `POST /v3/company/1/x HTTP/1.1\r\nHost: x\r\n${AUTH}Content-Length: ${smuggled.length}\r\n\r\n`
    await raw(proxy.port, first + smuggled)
    expect(upstream.seen.map(({ url }) => url.split('?')[0])).toEqual(['/v3/company/1/x'])
  })
})

it('if the gateway responds 401 before the request body is complete, it closes the connection', async () => {
  const socket = connect(proxy.port, '127.0.0.1')
  socket.write('POST /v3/company/1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\nx')
  let answer = ''
  socket.on('data', (data) => (answer += String(data)))
  await once(socket, 'close') // closed by the gateway; the test never closes it
  expect(answer).toMatch(/^HTTP\/1\.1 401 [\s\S]*\r\nConnection: close\r\n/)
})

it('the gateway opens no connection to any host that a request in this test file names', () => {
  expect(evil.connections()).toBe(0)
})
