/**
 * Tests of the fast path: which requests it accepts, which requests it hands over to `node:http`, and that it sends the
 * same responses as `node:http`.
 */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { assert as holds, asyncProperty, integer, uniqueArray } from 'fast-check'
import {
  LONG,
  slowCaller,
  startFastPath,
} from '@integration-host/fast-http/test-support/start-fast-path'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { Attempt } from './proxy/attempt.ts'
import {
  bodyOf,
  echo,
  KEY,
  type FakeServer,
  startFakeServer,
  startFakeTokenService,
  startRawUpstream,
} from '../test-support/fake-servers.ts'
import { type Gateway, startGateway } from '../test-support/harness.ts'

const HEAD = `Host: x\r\nAuthorization: Bearer ${KEY}\r\n`
const get = (path = '/v3/company/1/x', more = ''): string =>
  `GET ${path} HTTP/1.1\r\n${HEAD}${more}\r\n`

const post = (body: string, more = ''): string =>
  `POST /v3/company/1/invoice HTTP/1.1\r\n${HEAD}Content-Type: application/json\r\n${more}Content-Length: ${body.length}\r\n\r\n${body}`

const CHUNKED = get('/v3/company/1/x', 'Transfer-Encoding: chunked\r\n')
const TRAILERS = `0\r\n${'A: b\r\n'.repeat(1_001)}\r\n`
const LAST_CHUNK = /(?:^|\r\n)0\r\n(?:.+\r\n)*\r\n/

let opened: AsyncDisposableStack
let upstream: FakeServer
let tokens: Awaited<ReturnType<typeof startFakeTokenService>>
let proxy: Gateway
beforeEach(async () => {
  opened = new AsyncDisposableStack()
  upstream = opened.use(await startFakeServer(echo))
  tokens = opened.use(await startFakeTokenService(['1', '2']))
  proxy = opened.use(await startGateway(upstream.url, tokens.url))
})
afterEach(() => opened.disposeAsync())

/**
 * Opens a caller's connection. `answer` resolves with the next complete response. The end of a response is determined
 * by `Content-Length` or by its last chunk.
 */
async function caller(port = proxy.port) {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true })
  opened.defer(() => void socket.destroy())
  await once(socket, 'connect')
  let received = ''
  let notified = Promise.withResolvers<void>()
  const notify = (): void => {
    notified.resolve()
    notified = Promise.withResolvers()
  }
  socket.on('data', (bytes: Buffer) => {
    received += bytes.toString('latin1')
    notify()
  })
  socket.on('close', notify)
  socket.on('error', () => {})
  return {
    socket,
    closed: () => (socket.closed ? Promise.resolve() : once(socket, 'close')),
    answer: async (): Promise<{ head: string; body: string }> => {
      for (;;) {
        const end = received.indexOf('\r\n\r\n')
        const head = received.slice(0, end)
        const length = /\r\nContent-Length: (\d+)/i.exec(head)?.[1]
        const isChunked = /\r\nTransfer-Encoding: chunked/i.test(head)
        const last = isChunked ? received.slice(end + 4).search(LAST_CHUNK) : -1
        const size = isChunked
          ? received.indexOf('\r\n\r\n', end + 4 + last) - end
          : Number(length ?? 0)
        if (end !== -1 && (!isChunked || last !== -1) && received.length >= end + 4 + size) {
          const body = received.slice(end + 4, end + 4 + size)
          received = received.slice(end + 4 + size)
          return { head, body }
        }
        if (socket.closed) throw new Error(`closed within a response: ${JSON.stringify(received)}`)
        await notified.promise
      }
    },
  }
}

const written = (socket: Socket, bytes: string): Promise<void> =>
  new Promise((resolve) => socket.write(bytes, 'latin1', () => resolve()))

/** Matches the id that the gateway adds to a POST if the caller sent no idempotency key. */
const ADDED_KEY = /[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}/g

/** Removes the header values that are different in every response, and sorts the header lines. */
const stable = (head: string): string =>
  head
    .replace(/^(Date|X-Request-Id|Server-Timing): .*$/gim, '$1')
    .replace(ADDED_KEY, 'key')
    .split('\r\n')
    .toSorted()
    .join('\r\n')

