import type { LookupAddress } from 'node:dns'
import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { readFile } from 'node:fs/promises'
import type { AddressInfo, Server } from 'node:net'
import {
  chooseProxy,
  type ForwardProxy,
} from '@integration-host/shared/http/forward-proxy/forward-proxy'
import {
  startForwardProxy,
  type TestForwardProxy,
} from '@integration-host/shared/test-support/forward-proxy'
import { createAuthority, LOOPBACK_NAMES } from '@integration-host/shared/test-support/certificates'
import { afterEach, describe, expect, it } from 'vitest'
import { StepAbort } from '../../step/step-abort.ts'
import { createWebhookPost } from './webhook-post.ts'

const servers: Server[] = []
afterEach(() => {
  for (const server of servers.splice(0)) {
    if ('closeAllConnections' in server) (server.closeAllConnections as () => void)()
    server.close()
  }
})
const listening = async (server: Server): Promise<number> => {
  servers.push(server)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}
const serve = async (handler: RequestListener) => {
  const port = await listening(createServer(handler))
  return new URL(`http://127.0.0.1:${port}/in?a=1`)
}
const request = (url: URL, isAllowedByName = true, abort = new StepAbort()) => ({
  url,
  isAllowedByName,
  headers: { 'content-type': 'application/json' },
  body: '{"ä":1}',
  abort,
})
/** A fake name server. Each response contains the next list of addresses. */
const resolverOf = (...lists: readonly (readonly string[])[]) => {
  const asked: string[] = []
  const resolve = (name: string, _: object, callback: (...result: unknown[]) => void): void => {
    const addresses = lists[Math.min(asked.length, lists.length - 1)] ?? []
    asked.push(name)
    const found = addresses.map((address): LookupAddress => ({
      address,
      family: address.includes(':') ? 6 : 4,
    }))
    callback(null, found)
  }
  return { asked, resolve: resolve as never }
}

describe('sending a webhook', () => {
  it('a webhook is sent as one POST request with the exact body, and its connection is closed afterwards', async () => {
    const seen: unknown[] = []
    const url = await serve((call, response) => {
      call.setEncoding('utf8')
      call.once('data', (body) => {
        const { connection, 'content-length': length } = call.headers
        seen.push([call.method, call.url, connection, length, body])
        response.writeHead(202, { 'retry-after': '7' }).end('ok')
      })
    })
    expect(await createWebhookPost()(request(url))).toEqual({
      kind: 'responded',
      status: 202,
      retryAfterMs: 7_000,
    })
    expect(seen).toEqual([['POST', '/in?a=1', 'close', '8', '{"ä":1}']])
  })

  it('a webhook call returns a redirect like any other response', async () => {
    const url = await serve((_, response) => response.writeHead(308, { location: '/x' }).end())
    expect(await createWebhookPost()(request(url))).toMatchObject({ status: 308 })
  })

  it.each([
    ['a loopback address', ['127.0.0.1']],
    ['the metadata service', ['169.254.169.254']],
    ['an IPv4 address in IPv6', ['::ffff:10.0.0.1']],
    ['a public and a private address', ['1.1.1.1', '10.0.0.1']],
  ])('a webhook is not sent to a host name that resolves to %s', async (_, addresses) => {
    let calls = 0
    const { port } = await serve((__, response) => ((calls += 1), response.end()))
    const { resolve, asked } = resolverOf(addresses)
    const url = new URL(`http://hooks.example.com:${port}/`)
    expect(await createWebhookPost({ resolve })(request(url, false))).toEqual({
      kind: 'private_address',
    })
    expect(asked).toEqual(['hooks.example.com'])
    expect(calls).toBe(0)
  })

  it.each(['http://127.0.0.1:1/', 'http://[::1]:1/', 'http://localhost:1/', 'https://0x7f000001/'])(
    'a webhook is not sent to %s unless the settings allow the host by name',
    async (url) => {
      expect(await createWebhookPost()(request(new URL(url), false))).toEqual({
        kind: 'private_address',
      })
    },
  )

  it('a webhook call resolves its host name only once, so that a later response of the name server has no effect', async () => {
    let calls = 0
    const { port } = await serve((_, response) => ((calls += 1), response.end()))
    // The test simulates DNS rebinding: the attacker's name server returns a different address for the second query.
    // That second address, 127.0.0.1, belongs to the server of this test.
    const { resolve, asked } = resolverOf(['192.0.2.1'], ['127.0.0.1'])
    const post = createWebhookPost({ resolve, timeoutMs: 200 })
    const result = await post(request(new URL(`http://hooks.example.com:${port}/`), false))
    expect(result).toEqual({ kind: 'private_address' }) // 192.0.2.0/24 is reserved for documentation
    expect([asked.length, calls]).toEqual([1, 0])
  })

  it('a webhook is not sent to a receiver whose certificate is not trusted', async () => {
    await using authority = await createAuthority()
    const { certFile, keyFile } = await authority.issue('receiver', LOOPBACK_NAMES)
    let calls = 0
    const port = await listening(
      createTlsServer({ cert: await readFile(certFile), key: await readFile(keyFile) }, () => {
        calls += 1
      }),
    )
    const result = await createWebhookPost()(request(new URL(`https://127.0.0.1:${port}/`)))
    expect(result).toMatchObject({ kind: 'failed', isSent: false })
    expect(calls).toBe(0)
  })

  it('a webhook call ends at its time limit, even if the receiver never stops sending headers', async () => {
    const url = await serve((_, response) => {
      const timer = setInterval(() => response.socket?.write('HTTP/1.1 100 Continue\r\n\r\n'), 5)
      response.on('close', () => clearInterval(timer))
    })
    expect(await createWebhookPost({ timeoutMs: 100 })(request(url))).toEqual({
      kind: 'failed',
      reason: 'ETIMEDOUT',
      isSent: true,
    })
  })

  it('abort() aborts every webhook call, whereas blockNewCalls() aborts only a call that was not sent yet', async () => {
    const arrived = Promise.withResolvers<void>()
    const url = await serve(() => arrived.resolve())
    const abort = new StepAbort()
    const call = createWebhookPost()(request(url, true, abort))
    await arrived.promise
    abort.blockNewCalls() // the call was already sent, so it continues
    abort.abort('shutdown')
    expect(await call).toEqual({ kind: 'aborted' })
    expect(await createWebhookPost()(request(url, true, abort))).toEqual({ kind: 'aborted' })
  })
})

