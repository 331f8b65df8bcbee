import { createServer } from 'node:net'
import { once } from 'node:events'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { respondWith, startTarget, type Target } from '../../../test-support/fake-target.ts'
import { StepAbort } from '../../process/step-abort.ts'
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