describe('responses of the fast path compared with those of node:http', () => {
  it.each([
    ['a call for a connected company', get()],
    [
      'a call with a query and an empty header',
      get('/v3/company/1/query?query=select%20*', 'X-Empty:\r\nB: c\r\n'),
    ],
    ['a call without a key', 'GET /v3/company/1/x HTTP/1.1\r\nHost: x\r\n\r\n'],
    ['a call with a wrong key', get().replace(KEY, 'wrong')],
    ['a call for a company that is not connected', get('/v3/company/9/x')],
    ['a request with an ambiguous target', get('/v3/company/1/../2/x')],
    ['a request with two Host headers', get('/v3/company/1/x', 'Host: y\r\n')],
    [
      'a request without a Host header',
      `GET /v3/company/1/x HTTP/1.1\r\nAuthorization: Bearer ${KEY}\r\n\r\n`,
    ],
    [
      'a request for an upgrade to websocket',
      get('/v3/company/1/x', 'Connection: upgrade\r\nUpgrade: websocket\r\n'),
    ],
    [
      'a request with the header Connection: close',
      get('/v3/company/1/x', 'Connection: close\r\n'),
    ],
    ['a GET with a body', `${get('/v3/company/1/x', 'Content-Length: 4\r\n')}body`],
    ['a POST', post('{"DocNumber":"1"}')],
    ['a POST with an empty body', post('')],
    ['a POST without a Content-Length', post('').replace('Content-Length: 0\r\n', '')],
    ['a POST with a body of 64 KiB', post('x'.repeat(65_536))],
    ['a POST with a body of 1 MiB', post('x'.repeat(1_048_576))],
    ['a POST with an idempotency key', post('{}', 'Idempotency-Key: k\r\n')],
    ['a POST whose body looks like a request', post(get('/v3/company/2/x'))],
    ['a POST without a key', post('{}').replace(/Authorization.*\r\n/, '')],
    ['a POST with two lengths', post('{}', 'Content-Length: 2\r\n')],
    ['a POST whose length is not a number', post('{}').replace('h: 2', 'h: 2x')],
    [
      'a POST with a length and a transfer coding',
      post('0\r\n\r\n', 'Transfer-Encoding: chunked\r\n'),
    ],
    ['a POST for a company that is not connected', post('{}').replace('/1/', '/9/')],
    ['a HEAD request', get().replace('GET', 'HEAD')],
    ['a health check', get('/health/live')],
    ['a request for a path that does not exist', get('/v4')],
    ['an HTTP/1.0 request', get().replace('HTTP/1.1', 'HTTP/1.0')],
    ['a request with 1,001 headers', get('/v3/company/1/x', 'A: b\r\n'.repeat(999))],
    ['a chunked request with 1,001 trailers', CHUNKED + TRAILERS],
    [
      'a request with the transfer coding gzip',
      CHUNKED.replace('chunked', 'gzip, chunked') + TRAILERS,
    ],
    ['a request with a folded header (obs-fold)', get('/v3/company/1/x', 'A: b\r\n c\r\n')],
    ['a request head of more than 16 KiB', get('/v3/company/1/x', `A: ${'b'.repeat(17_000)}\r\n`)],
  ])('the fast path and node:http send the same response to %s', async (_what, request) => {
    const whole = await caller()
    await written(whole.socket, request)
    const cut = await caller()
    await written(cut.socket, request.slice(0, 5))
    await written(cut.socket, request.slice(5))
    const [one, other] = [await whole.answer(), await cut.answer()]
    expect(stable(one.head)).toBe(stable(other.head))
    const unmarked = (body: string): string =>
      body.replace(/"(requestId|instance)":"[^"]*"/g, '').replace(ADDED_KEY, 'key')
    expect(unmarked(one.body)).toBe(unmarked(other.body))
  })

  it.each([
    [
      'in chunks with a trailer',
      'Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n',
    ],
    ['that ends when its connection closes', 'Connection: close\r\n\r\nok'],
    ['with an empty body', 'Content-Length: 0\r\n\r\n'],
    ['with Latin-1 bytes', 'X-Latin: \xe9\r\nContent-Length: 1\r\n\r\n\xe9'],
  ])('the fast path and node:http relay a response %s in the same way', async (_what, rest) => {
    const wire = opened.use(await startRawUpstream(`HTTP/1.1 200 OK\r\nX-A: b\r\n${rest}`))
    const { port } = opened.use(await startGateway(wire.url, tokens.url))
    const whole = await caller(port)
    await written(whole.socket, get())
    const cut = await caller(port)
    await written(cut.socket, get().slice(0, 9))
    await written(cut.socket, get().slice(9))
    const [one, other] = [await whole.answer(), await cut.answer()]
    expect(stable(one.head)).toBe(stable(other.head))
    expect(one.body).toBe(other.body)
  })
})

