import type { ProxyFor } from './forward-proxy.ts'
import { openTunnel } from './tunnel.ts'

export type ProxiedFetch = (url: string | URL, init?: RequestInit) => Promise<Response>

/**
 * Returns a `fetch` that sends each request through the forward proxy of its URL. The tunnel of a request leads to one
 * origin, so a redirect fails unless `redirect` says `manual`. If the proxy opens no tunnel, the call rejects with a
 * `ForwardProxyError`.
 */
export function createProxiedFetch(proxyFor: ProxyFor): ProxiedFetch {
  return async (address, init) => {
    const url = new URL(address)
    const proxy = proxyFor(url)
    if (proxy === null) return fetch(url, init)
    // undici is loaded only if a proxy is used, because it takes memory. Its own fetch is called, because Node's fetch
    // works only with the dispatchers of the release of undici that Node contains.
    const { Agent, fetch: fetchWith } = await import('undici')
    const socket = await openTunnel(proxy, url, init?.signal ? { signal: init.signal } : {})
    const dispatcher = new Agent({
      pipelining: 0, // the tunnel is closed after the response, because few calls use fetch
      // undici does not support a connector that calls back at once.
      connect: (_, callback) => queueMicrotask(() => callback(null, socket)),
    })
    const options: object = { redirect: 'error', ...init, dispatcher }
    try {
      // The types of undici and of Node describe the same classes of the fetch standard.
      return await (fetchWith as unknown as ProxiedFetch)(url, options)
    } catch (error) {
      socket.destroy() // undici closes it only if it has taken it over
      throw error
    }
  }
}
