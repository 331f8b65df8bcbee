import type { ProxyFor } from './forward-proxy.ts'
import { openTunnel } from './tunnel.ts'

export type ProxiedFetch = (url: string | URL, init?: RequestInit) => Promise<Response>

/**
 * Returns a `fetch` that sends each request through the forward proxy of its URL. A redirect that is followed uses the
 * proxy of the first URL, so the callers do not follow redirects. If the proxy opens no tunnel, the call rejects with a `ForwardProxyError`.
 */
export function createProxiedFetch(proxyFor: ProxyFor): ProxiedFetch {
  return async (address, init) => {
    const url = new URL(address)
    const proxy = proxyFor(url)
    if (proxy === null) return fetch(url, init)
    const socket = await openTunnel(proxy, url, init?.signal ? { signal: init.signal } : {})
    // undici is loaded only if a proxy is used, because it takes memory. Its own fetch is called, because Node's fetch
    // works only with the dispatchers of the release of undici that Node contains.
    const { Agent, fetch: fetchWith } = await import('undici')
    const dispatcher = new Agent({
      pipelining: 0, // the tunnel is closed after the response, because few calls use fetch
      // undici does not support a connector that calls back at once.
      connect: (_, callback) => queueMicrotask(() => callback(null, socket)),
    })
    const options: object = { ...init, dispatcher }
    // The types of undici and of Node describe the same classes of the fetch standard.
    return (fetchWith as unknown as ProxiedFetch)(url, options)
  }
}
