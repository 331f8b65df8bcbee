import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server } from 'node:http'
import { createServer as createHttps } from 'node:https'
import type { AddressInfo } from 'node:net'
import { setImmediate as turn } from 'node:timers/promises'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { eventually } from '../../../test-support/eventually.ts'
import { startForwardProxy, type TestForwardProxy } from '../../../test-support/forward-proxy.ts'
import { type Authority, createAuthority } from '../../../test-support/certificates.ts'
import { Pool } from '../client/pool.ts'
import { requestText } from '../client/request-text.ts'
import { chooseProxy, forwardProxySettings, type ProxyFor } from './forward-proxy.ts'
import { createProxiedFetch } from './proxied-fetch.ts'
import { openTunnel, tunnelTo, type TunnelOptions } from './tunnel.ts'

let authority: Authority
let stack: AsyncDisposableStack
let received: string[]

beforeAll(async () => {
  authority = await createAuthority()
})
afterAll(() => authority[Symbol.asyncDispose]())
beforeEach(() => {
  stack = new AsyncDisposableStack()
  received = []
  const before = getCACertificates()
  setDefaultCACertificates([...before, readFileSync(authority.caFile, 'utf8')])
  stack.defer(() => setDefaultCACertificates(before))
})
afterEach(() => stack.disposeAsync())

const respond = (request: IncomingMessage, response: { end(text: string): void }): void => {
  received.push(`${request.headers.host}${request.url}`)
  response.end('hello')
}

