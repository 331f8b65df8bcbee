/**
 * Tests of uncommon parts of HTTP that the gateway relays: 1xx responses, empty bodies, unusual framing and compressed
 * uploads.
 */
import type { InformationEvent } from 'node:http'
import { connect } from 'node:net'
import { gzipSync } from 'node:zlib'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { raw } from '@integration-host/shared/test-support/raw-http'
import { AUTH, PATH, send, stalled } from '../test-support/callers.ts'
import {
  bodyOf,
  type FakeServer,
  type FakeTokenService,
  startRawUpstream,
} from '../test-support/fake-servers.ts'
import { type Gateway, startGateway, startFixture } from '../test-support/harness.ts'

let opened: AsyncDisposableStack
let upstream: FakeServer
let tokens: FakeTokenService
let proxy: Gateway
beforeEach(async () => {
  ;({ opened, upstream, tokens } = await startFixture())
  proxy = opened.use(await startGateway(upstream.url, tokens.url))
})
afterEach(() => opened.disposeAsync())

/** Starts a gateway and an upstream server that responds to every request with the bytes `bytes`. */
async function respondingWith(bytes: string) {
  const wire = opened.use(await startRawUpstream(bytes))
  return { wire, proxy: opened.use(await startGateway(wire.url, tokens.url)) }
}

describe('an informational response', () => {
  const HINTED =
    'HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nSet-Cookie: a=b\r\n\r\n' +
    'HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'

  it('the gateway relays all informational responses, with cookies removed, before the final response', async () => {
    const { proxy: hinting } = await respondingWith(HINTED)
    const { request, answer } = send(hinting.port, 'GET', PATH)
    const informed: InformationEvent[] = []
    request.on('information', (event) => informed.push(event))
    request.end()
    expect((await bodyOf(await answer)).toString()).toBe('ok')
    expect(informed.map(({ statusCode }) => statusCode)).toEqual([103, 102])
    expect(informed[0]?.headers).toEqual({ link: '</a.css>; rel=preload' })
  })

  it('the gateway relays no informational responses to an HTTP/1.0 caller, which would read them as final responses', async () => {
    const { proxy: hinting } = await respondingWith(HINTED)
    const answer = await raw(hinting.port, `GET ${PATH} HTTP/1.0\r\nHost: x\r\n${AUTH}\r\n`)
    expect([answer.status, answer.body]).toEqual([200, 'ok'])
  })

  it('the gateway relays the final response but not 100 Continue to a caller that sent no Expect header', async () => {
    const bytes = 'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
    const { proxy: early } = await respondingWith(bytes)
    const { text } = await raw(early.port, `GET ${PATH} HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`)
    expect(text).not.toContain('100 Continue')
    expect(text).toMatch(/^HTTP\/1.1 200 OK\r\n[^]*\r\n\r\nok$/)
  })

  it('the gateway drops an informational response while an earlier pipelined response is incomplete', async () => {
    upstream.handle = async ({ url }, response) => {
      if (url === `${PATH}2`) response.writeEarlyHints({ link: '</a.css>; rel=preload' })
      else await eventually(() => expect(proxy.log.some(({ status }) => status === 200)).toBe(true))
      response.end('ok')
    }
    const call = (n: number, more = '') =>
      `GET ${PATH}${n} HTTP/1.1\r\nHost: x\r\n${AUTH}${more}\r\n`
    const calls = call(1) + call(2, 'Connection: close\r\n')
    const { text } = await raw(proxy.port, calls, 5_000)
    expect(text.match(/\r\n\r\nok/g)).toHaveLength(2)
    expect(text).not.toContain('103 Early Hints')
  })

  it.each(['101 Switching Protocols', '099 Odd'])(
    'the gateway responds 502 if upstream sends status %s',
    async (status) => {
      const { proxy: odd } = await respondingWith(`HTTP/1.1 ${status}\r\n\r\n`)
      expect((await odd.call(PATH)).status).toBe(502)
    },
  )

  it('the gateway responds 502 if upstream sends 1,000 informational responses and no final one', async () => {
    const { proxy: flooding } = await respondingWith(
      'HTTP/1.1 102 Processing\r\n\r\n'.repeat(1_000),
    )
    expect((await flooding.call(PATH, { method: 'PATCH' })).status).toBe(502)
  })
})

