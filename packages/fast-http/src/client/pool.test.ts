import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer as createHttps } from 'node:https'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { type Flow, HttpFailure } from './exchange.ts'
import { requestText } from './request-text.ts'
import { Pool, type PoolOptions } from './pool.ts'

let opened: AsyncDisposableStack
beforeEach(() => {
  opened = new AsyncDisposableStack()
})
afterEach(() => opened.disposeAsync())

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
const CHUNKED = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'
const responseWith = (fields: string, version = '1.1'): string =>
  `HTTP/${version} 200 OK\r\n${fields}\r\n\r\n0\r\n\r\n`

/** A TCP server for which the test writes the responses. */
async function peer(onBytes: (bytes: string, socket: Socket) => void) {
  const sockets = new Set<Socket>()
  const accepted = Promise.withResolvers<Socket>()
  let connections = 0
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    connections += 1
    sockets.add(socket)
    accepted.resolve(socket)
    socket.on('error', () => {})
    socket.on('data', (bytes: Buffer) => onBytes(bytes.toString('latin1'), socket))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  opened.defer(async () => {
    const closed = once(server, 'close')
    server.close()
    for (const socket of sockets) socket.destroy()
    await closed
  })
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    connections: () => connections,
    /** The server's socket of the first connection. */
    accepted: accepted.promise,
  }
}

/** Resolves with the next socket that this process opens as a client. */
function clientSocket(): Promise<Socket> {
  const { promise, resolve } = Promise.withResolvers<Socket>()
  const channel = 'net.client.socket'
  const onSocket = (message: unknown): void => resolve((message as { socket: Socket }).socket)
  subscribe(channel, onSocket)
  opened.defer(() => void unsubscribe(channel, onSocket))
  return promise
}

const client = (url: string, options?: PoolOptions) => opened.use(new Pool(url, options))

type Client = ReturnType<typeof client>
type Body = readonly Buffer[] | AsyncIterable<Buffer>

/** Makes one request and resolves with the complete response. */
const get = (
  upstream: Client,
  {
    timeoutMs = 10_000,
    ...more
  }: { method?: string; headers?: string[]; body?: Body; timeoutMs?: number } = {},
) =>
  requestText(
    upstream,
    { method: 'GET', path: '/x?a=%20', headers: [], body: null, ...more },
    { timeoutMs, signal: new AbortController().signal },
  )

const failureOf = (call: Promise<unknown>): Promise<string> =>
  call.then(
    () => 'completed',
    (error: unknown) => (error instanceof HttpFailure ? error.kind : String(error)),
  )

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

