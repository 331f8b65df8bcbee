import type { ProxyFor } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import {
  ForwardProxyError,
  type ForwardProxyFailure,
  openTunnel,
} from '@integration-host/shared/http/forward-proxy/tunnel'
import { type CheckResult, ok, problem } from '@integration-host/shared/observability/checks'

const CHECK = 'forward proxy'

/** Lets the forward proxy of a URL open a connection to it. Returns no result if the URL is reached directly. */
export async function examineForwardProxy(
  proxyFor: ProxyFor,
  url: URL,
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  const proxy = proxyFor(url)
  if (proxy === null) return []
  try {
    const tunnel = await openTunnel(proxy, url, { signal })
    tunnel.destroy()
  } catch (error) {
    // Any other error is one of the TLS connection to the provider. The check of the provider reports it.
    if (error instanceof ForwardProxyError)
      return [problem(CHECK, error.message, remedyOf(error.code, url))]
  }
  return [ok(CHECK, `${proxy.address} connects to ${url.host}`)]
}

function remedyOf(code: ForwardProxyFailure, url: URL): string {
  const setting = url.protocol === 'https:' ? 'HTTPS_PROXY' : 'HTTP_PROXY'
  switch (code) {
    case 'PROXY_UNREACHABLE':
    case 'PROXY_TIMEOUT':
      return `Check that ${setting} is right and the proxy is running, or add the host to NO_PROXY.`
    case 'PROXY_AUTHENTICATION_REQUIRED':
      return `Put user name and password into the URL of ${setting}_FILE.`
    case 'PROXY_REFUSED':
      return `Let the proxy accept CONNECT to ${url.host} from this machine.`
    case 'PROXY_INVALID_RESPONSE':
      return `Set ${setting} to the address of an HTTP forward proxy.`
  }
}