describe('a connection on the fast path', () => {
  it('the fast path sends responses in the order of the requests, even if requests are pipelined or arrive in several parts', async () => {
    const paths = Array.from({ length: 12 }, (_, n) => `/v3/company/${1 + (n % 2)}/x${n}`)
    const bytes = paths
      .map((path, n) =>
        n % 3 === 0
          ? post(get('/v3/company/9/y')).replace('/v3/company/1/invoice', path)
          : get(path),
      )
      .join('')
    await holds(
      asyncProperty(
        uniqueArray(integer({ min: 1, max: bytes.length - 1 }), { maxLength: 20 }),
        async (cuts) => {
          const { socket, answer } = await caller()
          let from = 0
          for (const to of [...cuts.toSorted((a, b) => a - b), bytes.length]) {
            await written(socket, bytes.slice(from, to))
            from = to
          }
          for (const path of paths)
            expect(JSON.parse((await answer()).body)).toMatchObject({
              url: expect.stringMatching(new RegExp(`^${path}(?!\\d)`)),
            })
          socket.destroy()
        },
      ),
      { seed: 7, numRuns: 40 },
    )
  })

  it('the fast path keeps a connection open after a POST, a 404 response or a health check', async () => {
    const { socket, answer } = await caller()
    for (const [request, status] of [
      [get(), 200],
      [get('/v3/company/9/x'), 404],
      [get(), 200],
      [post('body'), 200],
      [get(), 200],
      [get('/health/live'), 200],
      [get('/nowhere'), 404],
      [get(), 200],
    ] as const) {
      socket.write(request, 'latin1')
      expect((await answer()).head).toMatch(`HTTP/1.1 ${status} `)
    }
  })

  it('the gateway checks the service key of every request on a connection', async () => {
    const { socket, answer } = await caller()
    for (const [key, status] of [
      [KEY, 200],
      [`${KEY}x`, 401],
    ] as const) {
      socket.write(get().replace(KEY, key), 'latin1')
      expect((await answer()).head).toMatch(`HTTP/1.1 ${status} `)
    }
  })

  it('the gateway treats a caller that half-closes its connection as disconnected', async () => {
    const requested = Promise.withResolvers<void>()
    const gone = Promise.withResolvers<void>()
    upstream.handle = (_request, response) => {
      response.on('close', () => gone.resolve())
      requested.resolve()
    }
    const { socket, closed } = await caller()
    socket.write(get())
    await requested.promise
    socket.end()
    await gone.promise
    await closed()
    expect(proxy.log.at(-1)).toMatchObject({ status: 499 })
  })

  it('a caller that starts to read late receives a complete response of 8 MB', async () => {
    const size = 8_000_000
    upstream.handle = async (request, response) => {
      await bodyOf(request)
      response.end(Buffer.alloc(size, 'x'))
    }
    const { socket, answer } = await caller()
    socket.pause()
    socket.write(get())
    await once(upstream.server, 'request')
    socket.resume()
    expect((await answer()).body).toHaveLength(size)
    upstream.handle = echo
    socket.write(get())
    expect((await answer()).head).toMatch('HTTP/1.1 200 ')
  })
})

it('at shutdown, the gateway sends Connection: close with the response to a call in flight, and closes idle connections', async () => {
  const requested = Promise.withResolvers<() => void>()
  upstream.handle = (_request, response) => requested.resolve(() => response.end('done'))
  const service = await startGateway(upstream.url, tokens.url)
  const [busy, idle] = [await caller(service.port), await caller(service.port)]
  busy.socket.write(get())
  const finish = await requested.promise
  upstream.handle = echo
  idle.socket.write(get())
  await idle.answer()
  const over = service[Symbol.asyncDispose]()
  await idle.closed()
  finish()
  const { head, body } = await busy.answer()
  expect(head).toMatch(/\r\nConnection: close(\r\n|$)/)
  expect(body).toContain('done')
  await busy.closed()
  await over
})

it('the connection of a caller stays open if the whole response was written before the caller read it', async () => {
  const flow = { isSent: true, pause() {}, resume() {}, abort() {} }
  const { port } = await startFastPath(opened, (request, response) => {
    const attempt = new Attempt({ request, response, bearer: 'x', judge: () => ({ add: [] }) })
    attempt.onStart(flow)
    attempt.onHeaders(200, ['Content-Length', String(2 * LONG.length)])
    attempt.onData(LONG)
    attempt.onData(LONG)
    attempt.onEnd([])
    return true
  })
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  opened.defer(() => void vi.useRealTimers())
  const { socket, reads } = await slowCaller(opened, port)
  for (let n = 0; n < 2; n += 1) {
    socket.write(get())
    expect(await reads(2 * LONG.length)).toBe(true)
    vi.advanceTimersByTime(120_000)
  }
})