describe('sending a webhook through a forward proxy', () => {
  const sender = (proxy: TestForwardProxy, ...addresses: string[]) => {
    const { resolve, asked } = resolverOf(addresses)
    const HTTP_PROXY: ForwardProxy = {
      address: proxy.address,
      host: '127.0.0.1',
      port: Number(proxy.address.split(':')[1]),
      isTls: false,
      authorization: null,
    }
    const proxyFor = chooseProxy({ HTTP_PROXY, NO_PROXY: '' })
    const post = createWebhookPost({ resolve, timeoutMs: 300, proxyFor })
    const url = new URL('http://receiver.test/in')
    return { asked, send: (...rest: [boolean, StepAbort?]) => post(request(url, ...rest)) }
  }
  const startAll = async (): Promise<TestForwardProxy> => {
    const { port } = await serve((_, response) => response.writeHead(202).end())
    return startForwardProxy({
      routes: { '1.1.1.1:80': Number(port), 'receiver.test:80': Number(port) },
    })
  }

  it('lets the proxy connect to the address that was checked', async () => {
    await using proxy = await startAll()
    const { send } = sender(proxy, '1.1.1.1')
    expect(await send(false)).toMatchObject({ kind: 'responded', status: 202 })
    expect(proxy.requests.map(({ to }) => to)).toEqual(['1.1.1.1:80'])
  })

  it('does not connect to the proxy for a host name that resolves to a private address', async () => {
    await using proxy = await startAll()
    const { send } = sender(proxy, '1.1.1.1', '10.0.0.1')
    expect(await send(false)).toEqual({ kind: 'private_address' })
    expect(proxy.requests).toEqual([])
  })

  it('lets the proxy resolve a host that is allowed by its name', async () => {
    await using proxy = await startAll()
    const { send, asked } = sender(proxy, '10.0.0.1')
    expect(await send(true)).toMatchObject({ kind: 'responded', status: 202 })
    expect([asked, proxy.requests.map(({ to }) => to)]).toEqual([[], ['receiver.test:80']])
  })

  it('was not sent if the proxy refuses', async () => {
    await using proxy = await startAll()
    proxy.reply = 'HTTP/1.1 407 No\r\n\r\n'
    const reason = 'PROXY_AUTHENTICATION_REQUIRED'
    const { send } = sender(proxy, '1.1.1.1')
    expect(await send(false)).toEqual({ kind: 'failed', reason, isSent: false })
  })

  it('was not sent if the proxy does not respond in time', async () => {
    await using proxy = await startAll()
    proxy.reply = ''
    expect(await sender(proxy, '1.1.1.1').send(false)).toMatchObject({
      kind: 'failed',
      isSent: false,
    })
  })

  it('is aborted while the proxy does not respond', async () => {
    await using proxy = await startAll()
    proxy.reply = ''
    const abort = new StepAbort()
    const result = sender(proxy, '1.1.1.1').send(false, abort)
    abort.abort('shutdown')
    expect(await result).toEqual({ kind: 'aborted' })
  })
})
