/** Tests of the limits for callers: size and duration of a request, unread responses, and the number of connections. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { raw } from '@integration-host/shared/test-support/raw-http'
import { AUTH, PATH, stalled } from '../test-support/callers.ts'
import { bodyOf, type FakeServer, type FakeTokenService } from '../test-support/fake-servers.ts'
import { type Gateway, startGateway, startFixture } from '../test-support/harness.ts'

const MB = 1_048_576

let opened: AsyncDisposableStack
let upstream: FakeServer
let tokens: FakeTokenService
let proxy: Gateway
beforeEach(async () => {
  ;({ opened, upstream, tokens } = await startFixture())
})
afterEach(() => opened.disposeAsync())

const open = async (settings: Readonly<Record<string, string>> = {}): Promise<void> => {
  proxy = opened.use(await startGateway(upstream.url, tokens.url, { settings }))
}

/**
 * Opens a connection and sends `bytes`. `closed` resolves with all bytes that arrived before the gateway closed the
 * connection.
 */
async function sendAndAwaitClose(
  bytes: string,
): Promise<{ socket: Socket; closed: Promise<string> }> {
  const socket = connect(proxy.port, '127.0.0.1')
  opened.defer(() => void socket.destroy())
  let text = ''
  socket.on('data', (data: Buffer) => (text += data.toString('latin1')))
  socket.on('error', () => {})
  const closed = new Promise<string>((resolve) => socket.once('close', () => resolve(text)))
  await once(socket, 'connect')
  socket.write(bytes, 'latin1')
  return { socket, closed }
}

const CALL = `GET ${PATH} HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`

/** Opens `count` connections, makes one call on each, and leaves the connections open. */
async function idleConnections(count: number): Promise<readonly Socket[]> {
  const idle: Socket[] = []
  while (idle.length < count) {
    // The connections are opened in batches, because the backlog of the listening socket is limited.
    const batch = Math.min(100, count - idle.length)
    const some = await Promise.all(Array.from({ length: batch }, () => sendAndAwaitClose(CALL)))
    await Promise.all(some.map(({ socket }) => once(socket, 'data')))
    idle.push(...some.map(({ socket }) => socket))
  }
  return idle
}

describe('a request body beyond the limit', () => {
  it('if Content-Length exceeds LONGEST_BODY_MB, the gateway responds 413 without 100 Continue and sends nothing upstream', async () => {
    await open({ LONGEST_BODY_MB: '2' })
    const answer = await raw(
      proxy.port,
      `PUT ${PATH} HTTP/1.1\r\nHost: x\r\n${AUTH}Content-Length: ${2 * MB + 1}\r\nExpect: 100-continue\r\n\r\n`,
    )
    expect([answer.status, answer.text]).toEqual([
      413,
      expect.stringContaining('payload_too_large'),
    ])
    expect(answer.text).not.toContain('100 Continue')
    expect(upstream.seen).toHaveLength(0)
  })

  it('the gateway responds 413 as soon as a chunked body exceeds LONGEST_BODY_MB, and aborts the upstream request', async () => {
    await open({ LONGEST_BODY_MB: '2' })
    const ended = new Promise<string>((resolve) => {
      upstream.handle = (request) =>
        bodyOf(request).then(
          () => resolve('whole'),
          () => resolve('broken off'),
        )
    })
    const body = new Blob([Buffer.alloc(3 * MB)]).stream()
    const answer = await proxy.call(PATH, { method: 'PUT', body, duplex: 'half' })
    expect(await answer.json()).toMatchObject({ status: 413, code: 'payload_too_large' })
    expect(await ended).toBe('broken off')
  })

  it('the gateway forwards a body of exactly LONGEST_BODY_MB', async () => {
    await open({ LONGEST_BODY_MB: '2' })
    upstream.handle = async (request, response) =>
      response.end(String((await bodyOf(request)).length))
    const answer = await proxy.call(PATH, { method: 'PUT', body: Buffer.alloc(2 * MB) })
    expect([answer.status, await answer.text()]).toEqual([200, String(2 * MB)])
  })
})

describe('a request head beyond 16 KiB', () => {
  it.each([
    ['a target', `GET ${PATH}?q=${'a'.repeat(20_000)} HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`],
    ['one header', `GET ${PATH} HTTP/1.1\r\nHost: x\r\n${AUTH}X-A: ${'a'.repeat(20_000)}\r\n\r\n`],
    [
      'a list of 3,000 headers',
      `GET ${PATH} HTTP/1.1\r\nHost: x\r\n${AUTH}${'X-A: b\r\n'.repeat(3_000)}\r\n`,
    ],
  ])(
    'the gateway responds 431 if %s makes the head too long, and sends nothing upstream',
    async (_what, bytes) => {
      await open()
      expect((await raw(proxy.port, bytes)).status).toBe(431)
      expect(upstream.seen).toHaveLength(0)
    },
  )

  it('the gateway forwards a request head of just below 16 KiB completely', async () => {
    await open()
    const query = `?q=${'a'.repeat(15_000)}`
    expect((await proxy.call(PATH + query)).status).toBe(200)
    expect(upstream.seen[0]?.url).toBe(PATH + query)
  })
})

