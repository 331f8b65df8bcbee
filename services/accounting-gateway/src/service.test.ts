import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { connect } from 'node:net'
import { Readable } from 'node:stream'
import { gunzipSync, gzipSync } from 'node:zlib'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { raw } from '@integration-host/shared/test-support/raw-http'
import { send, stalled } from '../test-support/callers.ts'
import {
  bodyOf,
  echo,
  KEY,
  type FakeServer,
  tokenOf,
  type FakeTokenService,
} from '../test-support/fake-servers.ts'
import { type Gateway, startGateway, startFixture } from '../test-support/harness.ts'

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')

let opened: AsyncDisposableStack
let upstream: FakeServer
let tokens: FakeTokenService
let proxy: Gateway

beforeAll(async () => {
  ;({ opened, upstream, tokens } = await startFixture(['123', '456', 'faulty']))
  proxy = opened.use(await startGateway(upstream.url, tokens.url))
})
beforeEach(() => {
  upstream.handle = echo
  upstream.seen.length = 0
})
afterAll(() => opened.disposeAsync())

describe('a call through the gateway', () => {
  it('the gateway sends a call to the same path and query upstream, with the bearer token of its realm', async () => {
    const path = '/v3/company/123/query?query=select%20*%20from%20CompanyInfo&a=+%2F&b=\'"'
    const { request, answer } = send(proxy.port, 'GET', path)
    request.end()
    const response = await answer
    expect(response.statusCode).toBe(200)
    expect(response.headers['intuit_tid']).toBe('1-tid-of-the-response')
    expect(JSON.parse((await bodyOf(response)).toString())).toMatchObject({
      method: 'GET',
      url: path,
      headers: { authorization: `Bearer ${tokenOf('123', 1)}`, host: new URL(upstream.url).host },
    })
  })

  it('the gateway forwards a query byte for byte, even if client libraries would encode it', async () => {
    const get = (path: string) =>
      raw(
        proxy.port,
        `GET ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${KEY}\r\nConnection: close\r\n\r\n`,
      )
    const path = `/v3/company/123/query?query=name='O\\'Hara'|{}"<>^\`[]&%zz&%`
    expect((await get(path)).status).toBe(200)
    expect((await get('/v3/company/123/query?query=\xc3\xa9')).status).toBe(400)
    expect(upstream.seen.map(({ url }) => url)).toEqual([path])
  })

  it.each(['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND'])(
    'the gateway forwards a %s request with its method and body',
    async (method) => {
      const { request, answer } = send(proxy.port, method, '/v3/company/123/x?requestid=1', {
        'Content-Length': '4',
      })
      request.end('body')
      expect(JSON.parse((await bodyOf(await answer)).toString())).toMatchObject({
        method,
        body: 'body',
      })
    },
  )

  it('the gateway relays status and headers of a redirect without following it', async () => {
    upstream.handle = (_request, response) => {
      response.writeHead(307, [
        'Location',
        'http://127.0.0.1:9/evil',
        'X-Twice',
        '1',
        'X-Twice',
        '2',
        'Set-Cookie',
        'a=b',
        'Keep-Alive',
        'timeout=5',
        'Connection',
        'x-internal',
        'X-Internal',
        '1',
      ])
      response.end()
    }
    const { request, answer } = send(proxy.port, 'GET', '/v3/company/123/x')
    request.end()
    const { statusCode, headers, rawHeaders } = await answer
    expect(statusCode).toBe(307)
    expect(headers).toMatchObject({ location: 'http://127.0.0.1:9/evil', 'x-twice': '1, 2' })
    expect(headers).not.toHaveProperty('set-cookie')
    expect(headers).not.toHaveProperty('x-internal')
    expect(rawHeaders).toContain('X-Twice')
    expect(upstream.seen).toHaveLength(1)
  })

  it('the gateway returns Server-Timing and X-Request-Id, and logs the request id together with intuit_tid', async () => {
    const answer = await proxy.call('/v3/company/123/x?secret-query')
    expect(answer.headers.get('server-timing')).toMatch(
      /^gateway;dur=[\d.]+, wait;dur=[\d.]+, upstream;dur=[\d.]+$/,
    )
    const requestId = answer.headers.get('x-request-id') ?? ''
    await answer.text()
    await eventually(() => {
      expect(proxy.log).toContainEqual(
        expect.objectContaining({
          requestId,
          realm: '123',
          status: 200,
          attempts: 1,
          intuitTid: '1-tid-of-the-response',
          msg: 'request completed',
        }),
      )
    })
    expect(proxy.logText()).not.toContain('secret-query')
  })

  it('the gateway relays a compressed response body without decoding it', async () => {
    const packed = gzipSync('compressed by upstream '.repeat(100))
    upstream.handle = (_request, response) => {
      response.writeHead(200, { 'Content-Encoding': 'gzip', 'Content-Length': packed.length })
      response.end(packed)
    }
    const { request, answer } = send(proxy.port, 'GET', '/v3/company/123/x', {
      'Accept-Encoding': 'gzip',
    })
    request.end()
    const response = await answer
    const body = await bodyOf(response)
    expect(response.headers['content-encoding']).toBe('gzip')
    expect(body.equals(packed)).toBe(true)
    expect(gunzipSync(body).toString()).toContain('compressed by upstream')
    expect(upstream.seen[0]?.headers['accept-encoding']).toBe('gzip')
  })

  it.each([204, 304])('the gateway relays a %i response without a body', async (status) => {
    upstream.handle = (_request, response) => response.writeHead(status, { ETag: '"1"' }).end()
    const { request, answer } = send(proxy.port, 'GET', '/v3/company/123/x')
    request.end()
    const response = await answer
    expect([response.statusCode, response.headers.etag, (await bodyOf(response)).length]).toEqual([
      status,
      '"1"',
      0,
    ])
  })

  it('the gateway relays a response to HEAD with its headers and without a body', async () => {
    upstream.handle = (_request, response) =>
      response.writeHead(200, { 'Content-Length': 12_345 }).end()
    const { request, answer } = send(proxy.port, 'HEAD', '/v3/company/123/x')
    request.end()
    const response = await answer
    expect(response.headers['content-length']).toBe('12345')
    expect((await bodyOf(response)).length).toBe(0)
  })

  it('the gateway relays response chunks as they arrive, and trailers after the last chunk', async () => {
    let release = (): void => {}
    upstream.handle = (_request, response) => {
      response.writeHead(200, { Trailer: 'X-Checksum' })
      response.write('first')
      release = () => {
        response.addTrailers({ 'X-Checksum': 'abc' })
        response.end('second')
      }
    }
    const { request, answer } = send(proxy.port, 'GET', '/v3/company/123/x')
    request.end()
    const response = await answer
    const [first] = (await once(response, 'data')) as [Buffer]
    expect(first.toString()).toBe('first')
    release()
    expect((await bodyOf(response)).toString()).toBe('second')
    expect(response.trailers).toEqual({ 'x-checksum': 'abc' })
  })

  it('the gateway sends the response head at once if the body arrives later', async () => {
    let finish = (): void => {}
    upstream.handle = (_request, response) => {
      response.writeHead(200, { 'Content-Length': 2 }).flushHeaders()
      finish = () => response.end('ok')
    }
    const { request, answer } = send(proxy.port, 'GET', '/v3/company/123/x')
    request.end()
    const response = await answer
    expect(response.statusCode).toBe(200)
    finish()
    expect((await bodyOf(response)).toString()).toBe('ok')
  })

  it('the gateway streams an upload upstream while the caller is still sending it', async () => {
    const parts: string[] = []
    upstream.handle = async (request, response) => {
      for await (const part of request) parts.push(String(part))
      response.end('done')
    }
    const { request, answer } = send(proxy.port, 'POST', '/v3/company/123/upload', {
      'Transfer-Encoding': 'chunked',
    })
    request.write('first')
    await eventually(() => expect(parts).toEqual(['first']))
    request.end('second')
    expect((await bodyOf(await answer)).toString()).toBe('done')
    expect(parts.join('')).toBe('firstsecond')
  })

  it('the gateway streams a body of 32 MB unchanged in each direction', async () => {
    const bytes = randomBytes(32 * 1_048_576)
    upstream.handle = (request, response) => {
      response.writeHead(200)
      request.pipe(response)
    }
    const { request, answer } = send(proxy.port, 'POST', '/v3/company/123/upload')
    Readable.from(
      (function* () {
        for (let at = 0; at < bytes.length; at += 65_536) yield bytes.subarray(at, at + 65_536)
      })(),
    ).pipe(request)
    expect(sha256(await bodyOf(await answer))).toBe(sha256(bytes))
  })

  it('the gateway stops reading from upstream when the caller stops reading the response', async () => {
    const chunk = Buffer.alloc(65_536)
    let written = 0
    upstream.handle = async (request, response) => {
      const gone = new AbortController()
      response.on('close', () => gone.abort())
      response.writeHead(200)
      while (!request.destroyed && written < 512 * 1_048_576) {
        written += chunk.length
        if (!response.write(chunk)) {
          await once(response, 'drain', { signal: gone.signal })
        }
      }
    }
    const socket = connect(proxy.port, '127.0.0.1')
    socket.write(
      `GET /v3/company/123/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${KEY}\r\n\r\n`,
    )
    await once(socket, 'readable') // The response has begun; this test never reads it.
    // The response has 512 MB, but the socket buffers of upstream, gateway and caller together hold only a few MB.
    expect(await stalled(() => written)).toBeLessThan(64 * 1_048_576)
    socket.destroy()
  })

  it('the gateway aborts the upstream request when the caller disconnects during the response', async () => {
    const closed = new Promise<void>((resolve) => {
      upstream.handle = (_request, response) => {
        response.on('close', resolve)
        response.writeHead(200)
        response.write('never more than this')
      }
    })
    const { request, answer } = send(proxy.port, 'GET', '/v3/company/123/x')
    request.end()
    await once(await answer, 'data')
    request.destroy()
    await closed
    await eventually(() =>
      expect(proxy.log).toContainEqual(expect.objectContaining({ status: 499 })),
    )
  })

  it('the gateway aborts the upstream request when the caller disconnects before the response begins', async () => {
    const closed = new Promise<void>((resolve) => {
      upstream.handle = (_request, response) => void response.on('close', resolve)
    })
    const { request, answer } = send(proxy.port, 'GET', '/v3/company/123/x')
    answer.catch(() => {})
    request.on('error', () => {})
    request.end()
    await eventually(() => expect(upstream.seen).toHaveLength(1))
    request.destroy()
    await closed
  })

  it("if a response of upstream is interrupted, the gateway closes the caller's connection to mark the response as truncated", async () => {
    upstream.handle = (_request, response) => {
      response.writeHead(200, { 'Content-Length': 100 })
      response.write('half', () => response.destroy())
    }
    const { request, answer } = send(proxy.port, 'GET', '/v3/company/123/x')
    request.end()
    await expect(bodyOf(await answer)).rejects.toThrow('aborted')
    expect(upstream.seen).toHaveLength(1)
  })

  it('the gateway sends 100 Continue only after it has checked the key and the credential of the realm', async () => {
    const { request, answer } = send(proxy.port, 'POST', '/v3/company/123/x', {
      Expect: '100-continue',
      'Content-Length': '4',
    })
    request.on('continue', () => request.end('body'))
    request.flushHeaders()
    expect(JSON.parse((await bodyOf(await answer)).toString())).toMatchObject({ body: 'body' })
    expect(upstream.seen[0]?.headers).not.toHaveProperty('expect')

    const rejected = send(proxy.port, 'POST', '/v3/company/unknown/x', {
      Expect: '100-continue',
      'Content-Length': '4',
    })
    let continued = false
    rejected.request.on('continue', () => (continued = true))
    rejected.request.flushHeaders()
    expect((await rejected.answer).statusCode).toBe(404)
    expect(continued).toBe(false)
    rejected.request.destroy()
  })

  it('the gateway relays a response that arrives during an upload, and reads the rest of the upload', async () => {
    upstream.handle = (request, response) => {
      request.once('data', () => response.writeHead(413).end('too much'))
    }
    const { request, answer } = send(proxy.port, 'POST', '/v3/company/123/upload', {
      'Transfer-Encoding': 'chunked',
    })
    request.write(Buffer.alloc(100_000))
    const response = await answer
    expect([response.statusCode, (await bodyOf(response)).toString()]).toEqual([413, 'too much'])
    request.end(Buffer.alloc(3_000_000))
    await once(request, 'close')
  })

  it('the gateway derives the same requestid for every POST with the same Idempotency-Key', async () => {
    const ids: (string | null)[] = []
    for (const key of ['Invoices/66/0/create', 'Invoices/66/0/create', 'Invoices/67/0/create']) {
      const headers = { 'Idempotency-Key': key }
      const answer = await proxy.call('/v3/company/123/invoice', {
        method: 'POST',
        headers,
        body: '{}',
      })
      ids.push(answer.headers.get('x-requestid'))
    }
    expect(ids[0]).toMatch(/^[0-9a-f]{32}$/)
    expect(ids[1]).toBe(ids[0])
    expect(ids[2]).not.toBe(ids[0])
  })

  it('the gateway adds a requestid to a POST that has none, and returns the requestid in the header X-RequestId', async () => {
    const answer = await proxy.call('/v3/company/123/invoice?minorversion=75', {
      method: 'POST',
      body: '{}',
    })
    const id = answer.headers.get('x-requestid') ?? ''
    expect(id).toMatch(/^[0-9a-f-]{36}$/)
    expect(upstream.seen[0]?.url).toBe(`/v3/company/123/invoice?minorversion=75&requestid=${id}`)
    const own = await proxy.call('/v3/company/123/invoice?requestid=mine', {
      method: 'POST',
      body: '{}',
    })
    expect(own.headers.has('x-requestid')).toBe(false)
    const got = await proxy.call('/v3/company/123/invoice')
    expect(got.headers.has('x-requestid')).toBe(false)
    expect(upstream.seen.map(({ url }) => url).slice(1)).toEqual([
      '/v3/company/123/invoice?requestid=mine',
      '/v3/company/123/invoice',
    ])
  })

  it('each of 400 concurrent calls gets the token of its own realm, even while 401 responses cause refreshes', async () => {
    upstream.handle = async (request, response) => {
      const realm = /company\/(\w+)\//.exec(request.url ?? '')?.[1] ?? ''
      const bearer = request.headers.authorization ?? ''
      if (!bearer.startsWith(`Bearer token-${realm}-`)) mixed += 1
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 5))
      // Upstream responds 401 to one call in eight. The gateway then refreshes the token of the call's realm.
      response.writeHead(Math.random() < 0.125 ? 401 : 200).end(bearer)
    }
    let mixed = 0
    const calls = Array.from({ length: 400 }, async (_, index) => {
      const realm = index % 2 === 0 ? '123' : '456'
      const answer = await proxy.call(`/v3/company/${realm}/x?${index}`)
      return (await answer.text()).startsWith(`Bearer token-${realm}-`)
    })
    expect((await Promise.all(calls)).every(Boolean)).toBe(true)
    expect(mixed).toBe(0)
    expect(upstream.seen.length).toBeGreaterThan(400)
  })
})