describe('an HTTP client connection', () => {
  it('the HTTP client sends the path and the headers of a request byte for byte', async () => {
    let seen = ''
    const server = await peer((bytes, socket) => {
      seen += bytes
      socket.write(OK)
    })
    const headers = ['X-Case', 'A b', 'x-latin', '\xe9']
    expect(await get(client(server.url), { headers })).toMatchObject({ status: 200, text: 'ok' })
    expect(seen).toBe(
      `GET /x?a=%20 HTTP/1.1\r\nhost: ${new URL(server.url).host}\r\nconnection: keep-alive\r\n` +
        'X-Case: A b\r\nx-latin: \xe9\r\n\r\n',
    )
  })

  it('the HTTP client reuses a connection, and never has two requests in flight on one connection', async () => {
    const server = await peer((_bytes, socket) => socket.write(OK))
    const upstream = client(server.url)
    for (let n = 0; n < 3; n += 1) {
      await get(upstream)
      await turn()
    }
    expect(server.connections()).toBe(1)
    await Promise.all([get(upstream), get(upstream)])
    expect(server.connections()).toBe(2)
  })

  it.each([
    [
      'sends Connection: close',
      'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok',
    ],
    ['responds with HTTP/1.0', 'HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok'],
    [
      'announces a keep-alive timeout of one second',
      OK.replace('\r\n\r\n', '\r\nKeep-Alive: timeout=1\r\n\r\n'),
    ],
    ['sends more bytes than it announced', `${OK}HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad`],
    [
      'sends a 204 response with a Content-Length',
      'HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n',
    ],
  ])('the HTTP client does not reuse a connection if the server %s', async (_what, response) => {
    const server = await peer((_bytes, socket) => socket.write(response))
    const upstream = client(server.url)
    for (let n = 0; n < 2; n += 1) {
      expect((await get(upstream)).text).toBe(response.includes('204') ? '' : 'ok')
      await turn()
    }
    expect(server.connections()).toBe(2)
  })

  it('the HTTP client does not reuse an idle connection that the server has closed', async () => {
    const server = await peer((_bytes, socket) => socket.write(OK))
    const upstream = client(server.url)
    await get(upstream)
    const socket = await server.accepted
    socket.end()
    await once(socket, 'close')
    expect((await get(upstream)).text).toBe('ok')
    expect(server.connections()).toBe(2)
  })

  it('the HTTP client does not use a connection that the server closes just before the next request', async () => {
    const ours = clientSocket()
    const server = await peer((_bytes, socket) => socket.write(OK))
    const upstream = client(server.url)
    await get(upstream)
    const socket = await ours
    // The test sends the next request in the turn of the event loop in which the client reads the end of the
    // connection. The client's socket has not emitted `close` at this point.
    const next = new Promise((resolve) => socket.once('end', () => resolve(get(upstream))))
    void server.accepted.then((theirs) => theirs.end())
    expect(await next).toMatchObject({ text: 'ok' })
    expect(server.connections()).toBe(2)
  })

  it('the HTTP client does not reuse a connection after the idle time that the server announced', async () => {
    const response = OK.replace('\r\n\r\n', '\r\nKeep-Alive: timeout=2\r\n\r\n')
    const server = await peer((_bytes, socket) => socket.write(response))
    vi.useFakeTimers({ toFake: ['performance'] })
    opened.defer(() => void vi.useRealTimers())
    const upstream = client(server.url)
    await get(upstream)
    await turn()
    vi.advanceTimersByTime(999)
    await get(upstream)
    await turn()
    expect(server.connections()).toBe(1)
    vi.advanceTimersByTime(1_000)
    await get(upstream)
    expect(server.connections()).toBe(2)
  })

  it('the HTTP client closes a connection on which a response arrives before any request was sent', async () => {
    const server = await peer((_bytes, socket) => socket.write(OK))
    const upstream = client(server.url)
    await get(upstream)
    const socket = await server.accepted
    await turn()
    socket.write(OK.replace('ok', 'no'))
    expect(await failureOf(get(upstream))).toBe('unreachable')
    expect((await get(upstream)).text).toBe('ok')
  })

  it('the HTTP client uses TLS for an https URL, and requires a valid server certificate', async () => {
    const file = (name: string) =>
      readFileSync(new URL(`fixtures/${name}`, import.meta.url), 'utf8')
    const cert = file('localhost.crt.pem')
    const server = createHttps({ key: file('localhost.key.pem'), cert }, (request, response) =>
      response.end(`${request.headers.host}`),
    )
    server.listen(0, 'localhost')
    await once(server, 'listening')
    opened.defer(() => void server.close())
    const { port } = server.address() as AddressInfo
    const before = getCACertificates()
    expect(await failureOf(get(client(`https://localhost:${port}`)))).toBe('unreachable')
    setDefaultCACertificates([...before, cert])
    opened.defer(() => setDefaultCACertificates(before))
    expect(await get(client(`https://localhost:${port}`))).toMatchObject({
      status: 200,
      text: `localhost:${port}`,
    })
  })
})

