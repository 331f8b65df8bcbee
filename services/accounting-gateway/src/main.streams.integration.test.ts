import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { type IncomingMessage, request as httpRequest } from 'node:http'
import { Readable, Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { nothingReachable, type Running, startMain } from '../test-support/gateway-process.ts'
import {
  KEY,
  type FakeServer,
  startFakeServer,
  startFakeTokenService,
} from '../test-support/fake-servers.ts'

const MB = 1_048_576
const BODY_BYTES = 512 * MB
/**
 * The memory growth that the test allows. The limit is far below the size of the body, but leaves room for garbage that
 * was not collected yet.
 */
const GROWTH_MB = 64

let opened: AsyncDisposableStack
let upstream: FakeServer
let gateway: Running
beforeEach(async () => {
  opened = new AsyncDisposableStack()
  upstream = opened.use(await startFakeServer((_request, response) => response.end()))
  const tokens = opened.use(await startFakeTokenService(['1']))
  gateway = opened.use(
    startMain({
      ...nothingReachable,
      ACCOUNTING_URL: upstream.url,
      TOKEN_SERVICE_URL: tokens.url,
    }),
  )
})
afterEach(() => opened.disposeAsync())

const chunk = Buffer.alloc(65_536, 'x')
const body = (): Readable =>
  Readable.from(
    (function* () {
      for (let sent = 0; sent < BODY_BYTES; sent += chunk.length) yield chunk
    })(),
    { objectMode: false },
  )

/** Reads a stream to its end and returns the number of bytes. */
function sink(onProgress: (length: number) => void) {
  let length = 0
  const stream = new Writable({
    write(part: Buffer, _encoding, done) {
      length += part.length
      onProgress(length)
      done()
    },
  })
  return { stream, length: () => length }
}

/**
 * Samples the resident memory of a process while a stream is running. The heap grows to its normal size in the first
 * quarter of the samples. `grownMb` is the highest later sample minus the highest sample of the first quarter.
 */
function memory(pid: number) {
  const residentMb = (): number =>
    Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1_024
  const most = { first: 0, later: 0 }
  let nextSampleAt = 0
  return {
    sample(length: number) {
      if (length < nextSampleAt) return
      nextSampleAt += 4 * MB
      const part = length < BODY_BYTES / 4 ? 'first' : 'later'
      most[part] = Math.max(most[part], residentMb())
    },
    grownMb: () => most.later - most.first,
  }
}

async function call(method: string) {
  const { port } = new URL(await gateway.url())
  const request = httpRequest({
    port,
    method,
    path: '/v3/company/1/x',
    headers: { Authorization: `Bearer ${KEY}` },
  })
  return { request, answer: once(request, 'response') as Promise<[IncomingMessage]> }
}

describe.skipIf(process.platform !== 'linux')('a body of 512 MB through the gateway', () => {
  it('a download of 512 MB through the gateway uses constant memory', async () => {
    upstream.handle = (_request, response) => pipeline(body(), response)
    const { request, answer } = await call('GET')
    request.end()
    const used = memory(gateway.pid)
    const { stream, length } = sink((bytes) => used.sample(bytes))
    await pipeline((await answer)[0], stream)
    expect(length()).toBe(BODY_BYTES)
    expect(used.grownMb()).toBeLessThan(GROWTH_MB)
  })

  it('an upload of 512 MB through the gateway uses constant memory', async () => {
    const used = memory(gateway.pid)
    const { stream, length } = sink((bytes) => used.sample(bytes))
    upstream.handle = async (received, response) => {
      await pipeline(received, stream)
      response.end('received')
    }
    const { request, answer } = await call('PUT')
    await pipeline(body(), request)
    const [response] = await answer
    response.resume()
    expect([response.statusCode, length()]).toEqual([200, BODY_BYTES])
    expect(used.grownMb()).toBeLessThan(GROWTH_MB)
  })
})
