/**
 * Opens connections to origins through a forward proxy: a CONNECT request (RFC 9110 §9.3.6), then TLS to the origin. The
 * proxy therefore sees the host and port of an origin, but no request, unless the origin uses plain http.
 */
import { once } from 'node:events'
import { connect as connectTcp, isIP, isIPv6, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { reasonOf } from '../../observability/health.ts'
import type { ForwardProxy, ProxyFor } from './forward-proxy.ts'

/**
 * The reasons why a forward proxy opened no tunnel. `PROXY_UNREACHABLE`: no connection to the proxy was established.
 * `PROXY_TIMEOUT`: the proxy did not respond in time. `PROXY_AUTHENTICATION_REQUIRED`: it responded with 407.
 * `PROXY_REFUSED`: it responded with another status than 2xx. `PROXY_INVALID_RESPONSE`: it did not respond as an HTTP
 * proxy.
 */
export type ForwardProxyFailure =
  | 'PROXY_UNREACHABLE'
  | 'PROXY_TIMEOUT'
  | 'PROXY_AUTHENTICATION_REQUIRED'
  | 'PROXY_REFUSED'
  | 'PROXY_INVALID_RESPONSE'

/**
 * The error of a forward proxy that opened no tunnel. No byte was sent to the origin. The message contains the host and
 * port of the proxy, but neither its credentials nor text from its response.
 */
export class ForwardProxyError extends Error {
  override readonly name = 'ForwardProxyError'
  readonly code: ForwardProxyFailure

  /** `address` is the proxy's `host:port`; `found` continues the sentence "the forward proxy …". */
  constructor(code: ForwardProxyFailure, address: string, found: string, options?: ErrorOptions) {
    super(`the forward proxy ${address} ${found}`, options)
    this.code = code
  }
}

/** The maximum size of the status line and headers of a response to CONNECT. */
const MAX_HEAD_BYTES = 16_384
/** The interval of TCP keep-alive. It detects a proxy that has vanished without closing the connection. */
const TCP_KEEP_ALIVE_MS = 60_000
const TIMEOUT_MS = 10_000

export interface TunnelOptions {
  /** The time limit for the connection to the proxy, its response to CONNECT, and the TLS handshake with the origin. */
  readonly timeoutMs?: number
  /** Aborting this signal ends the attempt. It has no effect on an open tunnel. */
  readonly signal?: AbortSignal
  /** The IP address that the proxy must connect to, in place of the address to which it resolves the host name. */
  readonly address?: string
}

/** Opens a connection to an origin. The promise resolves when a request can be sent. */
export type ConnectSocket = (options: TunnelOptions) => Promise<Socket>

/** Returns the function that opens tunnels to `origin`; `undefined` if requests to it are sent directly. */
export function tunnelTo(proxyFor: ProxyFor, origin: URL): ConnectSocket | undefined {
  const proxy = proxyFor(origin)
  return proxy === null ? undefined : (options) => openTunnel(proxy, origin, options)
}

/**
 * Opens a tunnel and, for an https origin, establishes TLS in it. No byte of a request is sent to the origin before the
 * promise resolves.
 *
 * @throws {ForwardProxyError} if the proxy opens no tunnel; otherwise the error of the TLS handshake with the origin.
 */
export async function openTunnel(
  proxy: ForwardProxy,
  origin: URL,
  { timeoutMs = TIMEOUT_MS, signal, address }: TunnelOptions = {},
): Promise<Socket> {
  const isTls = origin.protocol === 'https:'
  const host = origin.hostname.replace(/^\[|\]$/g, '')
  const to = authority(address ?? host, Number(origin.port || (isTls ? 443 : 80)))
  const limit = new AbortController()
  const abort = (): void => limit.abort()
  if (signal?.aborted === true) abort()
  signal?.addEventListener('abort', abort, { once: true })
  const timer = setTimeout(abort, timeoutMs)
  const opened: Socket[] = []
  try {
    const tunnel = await throughProxy(proxy, to, limit.signal, opened)
    if (!isTls) return tunnel
    const secure = connectTls({
      socket: tunnel,
      // Not connected to, but the certificate is checked against it. Without it, Node would take the name of the proxy.
      host,
      ...(isIP(host) === 0 && { servername: host }),
      ALPNProtocols: ['http/1.1'],
    })
    opened.push(ignoreLateErrors(secure))
    // If the proxy is connected by TLS, Node does not close that connection together with the inner one.
    secure.once('close', () => tunnel.destroy())
    await once(secure, 'secureConnect', { signal: limit.signal }).catch((error: unknown) => {
      if (limit.signal.aborted) throw Object.assign(new Error('timeout'), { code: 'ETIMEDOUT' })
      throw error
    })
    return secure
  } catch (error) {
    for (const socket of opened) socket.destroy()
    throw error
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', abort)
  }
}

/** Returns a connection to the proxy that has responded to CONNECT with 2xx. Adds each socket to `opened` at once. */
async function throughProxy(
  proxy: ForwardProxy,
  to: string,
  signal: AbortSignal,
  opened: Socket[],
): Promise<Socket> {
  const { host, port, isTls, address } = proxy
  const servername = isTls && isIP(host) === 0 ? { servername: host } : {}
  const socket = isTls
    ? connectTls({ host, port, ...servername, ALPNProtocols: ['http/1.1'] })
    : connectTcp({ host, port })
  opened.push(ignoreLateErrors(socket))
  socket.setNoDelay(true)
  socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS)
  try {
    await once(socket, isTls ? 'secureConnect' : 'connect', { signal })
    socket.write(connectRequest(proxy, to), 'latin1')
    checkResponse(await readHead(socket, address, signal), address)
    return socket
  } catch (error) {
    if (error instanceof ForwardProxyError) throw error
    if (signal.aborted)
      throw new ForwardProxyError('PROXY_TIMEOUT', address, 'did not respond in time')
    const found = `cannot be reached (${reasonOf(error)})`
    throw new ForwardProxyError('PROXY_UNREACHABLE', address, found, { cause: error })
  }
}