describe('an empty request body', () => {
  it.each([
    ['with Content-Length 0', 'Content-Length: 0\r\n\r\n'],
    ['of no chunks', 'Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
    ['without Content-Length and Transfer-Encoding', '\r\n'],
  ])('the gateway forwards an empty request body %s as an empty body', async (_what, end) => {
    for (const method of ['GET', 'POST', 'PUT', 'DELETE']) {
      const head = `${method} ${PATH} HTTP/1.1\r\nHost: x\r\n${AUTH}Connection: close\r\n`
      const { status, text } = await raw(proxy.port, head + end)
      expect([method, status], text).toEqual([method, 200])
      expect(text).toContain('"body":""')
    }
  })
})

describe('a response without a body', () => {
  it.each(['HEAD', 'GET'])(
    'the gateway relays the Content-Length of a %s response that has no body',
    async (method) => {
      upstream.handle = (_request, response) =>
        response.writeHead(method === 'HEAD' ? 200 : 304, { 'Content-Length': '1234' }).end()
      const { request, answer } = send(proxy.port, method, PATH)
      request.end()
      const response = await answer
      expect(response.headers['content-length']).toBe('1234')
      expect(await bodyOf(response)).toHaveLength(0)
    },
  )

  it('a caller can reuse its connection after a response to HEAD and after a response with status 204', async () => {
    upstream.handle = (request, response) =>
      request.method === 'HEAD'
        ? response.writeHead(200, { 'Transfer-Encoding': 'chunked' }).end()
        : response.writeHead(204).end()
    const lines = (method: string): string => `${method} ${PATH} HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`
    const { text } = await raw(proxy.port, lines('HEAD') + lines('GET') + lines('HEAD'))
    expect(text.match(/^HTTP\/1\.1 \d+/gm)).toEqual([
      'HTTP/1.1 200',
      'HTTP/1.1 204',
      'HTTP/1.1 200',
    ])
  })

  it('the gateway relays Content-Length 0 of an empty response', async () => {
    upstream.handle = (_request, response) => response.writeHead(200, { 'Content-Length': 0 }).end()
    const answer = await proxy.call(PATH)
    expect([answer.headers.get('content-length'), await answer.text()]).toEqual(['0', ''])
  })
})

describe('the bytes of a relayed response', () => {
  it('the gateway relays non-ASCII bytes of response header values unchanged', async () => {
    const { proxy: latin } = await respondingWith(
      'HTTP/1.1 200 OK\r\nX-Name: M\xfcller \xc3\xbc\r\nContent-Length: 0\r\n\r\n',
    )
    const answer = await raw(latin.port, `GET ${PATH} HTTP/1.1\r\nHost: x\r\n${AUTH}\r\n`)
    expect(answer.head).toContain('X-Name: M\xfcller \xc3\xbc')
  })

  it('HTTP/1.1 and HTTP/1.0 callers receive the complete response if upstream ends a response by closing the connection', async () => {
    const { proxy: closing } = await respondingWith(
      'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end',
    )
    for (const version of ['1.0', '1.1']) {
      const head = `GET ${PATH} HTTP/${version}\r\nHost: x\r\n${AUTH}Connection: close\r\n\r\n`
      expect((await raw(closing.port, head)).text).toContain('to the end')
    }
  })

  // RFC 9112 §6.3 and §11.1: a response is invalid if two parsers could disagree about the end of the response.
  it.each([
    [
      'two different Content-Length headers',
      'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc',
    ],
    [
      'both Content-Length and Transfer-Encoding',
      'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    ],
    ['a Content-Length that is not a number', 'HTTP/1.1 200 OK\r\nContent-Length: 2x\r\n\r\nabc'],
    [
      'a NUL character in a header value',
      'HTTP/1.1 200 OK\r\nX-A: a\0b\r\nContent-Length: 0\r\n\r\n',
    ],
    ['lines that end with a bare line feed', 'HTTP/1.1 200 OK\nX-A: b\nContent-Length: 0\n\n'],
    ['status 101 (Switching Protocols)', 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n'],
    ['the greeting of another protocol', 'SSH-2.0-OpenSSH_9.2\r\n'],
    ['more than 64 KiB of headers', `HTTP/1.1 200 OK\r\nX-A: ${'a'.repeat(70_000)}\r\n\r\n`],
  ])(
    'the gateway responds 502 to an upstream response with %s and closes the upstream connection',
    async (_what, bytes) => {
      const { proxy: odd, wire } = await respondingWith(bytes)
      const answer = await odd.call(PATH, { method: 'PATCH' })
      expect([answer.status, await answer.json()]).toMatchObject([
        502,
        { code: 'upstream_unreachable' },
      ])
      await (await odd.call(PATH, { method: 'PATCH' })).text()
      expect(wire.connections()).toBe(2)
    },
  )

  it('the gateway discards bytes after the end of a response and does not send them to the next caller', async () => {
    const { proxy: chatty } = await respondingWith(
      'HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled',
    )
    for (let call = 0; call < 3; call += 1) {
      const answer = await chatty.call(PATH)
      expect([answer.status, await answer.text()]).toEqual([204, ''])
    }
  })
})

describe('an upload through the gateway', () => {
  it('the gateway forwards a compressed upload without decoding it', async () => {
    const packed = gzipSync(Buffer.alloc(32 * 1_048_576))
    let received: Buffer = Buffer.alloc(0)
    upstream.handle = async (request, response) => {
      received = await bodyOf(request)
      response.end()
    }
    const headers = { 'Content-Encoding': 'gzip' }
    await proxy.call(PATH, { method: 'PUT', headers, body: packed })
    expect(upstream.seen[0]?.headers['content-encoding']).toBe('gzip')
    expect(received.equals(packed)).toBe(true)
  })

  it('the gateway stops reading an upload from the caller while upstream does not read it', async () => {
    upstream.handle = (received) => {
      received.pause()
      opened.defer(() => void received.destroy())
    }
    const { request, answer } = send(proxy.port, 'PUT', PATH)
    answer.catch(() => {})
    request.on('error', () => {})
    const chunk = Buffer.alloc(65_536)
    let written = 0
    const fill = (): void => {
      while (written < 512 * 1_048_576) {
        written += chunk.length
        if (!request.write(chunk)) return
      }
    }
    request.on('drain', fill)
    fill()
    // The upload has 512 MB, but the buffers of the four sockets together hold only a few MB.
    expect(await stalled(() => written)).toBeLessThan(64 * 1_048_576)
    request.destroy()
  })

  it('the gateway aborts the upstream request if the caller aborts an upload', async () => {
    const ended = new Promise<string>((resolve) => {
      upstream.handle = async (request) => {
        await bodyOf(request).then(
          () => resolve('whole'),
          () => resolve('broken off'),
        )
      }
    })
    const socket = connect(proxy.port, '127.0.0.1')
    socket.on('error', () => {})
    socket.write(
      `PUT ${PATH} HTTP/1.1\r\nHost: x\r\n${AUTH}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n`,
    )
    await eventually(() => expect(upstream.seen).toHaveLength(1))
    socket.destroy()
    expect(await ended).toBe('broken off')
    await eventually(() =>
      expect(proxy.log).toContainEqual(expect.objectContaining({ status: 499 })),
    )
  })
})
