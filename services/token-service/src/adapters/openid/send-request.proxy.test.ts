import { once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import { type AddressInfo, createServer as createTcpServer } from 'node:net'
import {
  chooseProxy,
  forwardProxySettings,
} from '@integration-host/shared/http/forward-proxy/forward-proxy'
import {
  startForwardProxy,
  type TestForwardProxy,
} from '@integration-host/shared/test-support/forward-proxy'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { NoResponse, sendRequest } from './send-request.ts'

let stack: AsyncDisposableStack
let proxy: TestForwardProxy
/** The number of requests that the provider received. */
let received: number
let respond: RequestListener

beforeEach(async () => {
  stack = new AsyncDisposableStack()
  received = 0
  const provider = createServer((request, response) => {
    received += 1
    respond(request, response)
  })
  stack.defer(() => void provider.close())
  stack.defer(() => provider.closeAllConnections())
  // A server that does not speak TLS, and so breaks the handshake.
  const broken = createTcpServer((socket) => socket.once('data', () => socket.end('no TLS')))
  stack.defer(() => void broken.close())
  const routes = {
    'provider.test:80': await portOf(provider),
    'provider.test:443': await portOf(broken),
  }
  proxy = stack.use(await startForwardProxy({ routes }))
})
afterEach(() => stack.disposeAsync())

async function portOf(server: Server | ReturnType<typeof createTcpServer>): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

function send(url = 'http://provider.test/token') {
  const address = `http://me:hidden@${proxy.address}`
  const settings = z
    .object(forwardProxySettings())
    .parse({ HTTPS_PROXY: address, HTTP_PROXY: address })
  const request = { method: 'POST', headers: {}, body: 'refresh_token=old', deadlineMs: 300 }
  return sendRequest(new URL(url), request, chooseProxy(settings))
}
const failure = async (response: Promise<unknown>): Promise<NoResponse> => {
  const error: unknown = await response.catch((reason: unknown) => reason)
  if (error instanceof NoResponse) return error
  throw new TypeError('the error is of another class')
}

describe('a token request through a forward proxy', () => {
  it('has a tunnel of its own, as it has a connection of its own without a proxy', async () => {
    respond = (request, response) => void response.end(request.headers.connection)
    expect([(await send()).text, (await send()).text]).toEqual(['close', 'close'])
    expect(proxy.requests.map(({ to }) => to)).toEqual(['provider.test:80', 'provider.test:80'])
  })

  it.each([
    ['requires credentials', 'HTTP/1.1 407 No\r\n\r\n', 'PROXY_AUTHENTICATION_REQUIRED'],
    ['refuses', 'HTTP/1.1 503 No\r\n\r\n', 'PROXY_REFUSED'],
    ['does not respond', '', 'PROXY_TIMEOUT'],
    ['is not an HTTP proxy', '220 mail.test ESMTP\r\n', 'PROXY_INVALID_RESPONSE'],
  ])('was not sent if the proxy %s', async (_, reply, reason) => {
    proxy.reply = reply
    const error = await failure(send())
    expect(error).toMatchObject({ wasSent: false, reason })
    expect(`${error.message}${String(error.cause)}`).not.toContain('hidden')
    expect(received).toBe(0)
  })

  it('was not sent if the proxy cannot be reached', async () => {
    await proxy[Symbol.asyncDispose]()
    expect(await failure(send())).toMatchObject({ wasSent: false, reason: 'PROXY_UNREACHABLE' })
  })

  it('was not sent if the TLS handshake with the provider fails in the tunnel', async () => {
    const error = await failure(send('https://provider.test/token'))
    expect(error.wasSent).toBe(false)
    expect(proxy.requests.map(({ to }) => to)).toEqual(['provider.test:443'])
  })

  it('may have been sent if the connection breaks after the tunnel was established', async () => {
    respond = (request) => void request.socket.destroy()
    expect(await failure(send())).toMatchObject({ wasSent: true })
    expect(received).toBe(1)
  })

  it('may have been sent if no response arrives before the deadline', async () => {
    respond = () => {}
    expect(await failure(send())).toMatchObject({ wasSent: true, reason: 'deadline' })
    expect(received).toBe(1)
  })
})
