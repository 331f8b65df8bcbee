import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server } from 'node:http'
import { createServer as createHttps } from 'node:https'
import type { AddressInfo } from 'node:net'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import { z } from 'zod'
import {
  chooseProxy,
  forwardProxySettings,
  type ProxyFor,
} from '../src/http/forward-proxy/forward-proxy.ts'
import { createAuthority } from './certificates.ts'
import { startForwardProxy, type TestForwardProxy } from './forward-proxy.ts'

/** The origins `http://origin.test` and `https://origin.test`, which respond `hello`, and proxies that lead to them. */
export interface ProxiedOrigins extends AsyncDisposable {
  /** The host and path of each request to an origin. */
  readonly received: string[]
  /** The loopback port of the origin that uses plain http. */
  readonly port: number
  startProxy(isTls?: boolean): Promise<TestForwardProxy>
}

export async function startProxiedOrigins(): Promise<ProxiedOrigins> {
  await using stack = new AsyncDisposableStack()
  const authority = stack.use(await createAuthority())
  const before = getCACertificates()
  setDefaultCACertificates([...before, readFileSync(authority.caFile, 'utf8')])
  stack.defer(() => setDefaultCACertificates(before))
  const received: string[] = []
  const respond = (request: IncomingMessage, response: { end(text: string): void }): void => {
    received.push(`${request.headers.host}${request.url}`)
    response.end('hello')
  }
  const certified = async (name: string) => {
    const { certFile, keyFile } = await authority.issue(name, `DNS:${name},IP:127.0.0.1`)
    return { cert: readFileSync(certFile), key: readFileSync(keyFile) }
  }
  const portOf = async (server: Server): Promise<number> => {
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    stack.defer(() => {
      server.closeAllConnections()
      server.close()
    })
    return (server.address() as AddressInfo).port
  }
  const port = await portOf(createServer(respond))
  const secure = await portOf(createHttps(await certified('origin.test'), respond))
  const routes = {
    'origin.test:80': port,
    'origin.test:443': secure,
    'other.test:443': secure,
    '192.0.2.1:443': secure,
  }
  const owned = stack.move()
  return {
    received,
    port,
    startProxy: async (isTls = false) =>
      owned.use(
        await startForwardProxy({ routes, ...(isTls && { tls: await certified('proxy.test') }) }),
      ),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  }
}

/** Returns the function that selects this proxy for every origin that is not on this machine. */
export function through({ address }: TestForwardProxy, protocol = 'http'): ProxyFor {
  const url = `${protocol}://user:pass@${address}`
  return chooseProxy(z.object(forwardProxySettings()).parse({ HTTPS_PROXY: url, HTTP_PROXY: url }))
}

/** Resolves with the error of an attempt that has to fail. */
export async function failureOf(
  attempt: Promise<unknown>,
): Promise<Error & { readonly code?: string }> {
  try {
    await attempt
  } catch (error) {
    return error as Error
  }
  throw new Error('there was no failure')
}
