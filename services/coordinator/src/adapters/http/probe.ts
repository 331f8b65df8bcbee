import { connect } from 'node:net'
import {
  type ProxyFor,
  withoutProxy,
} from '@integration-host/shared/http/forward-proxy/forward-proxy'
import {
  createProxiedFetch,
  type ProxiedFetch,
  openTunnel,
} from '@integration-host/shared/http/forward-proxy/tunnel'
import type { Probe } from '../../config.ts'

/**
 * Builds an internet probe. The probe of a URL resolves with true after any HTTP response. The probe of a TCP port
 * resolves with true if the port accepts a connection. With a forward proxy, the proxy opens this connection.
 */
export const createProbe =
  (probe: Probe, proxyFor: ProxyFor = withoutProxy) =>
  (signal: AbortSignal): Promise<boolean> =>
    probe.kind === 'http'
      ? responds(probe.url, createProxiedFetch(proxyFor), signal)
      : accepts(new URL(probe.url), proxyFor, signal)

async function responds(url: string, send: ProxiedFetch, signal: AbortSignal): Promise<boolean> {
  try {
    const { body } = await send(url, { method: 'HEAD', redirect: 'manual', signal })
    await body?.cancel()
    return true
  } catch {
    return false
  }
}

async function accepts(url: URL, proxyFor: ProxyFor, signal: AbortSignal): Promise<boolean> {
  const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80))
  const proxy = proxyFor(url)
  if (proxy === null) return opens(url.hostname.replace(/^\[|\]$/g, ''), port, signal)
  try {
    // As an http URL, so that the tunnel is opened without TLS in it.
    const tunnel = await openTunnel(proxy, new URL(`http://${url.hostname}:${port}`), { signal })
    tunnel.destroy()
    return true
  } catch {
    return false
  }
}

function opens(host: string, port: number, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve(false)
    const socket = connect({ host, port })
    const end = (isOpen: boolean): void => {
      signal.removeEventListener('abort', abort)
      socket.destroy()
      resolve(isOpen)
    }
    const abort = (): void => end(false)
    signal.addEventListener('abort', abort, { once: true })
    socket.once('connect', () => end(true))
    socket.once('error', () => end(false))
  })
}
