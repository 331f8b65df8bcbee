import { createServer } from 'node:net'
import { once } from 'node:events'
import { brotliCompressSync, deflateRawSync, gzipSync, zstdCompressSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { respondWith, startTarget, type Target } from '../../../test-support/fake-target.ts'
import { StepAbort } from '../../step/step-abort.ts'
import { createHttpCaller, type HttpCaller } from './http-call.ts'

let caller: HttpCaller
let target: Target
beforeAll(async () => {
  caller = createHttpCaller()
  target = await startTarget()
})
afterAll(async () => {
  await caller[Symbol.asyncDispose]()
  await target[Symbol.asyncDispose]()
})

const request = (url: string) => ({
  method: 'GET',
  url: new URL(url),
  headers: { 'idempotency-key': 'k' },
  body: null,
})
const limits = (change: { abort?: StepAbort; timeoutMs?: number } = {}) => ({
  abort: new StepAbort(),
  timeoutMs: 5_000,
  ...change,
})

describe('the body of a response', () => {
  const json = '{"a":"ä"}'
  const received = async (body: Buffer, headers: Record<string, string>, status = 200) => {
    target.on('/body', (_, response) => void response.writeHead(status, headers).end(body))
    return caller.call(request(`${target.url}/body`), limits())
  }

  it.each([
    ['gzip', gzipSync(json)],
    ['br', brotliCompressSync(json)],
    ['zstd', zstdCompressSync(json)],
    ['deflate', deflateRawSync(json)],
  ])('a body in the coding %s is decoded', async (coding, body) => {
    const outcome = await received(body, { 'content-encoding': coding })
    expect(outcome).toMatchObject({ kind: 'answered', body: json })
  })

  it('a body is too large if it exceeds the limit after it is decoded', async () => {
    const outcome = await received(gzipSync(Buffer.alloc(2_000_000)), {
      'content-encoding': 'gzip',
    })
    expect(outcome).toMatchObject({ kind: 'too_large', status: 200 })
  })

  it.each<[string, string, Buffer, Record<string, string>]>([
    [
      'an unknown coding',
      'response_coding_unknown',
      Buffer.from(json),
      { 'content-encoding': 'exi' },
    ],
    ['a PDF', 'response_not_text', Buffer.from('%PDF-1.4'), { 'content-type': 'application/pdf' }],
    ['bytes that are not text', 'response_not_text', Buffer.from([0xe2, 0xe3]), {}],
  ])('a body of a success is not returned as text: %s', async (_, errorClass, body, headers) => {
    const outcome = await received(body, headers)
    expect(outcome).toMatchObject({ kind: 'unreadable', errorClass, status: 200 })
    const error = await received(body, headers, 503)
    expect(error).toMatchObject({ kind: 'answered', status: 503, body: '' })
  })

  it('a damaged body counts as a missing response', async () => {
    const outcome = await received(gzipSync(json).subarray(0, 15), { 'content-encoding': 'gzip' })
    expect(outcome).toEqual({ kind: 'failed', reason: 'damaged body', isSent: true })
  })
})

describe('the HTTP call of a step', () => {
  it('an HTTP call returns the status, the body and the Retry-After of the response, and follows no redirect', async () => {
    target.on('/a', respondWith(302, 'över', { location: '/b', 'retry-after': '7' }))
    expect(await caller.call(request(`${target.url}/a`), limits())).toEqual({
      kind: 'answered',
      status: 302,
      headers: expect.arrayContaining(['location', '/b']),
      body: 'över',
      retryAfter: '7',
      responseId: null,
    })
    expect(target.callsTo('/b')).toEqual([])
  })

  it.each([
    ['intuit_tid header', { intuit_tid: 'tid-1', 'x-request-id': 'r-1' }, 'tid-1'],
    ['X-Request-Id header if intuit_tid is missing', { 'x-request-id': 'r-1' }, 'r-1'],
    [
      'first 128 characters of the intuit_tid header',
      { intuit_tid: 'x'.repeat(1_000) },
      'x'.repeat(128),
    ],
  ])('the response id of an HTTP call is taken from the %s', async (_, headers, responseId) => {
    target.on('/id', respondWith(200, '', headers))
    expect(await caller.call(request(`${target.url}/id`), limits())).toMatchObject({ responseId })
  })

  it.each([
    ['no server listens on the port', 'http://127.0.0.1:1/', 'ECONNREFUSED'],
    ['the host name is unknown', 'http://nobody.invalid/', /ENOTFOUND|EAI_AGAIN/],
  ])(
    'an HTTP call fails with the error code of the operating system if %s',
    async (_, url, reason) => {
      const outcome = await caller.call(request(url), limits())
      expect(outcome).toEqual({
        kind: 'failed',
        reason: expect.stringMatching(reason),
        isSent: false,
      })
    },
  )

  it('an HTTP call fails if its response is truncated', async () => {
    target.on('/broken', (_, response) => {
      response.writeHead(200, { 'content-length': '100' })
      response.write('half')
      setTimeout(() => response.destroy(), 10)
    })
    expect(await caller.call(request(`${target.url}/broken`), limits())).toMatchObject({
      kind: 'failed',
      isSent: true,
    })
  })

  it('an HTTP call fails with ETIMEDOUT at its time limit, even if part of the response has arrived', async () => {
    target.on('/slow', (_, response) => {
      response.writeHead(200)
      response.write('x')
    })
    expect(await caller.call(request(`${target.url}/slow`), limits({ timeoutMs: 1_000 }))).toEqual({
      kind: 'failed',
      reason: 'ETIMEDOUT',
      isSent: true,
    })
  })

  it('an HTTP call stops reading a response after a megabyte', async () => {
    target.on('/huge', (_, response) => {
      response.writeHead(200)
      const more = (): void => {
        while (response.writable && response.write('x'.repeat(65_536)));
        response.once('drain', more)
      }
      more()
    })
    expect(await caller.call(request(`${target.url}/huge`), limits())).toEqual({
      kind: 'too_large',
      status: 200,
      retryAfter: null,
      responseId: null,
    })
  })

  it('abort() aborts every HTTP call of a step, whereas blockNewCalls() aborts only a call that was not sent yet', async () => {
    const abort = new StepAbort()
    target.on('/held', (_, response) => {
      abort.blockNewCalls()
      setTimeout(() => response.end('done'), 20)
    })
    const url = `${target.url}/held`
    expect(await caller.call(request(url), limits({ abort }))).toMatchObject({
      kind: 'answered',
      body: 'done',
    })
    expect(await caller.call(request(url), limits({ abort }))).toEqual({
      kind: 'aborted',
      isSent: false,
    })
    expect(target.callsTo('/held')).toHaveLength(1)
    const hard = new StepAbort()
    target.on('/hard', () => hard.abort('lease_lost'))
    expect(await caller.call(request(`${target.url}/hard`), limits({ abort: hard }))).toEqual({
      kind: 'aborted',
      isSent: true,
    })
  })

  it('an HTTP call that is aborted while its connection is being opened is never sent', async () => {
    const server = createServer({ pauseOnConnect: true }).listen(0, '127.0.0.1', 1)
    await once(server, 'listening')
    const abort = new StepAbort()
    // The server never completes the TLS handshake, so the call waits for a connection and none of its bytes
    // are sent.
    const { port } = server.address() as { port: number }
    const calling = caller.call(request(`https://127.0.0.1:${port}/`), limits({ abort }))
    await once(server, 'connection')
    abort.blockNewCalls()
    expect(await calling).toEqual({ kind: 'aborted', isSent: false })
    server.close()
  })
})