describe('an HTTP connection pool', () => {
  /** Sends a request. `started` resolves with the object that controls the request, `ended` with the result. */
  function call(pool: Pool) {
    const started = Promise.withResolvers<Flow>()
    const ended = Promise.withResolvers<string>()
    pool.send(
      { method: 'GET', path: '/', headers: [], body: null },
      {
        onStart: (flow) => started.resolve(flow),
        onInformation() {},
        onHeaders() {},
        onData() {},
        onCaughtUp() {},
        onEnd: () => ended.resolve('completed'),
        onFailure: ({ kind }) => ended.resolve(kind),
      },
    )
    return { started: started.promise, ended: ended.promise }
  }

  it('the HTTP connection pool queues requests beyond the connection limit and sends them in order', async () => {
    let seen = 0
    const held: Socket[] = []
    const server = await peer((bytes, socket) => {
      seen += bytes.split('GET /').length - 1
      held.push(socket)
    })
    const pool = client(server.url, { maxConnections: 2 })
    const calls = Array.from({ length: 5 }, () => call(pool))
    for (let done = 0; done < calls.length; done += 1) {
      await eventually(() => expect(held.length).toBeGreaterThan(0))
      held.shift()?.write(OK)
      expect(await calls[done]?.ended).toBe('completed')
      expect(seen - done).toBeLessThanOrEqual(2)
    }
    expect(server.connections()).toBe(2)
  })

  it('the HTTP connection pool sends the next queued request after a connection has broken', async () => {
    let first = true
    const server = await peer((_bytes, socket) => {
      if (first) socket.destroy()
      else socket.write(OK)
      first = false
    })
    const pool = client(server.url, { maxConnections: 1 })
    const calls = [call(pool), call(pool)]
    expect(await Promise.all(calls.map(({ ended }) => ended))).toEqual(['unreachable', 'completed'])
  })

  it('the HTTP connection pool keeps a connection open if its request is aborted before the first byte was sent', async () => {
    const server = await peer((_bytes, socket) => socket.write(OK))
    const pool = client(server.url)
    await get(pool)
    await turn()
    const given = call(pool)
    const flow = await given.started
    expect(flow.isSent).toBe(false)
    flow.pause()
    flow.abort()
    expect(await given.ended).toBe('unreachable')
    await turn()
    await get(pool)
    expect(server.connections()).toBe(1)
  })

  it('the HTTP connection pool sends no byte of a request before the connection is established', async () => {
    const pool = client('http://127.0.0.1:1')
    const refused = call(pool)
    const flow = await refused.started
    expect(await refused.ended).toBe('unreachable')
    expect(flow.isSent).toBe(false)
  })

  it('queued requests fail when the HTTP connection pool is closed', async () => {
    const asked = Promise.withResolvers<void>()
    const server = await peer(() => asked.resolve())
    const pool = new Pool(server.url, { maxConnections: 1 })
    const calls = [call(pool), call(pool)]
    await asked.promise
    expect(pool.isIdle).toBe(false)
    await pool[Symbol.asyncDispose]()
    calls.push(call(pool))
    expect(await Promise.all(calls.map(({ ended }) => ended))).toEqual([
      'unreachable',
      'unreachable',
      'unreachable',
    ])
    expect(pool.isIdle).toBe(true)
  })
})