describe('a response that the gateway creates itself', () => {
  const problem = async (answer: Response) => {
    expect(answer.headers.get('content-type')).toBe('application/problem+json')
    expect(answer.headers.get('x-request-id')).toBeTruthy()
    const body = (await answer.json()) as Record<string, unknown>
    expect(body['status']).toBe(answer.status)
    return body
  }

  it.each([
    ['no key', {}],
    ['a wrong key', { Authorization: 'Bearer wrong-key-wrong-key-wrong-key-wrong-key' }],
    ['the key in the Basic scheme', { Authorization: `Basic ${KEY}` }],
    ['one character after the key', { Authorization: `Bearer ${KEY}x` }],
  ])(
    'the gateway responds 401 to a request with %s and sends nothing upstream',
    async (_what, headers) => {
      const answer = await fetch(`${proxy.url}/v3/company/123/x`, { headers })
      expect(await problem(answer)).toMatchObject({ status: 401, code: 'unauthorized' })
      expect(answer.headers.get('www-authenticate')).toMatch(/^Bearer/)
      expect(upstream.seen).toHaveLength(0)
    },
  )

  it('for a realm that is not connected, the gateway responds 404 and sends nothing upstream', async () => {
    expect(await problem(await proxy.call('/v3/company/999/x'))).toMatchObject({
      status: 404,
      code: 'credential_not_found',
    })
    expect(upstream.seen).toHaveLength(0)
  })

  it("the gateway responds 424 with token-service's detail for a faulted credential", async () => {
    const credential = tokens.credentials.get('faulty')
    if (credential !== undefined)
      credential.fault = 'Couldn\'t refresh token for realm ACC-faulty, {"error":"invalid_grant"}'
    expect(await problem(await proxy.call('/v3/company/faulty/x'))).toMatchObject({
      status: 424,
      code: 'credential_faulted',
      detail: 'Couldn\'t refresh token for realm ACC-faulty, {"error":"invalid_grant"}',
      Fault: { Code: 'invalid_grant' },
    })
    expect(upstream.seen).toHaveLength(0)
  })

  it.each(['/v3', '/v3/company/123', '/v2/company/123/x', '/v3/accounts'])(
    'the gateway responds to %s with 404 if the key is valid and with 401 if the request has no key',
    async (path) => {
      expect(await (await proxy.call(path)).json()).toMatchObject({
        status: 404,
        code: 'not_found',
      })
      expect((await fetch(proxy.url + path)).status).toBe(401)
      expect(upstream.seen).toHaveLength(0)
    },
  )

  it('the gateway serves health, metrics and documentation without a key, and reveals no realm or token there', async () => {
    await (await proxy.call('/v3/company/123/x')).text()
    let text = ''
    for (const path of ['/health/live', '/metrics', '/openapi.json', '/docs']) {
      const answer = await fetch(proxy.url + path)
      expect(answer.status, path).toBe(200)
      text += await answer.text()
    }
    expect(text).toContain('gateway_requests_total{status="200",service="accounting-gateway"}')
    expect(text).toContain('/v3/company/{realm}/')
    expect(text).not.toContain('token-123')
    expect(text).not.toContain(KEY)
  })

  it('the gateway responds 405 with an Allow header to POST /metrics', async () => {
    const answer = await proxy.call('/metrics', { method: 'POST' })
    expect([answer.status, answer.headers.get('allow')]).toEqual([405, 'GET, HEAD'])
  })
})

it('the gateway writes no token, key or query to the log in any test of this file', () => {
  const text = proxy.logText()
  expect(text.length).toBeGreaterThan(10_000)
  for (const canary of ['canary', KEY, 'CompanyInfo']) expect(text).not.toContain(canary)
})