async function portOf(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  stack.defer(() => {
    server.closeAllConnections()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

const certified = async (name: string) => {
  const { certFile, keyFile } = await authority.issue(name, `DNS:${name},IP:127.0.0.1`)
  return { cert: readFileSync(certFile), key: readFileSync(keyFile) }
}

/** Starts origins for `http://origin.test` and `https://origin.test`, and a proxy that leads to them. */
async function startAll(isTlsProxy = false): Promise<TestForwardProxy> {
  const plain = await portOf(createServer(respond))
  const secure = await portOf(createHttps(await certified('origin.test'), respond))
  return stack.use(
    await startForwardProxy({
      routes: {
        'origin.test:80': plain,
        'origin.test:443': secure,
        'other.test:443': secure,
        '192.0.2.1:443': secure,
      },
      ...(isTlsProxy && { tls: await certified('proxy.test') }),
    }),
  )
}

function through({ address }: TestForwardProxy, protocol = 'http'): ProxyFor {
  const url = `${protocol}://user:pass@${address}`
  return chooseProxy(z.object(forwardProxySettings()).parse({ HTTPS_PROXY: url, HTTP_PROXY: url }))
}

const open = (proxy: TestForwardProxy, url: string, options?: TunnelOptions) => {
  const used = through(proxy)(new URL(url))
  if (used === null) throw new TypeError('the URL is exempt')
  return openTunnel(used, new URL(url), options)
}
const failureOf = async (
  attempt: Promise<unknown>,
): Promise<Error & { readonly code?: string }> => {
  try {
    await attempt
  } catch (error) {
    return error as Error
  }
  throw new Error('there was no failure')
}

function poolThrough(proxyFor: ProxyFor, origin: string): Pool {
  const connect = tunnelTo(proxyFor, new URL(origin))
  return stack.use(new Pool(origin, { connect, connectTimeoutMs: 300 }))
}
const get = async (pool: Pool) =>
  (
    await requestText(
      pool,
      { method: 'GET', path: '/x', headers: [], body: null },
      { timeoutMs: 2_000, signal: new AbortController().signal },
    )
  ).text

describe('a pool whose connections lead through a forward proxy', () => {
  it.each([
    ['http', 'http'],
    ['http', 'https'],
    ['https', 'http'],
    ['https', 'https'],
  ])('reaches, with a proxy of %s, an origin of %s, and reuses the tunnel', async (proxyBy, by) => {
    const proxy = await startAll(proxyBy === 'https')
    const pool = poolThrough(through(proxy, proxyBy), `${by}://origin.test`)

    for (let call = 0; call < 3; call += 1) {
      expect(await get(pool)).toBe('hello')
      await turn() // the pool reuses a connection one turn after its response
    }
    expect(received).toEqual(['origin.test/x', 'origin.test/x', 'origin.test/x'])
    expect(proxy.requests).toEqual([
      {
        to: `origin.test:${by === 'http' ? 80 : 443}`,
        authorization: `Basic ${btoa('user:pass')}`,
      },
    ])
  })

  it('checks the certificate of the origin, which the proxy cannot replace', async () => {
    const proxy = await startAll()
    const failure = await failureOf(get(poolThrough(through(proxy), 'https://other.test')))
    expect(failure).toMatchObject({
      kind: 'unreachable',
      cause: { code: 'ERR_TLS_CERT_ALTNAME_INVALID' },
    })
    expect(received).toEqual([])
  })

  it('checks the certificate of an origin that is given as an IP address against this address', async () => {
    const proxy = await startAll()
    const failure = await failureOf(get(poolThrough(through(proxy), 'https://192.0.2.1')))
    expect(failure).toMatchObject({
      kind: 'unreachable',
      cause: { code: 'ERR_TLS_CERT_ALTNAME_INVALID', host: '192.0.2.1' },
    })
    expect(received).toEqual([])
  })

  it('fails a request with its cause if no tunnel is opened, and opens one for the next request', async () => {
    const proxy = await startAll()
    const pool = poolThrough(through(proxy), 'https://origin.test')
    proxy.reply = 'HTTP/1.1 407 Proxy Authentication Required\r\n\r\n'
    expect(await failureOf(get(pool))).toMatchObject({
      kind: 'unreachable',
      cause: { code: 'PROXY_AUTHENTICATION_REQUIRED' },
    })
    expect(pool.isIdle).toBe(true)
    proxy.reply = null
    expect(await get(pool)).toBe('hello')
  })

  it('fails a request after the connect timeout if the proxy does not respond', async () => {
    const proxy = await startAll()
    const pool = poolThrough(through(proxy), 'https://origin.test')
    proxy.reply = ''
    expect(await failureOf(get(pool))).toMatchObject({
      kind: 'timeout',
      cause: { code: 'PROXY_TIMEOUT' },
    })
  })

  it('closes while the proxy does not respond', async () => {
    const proxy = await startAll()
    const pool = poolThrough(through(proxy), 'https://origin.test')
    proxy.reply = ''
    const call = failureOf(get(pool))
    await eventually(() => expect(proxy.requests).toHaveLength(1))
    await pool[Symbol.asyncDispose]()
    expect(await call).toMatchObject({ kind: 'unreachable' })
  })
})

describe('opening a tunnel', () => {
  it.each([
    ['HTTP/1.1 407 Who are you\r\nX: user:pass\r\n\r\n', 'PROXY_AUTHENTICATION_REQUIRED', '407'],
    ['HTTP/1.1 403 user:pass\r\n\r\n', 'PROXY_REFUSED', '403'],
    ['HTTP/1.1 302 Found\r\nLocation: http://x.test\r\n\r\n', 'PROXY_REFUSED', '302'],
    ['SSH-2.0-OpenSSH_9.9\r\n', 'PROXY_INVALID_RESPONSE', 'as an HTTP proxy'],
    ['HTTP/2 200 OK\r\n\r\n', 'PROXY_INVALID_RESPONSE', 'as an HTTP proxy'],
    ['HTTP/1.1 200 OK\r\n\r\nextra', 'PROXY_INVALID_RESPONSE', 'bytes of its own'],
    [`HTTP/1.1 200 OK\r\nX: ${'x'.repeat(17_000)}\r\n\r\n`, 'PROXY_INVALID_RESPONSE', 'too large'],
    [`HTTP/1.1 200 OK\r\nX: ${'x'.repeat(17_000)}`, 'PROXY_INVALID_RESPONSE', 'too large'],
    ['', 'PROXY_TIMEOUT', 'in time'],
    ['HTTP/1.1 20', 'PROXY_TIMEOUT', 'in time'],
  ])('fails for the response %j with %s', async (reply, code, found) => {
    const proxy = await startAll()
    proxy.reply = reply
    const failure = await failureOf(open(proxy, 'https://origin.test', { timeoutMs: 200 }))
    expect(failure.code).toBe(code)
    expect(failure.message).toContain(`the forward proxy ${proxy.address}`)
    expect(failure.message).toContain(found)
    expect(failure.message).not.toContain('pass')
  })

  it('fails if the proxy refuses connections', async () => {
    const proxy = await startAll()
    await proxy[Symbol.asyncDispose]()
    const failure = await failureOf(open(proxy, 'https://origin.test'))
    expect(failure).toMatchObject({ code: 'PROXY_UNREACHABLE' })
    expect(failure.message).toContain('ECONNREFUSED')
  })

  it('ignores a length in the response, which has no body', async () => {
    const proxy = await startAll()
    proxy.reply = 'HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n'
    const socket = await open(proxy, 'http://origin.test')
    expect(socket.writable).toBe(true)
    socket.destroy()
  })

  it('lets the proxy connect to the given address, and checks the certificate of the host name', async () => {
    const proxy = await startAll()
    const socket = await open(proxy, 'https://origin.test', { address: '192.0.2.1' })
    socket.destroy()
    expect(proxy.requests.map(({ to }) => to)).toEqual(['192.0.2.1:443'])
  })

  it('ends when its signal aborts', async () => {
    const proxy = await startAll()
    proxy.reply = ''
    const abort = new AbortController()
    const failure = failureOf(open(proxy, 'https://origin.test', { signal: abort.signal }))
    await eventually(() => expect(proxy.requests).toHaveLength(1))
    abort.abort()
    expect(await failure).toMatchObject({ code: 'PROXY_TIMEOUT' })
  })
})

describe('fetch through a forward proxy', () => {
  it('sends a request through the proxy, unless the URL is exempt', async () => {
    const proxy = await startAll()
    const direct = await portOf(createServer(respond))
    const fetchThrough = createProxiedFetch(through(proxy))

    for (const url of ['https://origin.test/y', `http://127.0.0.1:${direct}/y`]) {
      const response = await fetchThrough(url, { method: 'POST', body: 'text' })
      expect([response.status, await response.text()]).toEqual([200, 'hello'])
    }
    expect(proxy.requests.map(({ to }) => to)).toEqual(['origin.test:443'])
  })

  it('fails with the error of the tunnel', async () => {
    const proxy = await startAll()
    const failure = await failureOf(createProxiedFetch(through(proxy))('https://refused.test'))
    expect(failure).toMatchObject({ code: 'PROXY_REFUSED' })
  })
})