describe('an HTTP client that reads a response', () => {
  it('the HTTP client reads no body of a response to a HEAD request, even if the response announces a length', async () => {
    const server = await peer((_bytes, socket) =>
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n'),
    )
    const upstream = client(server.url)
    for (let n = 0; n < 2; n += 1) {
      expect(await get(upstream, { method: 'HEAD' })).toMatchObject({ status: 200, text: '' })
      await turn()
    }
    expect(server.connections()).toBe(1)
  })

  it('the HTTP client reads the final response after an unexpected 100 Continue', async () => {
    const server = await peer((_bytes, socket) =>
      socket.write(`HTTP/1.1 100 Continue\r\n\r\n${OK}`),
    )
    expect(await get(client(server.url))).toMatchObject({ status: 200, text: 'ok' })
  })

  it.each([
    ['ends within its body', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel'],
    ['ends within its head', 'HTTP/1.1 200 O'],
    ['never begins', ''],
  ])('an HTTP request fails as unreachable if the response %s', async (_what, bytes) => {
    const server = await peer((_request, socket) => socket.end(bytes))
    expect(await failureOf(get(client(server.url)))).toBe('unreachable')
  })

  it.each([
    ['is not HTTP', 'SSH-2.0-OpenSSH\r\n'],
    [
      'switches the protocol',
      'HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n',
    ],
    ['has the status code 099', `HTTP/1.1 099 X\r\n\r\n${OK}`],
    ['has a reason phrase of more than 64 KiB', `HTTP/1.1 200 ${'b'.repeat(70_000)}`],
    ['has a chunk extension of more than 16 KiB', `${CHUNKED}1;x=${'b'.repeat(20_000)}`],
    ['has a chunk size with 20,000 leading zeros', `${CHUNKED}${'0'.repeat(20_000)}`],
    [
      'has a second transfer coding besides chunked',
      responseWith('Transfer-Encoding: gzip, chunked'),
    ],
    [
      'has the transfer coding chunked twice',
      responseWith('Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked'),
    ],
    ['has another transfer coding in place of chunked', responseWith('Transfer-Encoding: gzip')],
    ['has an empty Transfer-Encoding', responseWith('Transfer-Encoding:')],
    ['has Transfer-Encoding in HTTP/1.0', responseWith('Transfer-Encoding: chunked', '1.0')],
    ['has the version HTTP/2.0', responseWith('Content-Length: 0', '2.0')],
    ['has the version HTTP/0.9', responseWith('Content-Length: 0', '0.9')],
    ['has a head of more than 64 KiB', `HTTP/1.1 200 OK\r\nA: ${'b'.repeat(70_000)}\r\n\r\n`],
  ])('an HTTP request fails as unreachable if the response %s', async (_what, bytes) => {
    const server = await peer((_request, socket) => socket.write(bytes))
    expect(await failureOf(get(client(server.url)))).toBe('unreachable')
  })

  it('an HTTP request fails with a timeout if the response body stops arriving', async () => {
    const server = await peer((_request, socket) =>
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel'),
    )
    expect(await failureOf(get(client(server.url, { idleTimeoutMs: 50 })))).toBe('timeout')
  })
})

describe('the idle timeout of a response', () => {
  const IDLE_TIMEOUT_MS = 100

  /**
   * Requests a response and waits until `head` has arrived. The clock of the idle timeout advances only when `wait` is
   * called.
   */
  async function begin(head: string) {
    vi.useFakeTimers({ toFake: ['performance'] })
    opened.defer(() => void vi.useRealTimers())
    const ours = clientSocket()
    const server = await peer((_request, socket) => socket.write(head))
    const response = get(client(server.url, { idleTimeoutMs: IDLE_TIMEOUT_MS }), {
      timeoutMs: 60_000,
    })
    response.catch(() => {})
    const socket = await ours
    let read = 0
    socket.on('data', (bytes: Buffer) => (read += bytes.length))
    let sent = head.length
    // `eventually` would advance the fake clock, so the test awaits events instead.
    const arrived = async (): Promise<void> => {
      while (read < sent) await once(socket, 'data')
    }
    const theirs = await server.accepted
    await arrived()
    return {
      response,
      /** Sends bytes and waits until the client has read them. */
      send: (bytes: string) => {
        sent += bytes.length
        theirs.write(bytes)
        return arrived()
      },
      wait: (ms: number) => void vi.advanceTimersByTime(ms),
    }
  }

  it('the idle timeout aborts a response if the server sends only chunk extensions', async () => {
    const { response, send, wait } = await begin(`${CHUNKED}2\r\nok\r\n5;x=`)
    for (let n = 0; n < 2; n += 1) {
      wait(IDLE_TIMEOUT_MS / 2)
      await send('y')
    }
    expect(await failureOf(response)).toBe('timeout')
  })

  it('the idle timeout of a response restarts with each part of the body', async () => {
    const { response, send, wait } = await begin('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n')
    for (const byte of 'hello') {
      wait(IDLE_TIMEOUT_MS - 1)
      await send(byte)
    }
    expect((await response).text).toBe('hello')
  })
})

describe('an HTTP client that sends a request body', () => {
  async function* pieces(...texts: string[]): AsyncGenerator<Buffer> {
    for (const text of texts) yield Buffer.from(text)
  }
  /** Starts a server that sends its response once it has received the text in `end`. */
  const collector = async (end: string) => {
    let seen = ''
    const server = await peer((bytes, socket) => {
      seen += bytes
      if (seen.includes(end)) socket.write(OK)
    })
    return { server, body: () => seen.slice(seen.indexOf('\r\n\r\n') + 4), head: () => seen }
  }

  it('the HTTP client sends a request body of known length with Content-Length', async () => {
    const { server, body, head } = await collector('bytes')
    await get(client(server.url), { method: 'POST', body: [Buffer.from('by'), Buffer.from('tes')] })
    expect(head()).toContain('content-length: 5\r\n')
    expect(body()).toBe('bytes')
  })

  it('the HTTP client sends a body of unknown length in chunks, and omits empty parts, which would end the body', async () => {
    const { server, body, head } = await collector('0\r\n\r\n')
    await get(client(server.url), { method: 'POST', body: pieces('ab', '', 'cde') })
    expect(head()).toContain('transfer-encoding: chunked\r\n')
    expect(body()).toBe('2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n')
  })

  it('the HTTP client sends a streamed request body without chunked coding if the Content-Length is given', async () => {
    const { server, body } = await collector('abcde')
    const headers = ['Content-Length', '5']
    await get(client(server.url), { method: 'PUT', headers, body: pieces('ab', 'cde') })
    expect(body()).toBe('abcde')
  })

  it.each([
    ['shorter', ['ab']],
    ['longer', ['abcdef']],
  ])(
    'the HTTP client closes the connection if a request body is %s than its announced length',
    async (_what, texts) => {
      const { server } = await collector('never')
      const call = get(client(server.url), {
        method: 'PUT',
        headers: ['Content-Length', '5'],
        body: pieces(...texts),
      })
      expect(await failureOf(call)).toBe('unsendable')
    },
  )

  it('if reading the request body fails, the HTTP client does not send the end of the chunked body', async () => {
    const { server, body } = await collector('never')
    async function* broken(): AsyncGenerator<Buffer> {
      yield Buffer.from('ab')
      throw new Error('the caller has gone')
    }
    expect(await failureOf(get(client(server.url), { method: 'POST', body: broken() }))).toBe(
      'unreachable',
    )
    expect(body()).not.toContain('0\r\n\r\n')
  })

  it('the HTTP client closes a connection if the response arrives before the end of the request body', async () => {
    const server = await peer((_bytes, socket) => socket.write(OK))
    const more = Promise.withResolvers<void>()
    async function* slow(): AsyncGenerator<Buffer> {
      yield Buffer.from('ab')
      await more.promise
    }
    const upstream = client(server.url)
    expect((await get(upstream, { method: 'POST', body: slow() })).text).toBe('ok')
    more.resolve()
    await turn()
    await get(upstream)
    expect(server.connections()).toBe(2)
  })
})

it('every request in flight fails when the HTTP connection pool is closed', async () => {
  const asked = Promise.withResolvers<void>()
  const server = await peer(() => asked.resolve())
  const pool = new Pool(server.url)
  const call = failureOf(get(pool))
  await asked.promise
  await pool[Symbol.asyncDispose]()
  expect(await call).toBe('unreachable')
})

it('an HTTP request fails as unreachable if the server rejects the connection', async () => {
  expect(await failureOf(get(client('http://127.0.0.1:1')))).toBe('unreachable')
})