describe('a slow caller', () => {
  it('the gateway responds 408 and closes the connection if a request head is not complete after 10 seconds', async () => {
    await open()
    const slow = await Promise.all(
      Array.from({ length: 100 }, () => sendAndAwaitClose(`GET ${PATH} HTTP/1.1\r\nHost: x\r\nX-`)),
    )
    // The timeout starts with the first byte of the request head. The test sends one further byte per second, which
    // must not extend the timeout.
    const trickle = setInterval(() => {
      for (const { socket } of slow) if (socket.writable) socket.write('a')
    }, 1_000)
    opened.defer(() => clearInterval(trickle))
    for (const { closed } of slow) expect(await closed).toMatch(/^HTTP\/1\.1 408 /)
    expect((await proxy.call(PATH)).status).toBe(200)
    expect(upstream.seen).toHaveLength(1)
  })

  it('a request whose body does not arrive completely gets status 408 and occupies no concurrency slot', async () => {
    await open({ DEADLINE_SECONDS: '2', CONCURRENT_REQUESTS: '1' })
    const head = `POST ${PATH} HTTP/1.1\r\nHost: x\r\n${AUTH}Content-Length: 100\r\n\r\nhalf`
    const slow = await Promise.all(Array.from({ length: 100 }, () => sendAndAwaitClose(head)))
    expect((await proxy.call(PATH)).status).toBe(200)
    for (const { closed } of slow)
      expect(await closed).toMatch(/^HTTP\/1\.1 408 [^]*request_timeout/)
    expect(upstream.seen).toHaveLength(1)
  })
})

it('the gateway disconnects a caller that does not read its response for a minute, and aborts the upstream request', async () => {
  await open()
  let isOver = false
  upstream.handle = (_request, response) => {
    response.on('close', () => (isOver = true))
    const chunk = Buffer.alloc(65_536)
    const more = (): void => {
      while (!response.destroyed && response.write(chunk));
    }
    response.on('drain', more)
    more()
  }
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  try {
    const { socket } = await sendAndAwaitClose(`GET ${PATH} HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`)
    await once(socket, 'data')
    socket.pause()
    const pausedAt = Date.now()
    let passedMs = 0
    while (!isOver && Date.now() - pausedAt < 20_000) {
      // The timers are fake, but the sockets are real. Upstream needs real turns of the event loop to fill all socket
      // buffers. The fake clock is advanced to the timeout afterwards.
      for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve))
      vi.advanceTimersByTime(1_000)
      passedMs += 1_000
    }
    expect(isOver).toBe(true)
    expect(passedMs).toBeGreaterThanOrEqual(60_000)
    expect(passedMs).toBeLessThan(100_000) // The response was ended by the timeout and not by the deadline of the call.
  } finally {
    vi.useRealTimers()
  }
})

it('if more than 4,096 connections are open, the gateway closes the connections that have been idle longest', async () => {
  await open()
  const held = await idleConnections(4_096)
  // To make room for a new connection, the gateway may close a connection on which a call was made. It does so only
  // after that connection has been idle for a second.
  await eventually(async () => expect((await raw(proxy.port, CALL)).status).toBe(200))
  const [first, last] = [held.slice(0, 100), held.at(-1) as Socket]
  await eventually(() => expect(first.some(({ destroyed }) => destroyed)).toBe(true))
  last.write(CALL)
  expect(String((await once(last, 'data'))[0])).toMatch(/^HTTP\/1\.1 200 /)
}, 150_000)

it('the gateway serves calls with bounded memory while 1,000 connections are idle and 200 callers read slowly', async () => {
  await open()
  let written = 0
  upstream.handle = (request, response) => {
    if (request.url?.endsWith('endless') !== true) {
      response.end('ok')
      return
    }
    const chunk = Buffer.alloc(65_536)
    response.on('error', () => {})
    const more = (): void => {
      while (!response.destroyed) {
        written += chunk.length
        if (!response.write(chunk)) return
      }
    }
    response.on('drain', more)
    more()
  }
  const idle = await idleConnections(1_000)
  const readers = Array.from({ length: 200 }, () => {
    const socket = connect(proxy.port, '127.0.0.1')
    opened.defer(() => void socket.destroy())
    socket.on('error', () => {})
    socket.write(`GET /v3/company/2/endless HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`)
    return once(socket, 'readable') // The response has begun; this test never reads it.
  })
  await Promise.all(readers)

  const answers = await Promise.all(Array.from({ length: 100 }, () => proxy.call(PATH)))
  expect(answers.every(({ status }) => status === 200)).toBe(true)
  // Each response is endless, so only backpressure limits how many bytes upstream writes.
  expect((await stalled(() => written)) / readers.length).toBeLessThan(16 * MB)
  expect(idle.every(({ readyState }) => readyState === 'open')).toBe(true)
}, 60_000)
