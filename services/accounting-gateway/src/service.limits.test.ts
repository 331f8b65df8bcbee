/** Limits that protect the gateway against excessive callers. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import {
  AUTH,
  bodyOf,
  type Gateway,
  startGateway,
  PATH,
  raw,
  startFixture,
  stalled,
  type FakeServer,
  type FakeTokenService,
} from '../test-support/harness.ts'

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

/** Opens a connection, sends `bytes`, and resolves `closed` with all that arrived until the gateway closed it. */
async function until(bytes: string): Promise<{ socket: Socket; closed: Promise<string> }> {
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

/** Opens connections that have each made one call and stay open. */
async function idleConnections(count: number): Promise<readonly Socket[]> {
  const idle: Socket[] = []
  while (idle.length < count) {
    // In batches, because the backlog of the listening socket is limited.
    const batch = Math.min(100, count - idle.length)
    const some = await Promise.all(Array.from({ length: batch }, () => until(CALL)))
    await Promise.all(some.map(({ socket }) => once(socket, 'data')))
    idle.push(...some.map(({ socket }) => socket))
  }
  return idle
}

describe('a request body beyond the limit', () => {
  it('gets 413 by its Content-Length before 100 Continue, and nothing is sent upstream', async () => {
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

  it('gets 413 if it grows too long in chunks, and is never complete upstream', async () => {
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

  it('is accepted up to exactly the limit', async () => {
    await open({ LONGEST_BODY_MB: '2' })
    upstream.handle = async (request, response) =>
      response.end(String((await bodyOf(request)).length))
    const answer = await proxy.call(PATH, { method: 'PUT', body: Buffer.alloc(2 * MB) })
    expect([answer.status, await answer.text()]).toEqual([200, String(2 * MB)])
  })
})

describe('a request head beyond 16 KiB', () => {
  it.each([
    ['target', `GET ${PATH}?q=${'a'.repeat(20_000)} HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`],
    ['header', `GET ${PATH} HTTP/1.1\r\nHost: x\r\n${AUTH}X-A: ${'a'.repeat(20_000)}\r\n\r\n`],
    [
      'number of headers',
      `GET ${PATH} HTTP/1.1\r\nHost: x\r\n${AUTH}${'X-A: b\r\n'.repeat(3_000)}\r\n`,
    ],
  ])('for its %s is 431, and nothing is sent', async (_what, bytes) => {
    await open()
    expect((await raw(proxy.port, bytes)).status).toBe(431)
    expect(upstream.seen).toHaveLength(0)
  })

  it('is forwarded completely if it is just below', async () => {
    await open()
    const query = `?q=${'a'.repeat(15_000)}`
    expect((await proxy.call(PATH + query)).status).toBe(200)
    expect(upstream.seen[0]?.url).toBe(PATH + query)
  })
})

describe('a slow caller', () => {
  it('that does not complete its head gets 408, and the connection is closed', async () => {
    await open()
    const slow = await Promise.all(
      Array.from({ length: 100 }, () => until(`GET ${PATH} HTTP/1.1\r\nHost: x\r\nX-`)),
    )
    // Occasional bytes do not extend the timeout.
    const trickle = setInterval(() => {
      for (const { socket } of slow) if (socket.writable) socket.write('a')
    }, 1_000)
    opened.defer(() => clearInterval(trickle))
    for (const { closed } of slow) expect(await closed).toMatch(/^HTTP\/1\.1 408 /)
    expect((await proxy.call(PATH)).status).toBe(200)
    expect(upstream.seen).toHaveLength(1)
  })

  it('that does not complete its body gets 408, and occupies no concurrency slot meanwhile', async () => {
    await open({ DEADLINE_SECONDS: '2', CONCURRENT_REQUESTS: '1' })
    const head = `POST ${PATH} HTTP/1.1\r\nHost: x\r\n${AUTH}Content-Length: 100\r\n\r\nhalf`
    const slow = await Promise.all(Array.from({ length: 100 }, () => until(head)))
    expect((await proxy.call(PATH)).status).toBe(200)
    for (const { closed } of slow)
      expect(await closed).toMatch(/^HTTP\/1\.1 408 [^]*request_timeout/)
    expect(upstream.seen).toHaveLength(1)
  })
})

it('disconnects a caller that reads nothing of its response for a minute, and aborts the upstream request', async () => {
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
    const { socket } = await until(`GET ${PATH} HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`)
    await once(socket, 'data')
    socket.pause()
    const pausedAt = Date.now()
    let passedMs = 0
    while (!isOver && Date.now() - pausedAt < 20_000) {
      // The bytes fill every buffer first; from then on only time passes.
      for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve))
      vi.advanceTimersByTime(1_000)
      passedMs += 1_000
    }
    expect(isOver).toBe(true)
    expect(passedMs).toBeGreaterThanOrEqual(60_000)
    expect(passedMs).toBeLessThan(100_000) // before any deadline of the call
  } finally {
    vi.useRealTimers()
  }
})

it('accepts 4,096 connections, closes any further one at once, and serves those it has', async () => {
  await open()
  const held = await idleConnections(4_096)
  upstream.seen.length = 0
  expect((await raw(proxy.port, CALL)).text).toBe('')
  expect(upstream.seen).toHaveLength(0)
  for (const socket of [held.at(0), held.at(-1)]) {
    socket?.write(CALL)
    expect(String((await once(socket as Socket, 'data'))[0])).toMatch(/^HTTP\/1\.1 200 /)
  }
  held[0]?.destroy()
  // The gateway accepts another connection once it has noticed the close.
  await eventually(async () => expect((await raw(proxy.port, CALL)).status).toBe(200))
}, 60_000)

it('serves other calls beside 1,000 idle connections and 200 slow readers, with bounded memory', async () => {
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
    return once(socket, 'readable') // the test never reads it
  })
  await Promise.all(readers)

  const answers = await Promise.all(Array.from({ length: 100 }, () => proxy.call(PATH)))
  expect(answers.every(({ status }) => status === 200)).toBe(true)
  // At most the buffers of the sockets and of the gateway; each response is endless.
  expect((await stalled(() => written)) / readers.length).toBeLessThan(16 * MB)
  expect(idle.every(({ readyState }) => readyState === 'open')).toBe(true)
}, 60_000)
