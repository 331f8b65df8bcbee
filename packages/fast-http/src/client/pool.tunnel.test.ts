import { setImmediate as turn } from 'node:timers/promises'
import type { ProxyFor } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { tunnelTo } from '@integration-host/shared/http/forward-proxy/tunnel'
import { eventually } from '@integration-host/shared/test-support/eventually'
import {
  failureOf,
  type ProxiedOrigins,
  startProxiedOrigins,
  through,
} from '@integration-host/shared/test-support/proxied-origins'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { Pool } from './pool.ts'
import { requestText } from './request-text.ts'

let origins: ProxiedOrigins
let stack: AsyncDisposableStack
beforeAll(async () => {
  origins = await startProxiedOrigins()
})
afterAll(() => origins[Symbol.asyncDispose]())
beforeEach(() => {
  stack = new AsyncDisposableStack()
  origins.received.length = 0
})
afterEach(() => stack.disposeAsync())

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
    const proxy = await origins.startProxy(proxyBy === 'https')
    const pool = poolThrough(through(proxy, proxyBy), `${by}://origin.test`)

    for (let call = 0; call < 3; call += 1) {
      expect(await get(pool)).toBe('hello')
      await turn() // the pool reuses a connection one turn after its response
    }
    expect(origins.received).toEqual(['origin.test/x', 'origin.test/x', 'origin.test/x'])
    expect(proxy.requests).toEqual([
      {
        to: `origin.test:${by === 'http' ? 80 : 443}`,
        authorization: `Basic ${btoa('user:pass')}`,
      },
    ])
  })

  it('checks the certificate of the origin, which the proxy cannot replace', async () => {
    const proxy = await origins.startProxy()
    const failure = await failureOf(get(poolThrough(through(proxy), 'https://other.test')))
    expect(failure).toMatchObject({
      kind: 'unreachable',
      cause: { code: 'ERR_TLS_CERT_ALTNAME_INVALID' },
    })
    expect(origins.received).toEqual([])
  })

  it('checks the certificate of an origin that is given as an IP address against this address', async () => {
    const proxy = await origins.startProxy()
    const failure = await failureOf(get(poolThrough(through(proxy), 'https://192.0.2.1')))
    expect(failure).toMatchObject({
      kind: 'unreachable',
      cause: { code: 'ERR_TLS_CERT_ALTNAME_INVALID', host: '192.0.2.1' },
    })
    expect(origins.received).toEqual([])
  })

  it('fails a request with its cause if no tunnel is opened, and opens one for the next request', async () => {
    const proxy = await origins.startProxy()
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
    const proxy = await origins.startProxy()
    const pool = poolThrough(through(proxy), 'https://origin.test')
    proxy.reply = ''
    expect(await failureOf(get(pool))).toMatchObject({
      kind: 'timeout',
      cause: { code: 'PROXY_TIMEOUT' },
    })
  })

  it('closes while the proxy does not respond', async () => {
    const proxy = await origins.startProxy()
    const pool = poolThrough(through(proxy), 'https://origin.test')
    proxy.reply = ''
    const call = failureOf(get(pool))
    await eventually(() => expect(proxy.requests).toHaveLength(1))
    await pool[Symbol.asyncDispose]()
    expect(await call).toMatchObject({ kind: 'unreachable' })
  })
})
