import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { eventually } from '../../../test-support/eventually.ts'
import type { TestForwardProxy } from '../../../test-support/forward-proxy.ts'
import {
  failureOf,
  type ProxiedOrigins,
  startProxiedOrigins,
  through,
} from '../../../test-support/proxied-origins.ts'
import { createProxiedFetch, openTunnel, type TunnelOptions } from './tunnel.ts'

let origins: ProxiedOrigins
beforeAll(async () => {
  origins = await startProxiedOrigins()
})
afterAll(() => origins[Symbol.asyncDispose]())

const open = (proxy: TestForwardProxy, url: string, options?: TunnelOptions) => {
  const used = through(proxy)(new URL(url))
  if (used === null) throw new TypeError('the URL is exempt')
  return openTunnel(used, new URL(url), options)
}

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
    const proxy = await origins.startProxy()
    proxy.reply = reply
    const failure = await failureOf(open(proxy, 'https://origin.test', { timeoutMs: 200 }))
    expect(failure.code).toBe(code)
    expect(failure.message).toContain(`the forward proxy ${proxy.address}`)
    expect(failure.message).toContain(found)
    expect(failure.message).not.toContain('pass')
  })

  it('fails if the proxy refuses connections', async () => {
    const proxy = await origins.startProxy()
    await proxy[Symbol.asyncDispose]()
    const failure = await failureOf(open(proxy, 'https://origin.test'))
    expect(failure).toMatchObject({ code: 'PROXY_UNREACHABLE' })
    expect(failure.message).toContain('ECONNREFUSED')
  })

  it('ignores a length in the response, which has no body', async () => {
    const proxy = await origins.startProxy()
    proxy.reply = 'HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n'
    const socket = await open(proxy, 'http://origin.test')
    expect(socket.writable).toBe(true)
    socket.destroy()
  })

  it('lets the proxy connect to the given address, and checks the certificate of the host name', async () => {
    const proxy = await origins.startProxy()
    const socket = await open(proxy, 'https://origin.test', { address: '192.0.2.1' })
    socket.destroy()
    expect(proxy.requests.map(({ to }) => to)).toEqual(['192.0.2.1:443'])
  })

  it('ends when its signal aborts', async () => {
    const proxy = await origins.startProxy()
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
    const proxy = await origins.startProxy()
    const fetchThrough = createProxiedFetch(through(proxy))

    for (const url of ['https://origin.test/y', `http://127.0.0.1:${origins.port}/y`]) {
      const response = await fetchThrough(url, { method: 'POST', body: 'text' })
      expect([response.status, await response.text()]).toEqual([200, 'hello'])
    }
    expect(proxy.requests.map(({ to }) => to)).toEqual(['origin.test:443'])
  })

  it('fails with the error of the tunnel', async () => {
    const proxy = await origins.startProxy()
    const failure = await failureOf(createProxiedFetch(through(proxy))('https://refused.test'))
    expect(failure).toMatchObject({ code: 'PROXY_REFUSED' })
  })
})