/** Prevents that a further error of a socket, which no one awaits, ends the OS process. */
const ignoreLateErrors = (socket: Socket): Socket => socket.on('error', () => {})

const authority = (host: string, port: number): string =>
  `${isIPv6(host) ? `[${host}]` : host}:${port}`

const connectRequest = ({ authorization }: ForwardProxy, to: string): string =>
  `CONNECT ${to} HTTP/1.1\r\nHost: ${to}\r\n` +
  (authorization === null ? '' : `Proxy-Authorization: ${authorization.reveal()}\r\n`) +
  '\r\n'

/**
 * Returns the status line and headers of the response. Bytes after them are an error, because no origin sends anything
 * before its client does.
 */
function readHead(socket: Socket, address: string, signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    let head = ''
    const settle = (end: () => void): void => {
      socket.off('data', onData).off('error', onError).off('close', onClose)
      signal.removeEventListener('abort', onAbort)
      end()
    }
    const onError = (error: Error): void => settle(() => reject(error))
    const invalid = (found: string): void =>
      onError(new ForwardProxyError('PROXY_INVALID_RESPONSE', address, found))
    const onData = (chunk: Buffer): void => {
      head += chunk.toString('latin1')
      const end = head.indexOf('\r\n\r\n')
      if (!isBeginning(head)) invalid('did not respond as an HTTP proxy')
      else if (end === -1 ? head.length > MAX_HEAD_BYTES : end > MAX_HEAD_BYTES)
        invalid('responded with headers that are too large')
      else if (end !== -1) settle(() => resolve(head))
    }
    const onClose = (): void => invalid('closed the connection without a response')
    const onAbort = (): void => onError(new Error('aborted'))
    signal.addEventListener('abort', onAbort, { once: true })
    socket.on('data', onData).on('error', onError).on('close', onClose)
    if (signal.aborted) onAbort()
  })
}

const STATUS_LINE = /^HTTP\/1\.[01] ([1-5]\d\d)[ \r]/

/** Whether the text is the beginning of a status line or begins with one. */
const isBeginning = (head: string): boolean =>
  head.length < 13 ? 'HTTP/1.'.startsWith(head.slice(0, 7)) : STATUS_LINE.test(head)

function checkResponse(head: string, address: string): void {
  const status = Number(STATUS_LINE.exec(head)?.[1])
  if (status === 407)
    throw new ForwardProxyError(
      'PROXY_AUTHENTICATION_REQUIRED',
      address,
      'rejected the credentials in its URL, or requires some (status 407)',
    )
  if (status < 200 || status > 299)
    throw new ForwardProxyError(
      'PROXY_REFUSED',
      address,
      `refused the connection (status ${status})`,
    )
  if (head.indexOf('\r\n\r\n') !== head.length - 4)
    throw new ForwardProxyError(
      'PROXY_INVALID_RESPONSE',
      address,
      'sent bytes of its own into the tunnel',
    )
}

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
