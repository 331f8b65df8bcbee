/**
 * Sends one HTTP request to the provider by node:http(s) instead of fetch, because the refresh protocol must know
 * whether any byte of the request was sent, and fetch does not report this.
 *
 * Each request opens a new connection, or a new tunnel through a forward proxy, because the outcome of a request would be unknown on a kept-alive connection
 * that the provider has just closed.
 *
 * A response may contain the only copy of a new refresh token. It is therefore returned as far as it arrived, even if
 * its end is missing or its form is not the one that was requested.
 */
import { request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import type { Socket } from 'node:net'
import { contentCodings, decodeContent } from '@integration-host/shared/http/content-coding'
import {
  type ProxyFor,
  withoutProxy,
} from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { openTunnel } from '@integration-host/shared/http/forward-proxy/tunnel'
import { reasonOf } from '@integration-host/shared/observability/health'
import { callTraced, tracing } from '@integration-host/shared/observability/telemetry'

/** The maximum number of bytes that are read from a response, before and after it is decompressed. */
const BODY_LIMIT_BYTES = 65_536
/** The maximum size of the status line and headers. Node's default of 16 KiB is less than some proxies send. */
const HEAD_LIMIT_BYTES = 65_536

export interface ProviderHttpRequest {
  readonly method: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | null
  /** Milliseconds from the call to the last byte of the response. */
  readonly deadlineMs: number
}

export interface ProviderHttpResponse {
  readonly status: number
  readonly headers: Headers
  /** The decompressed body as text, without a byte order mark and without NUL. */
  readonly text: string
  /** The reason why `text` is only the beginning of the body; `null` if it is the whole body. */
  readonly cutOff: string | null
  /** What is unusual about the bytes of the body, in constant words. */
  readonly oddities: readonly string[]
}

/** Whether the status says that the request has succeeded (RFC 9110 §15.3). */
export const isSuccess = (status: number): boolean => status >= 200 && status < 300

/** The error for a request without a response. If `wasSent` is true, the provider may have processed the request. */
export class NoResponse extends Error {
  override readonly name = 'NoResponse'
  readonly wasSent: boolean
  readonly reason: string

  constructor(reason: string, wasSent: boolean, options?: ErrorOptions) {
    super(`no response: ${reason}`, options)
    this.reason = reason
    this.wasSent = wasSent
  }
}

/**
 * Sends one request and reads the response. Redirects are not followed. If the status of a response has arrived, the
 * function returns the response as far as it arrived before the deadline (`cutOff`).
 *
 * @throws {NoResponse} if the status of a response did not arrive before the deadline.
 */
export function sendRequest(
  url: URL,
  request: ProviderHttpRequest,
  proxyFor: ProxyFor = withoutProxy,
): Promise<ProviderHttpResponse> {
  if (tracing === undefined) return send(url, request, proxyFor)
  const traced = (added: Readonly<Record<string, string>>): Promise<ProviderHttpResponse> =>
    send(url, { ...request, headers: { ...request.headers, ...added } }, proxyFor)
  return callTraced(tracing, { method: request.method, url }, traced, ({ status }) => status)
}

/**
 * The share of the deadline within which the tunnel must be open. A token that is sent later may be rotated by a response
 * for which no time is left, whereas a request that was not sent rotates nothing.
 */
const TUNNEL_SHARE = 0.7

async function send(
  url: URL,
  request: ProviderHttpRequest,
  proxyFor: ProxyFor,
): Promise<ProviderHttpResponse> {
  const until = performance.now() + request.deadlineMs
  const tunnel = await tunnelTo(url, request.deadlineMs * TUNNEL_SHARE, proxyFor)
  const deadlineMs = Math.max(0, until - performance.now())
  const { status, headers, body, cutOff } = await receive(url, { ...request, deadlineMs }, tunnel)
  const { text, oddities, decodedCutOff } = await textOf(body, headers.get('content-encoding'))
  return {
    status,
    headers,
    text,
    cutOff: cutOff ?? decodedCutOff,
    oddities,
  }
}

/**
 * Opens the tunnel of a request; `null` if the request is sent directly.
 *
 * @throws {NoResponse} if no tunnel is established. In this case no byte of the request was sent.
 */
async function tunnelTo(url: URL, timeoutMs: number, proxyFor: ProxyFor): Promise<Socket | null> {
  const proxy = proxyFor(url)
  if (proxy === null) return null
  try {
    return await openTunnel(proxy, url, { timeoutMs })
  } catch (error) {
    throw new NoResponse(reasonOf(error), false, { cause: error })
  }
}

interface Received {
  readonly status: number
  readonly headers: Headers
  readonly body: Buffer
  readonly cutOff: string | null
}

const TOO_LARGE = 'the response is too large'
const CUT_OFF = 'the response was cut off'

function receive(url: URL, request: ProviderHttpRequest, tunnel: Socket | null): Promise<Received> {
  return new Promise((resolve, reject) => {
    // A tunnel is established already, with its TLS. Node sends the request at once.
    let wasSent = tunnel !== null
    let head: { readonly status: number; readonly headers: Headers } | null = null
    const chunks: Buffer[] = []
    let size = 0
    const open = url.protocol === 'https:' ? requestHttps : requestHttp
    const outgoing = open(url, {
      method: request.method,
      ...(tunnel === null ? { agent: false } : { createConnection: () => tunnel }),
      maxHeaderSize: HEAD_LIMIT_BYTES,
      headers: {
        ...request.headers,
        'accept-encoding': 'identity',
        ...(request.body !== null && { 'content-length': String(Buffer.byteLength(request.body)) }),
      },
    })
    /** `cutOff` is the reason why the response is incomplete; `null` if it is complete. */
    const finish = (cutOff: string | null, cause?: unknown): void => {
      clearTimeout(deadline)
      outgoing.destroy()
      // Node's HTTP parser does not deliver the packet that it rejects, for example because of a second Content-Length.
      const rejected = rejectedPacket(cause)
      const received = head ?? headOf(rejected)
      if (received !== null)
        resolve({ ...received, body: Buffer.concat([...chunks, rejected]), cutOff })
      else {
        const options = cause === undefined ? {} : { cause }
        reject(new NoResponse(cutOff ?? CUT_OFF, wasSent, options))
      }
    }
    // Node runs timers before it reads sockets. After a suspension of this process, a response that arrived in time may
    // therefore still be unread. It may contain the only copy of a new refresh token, so the socket is read before the
    // request is aborted.
    const deadline = setTimeout(() => setImmediate(() => finish('deadline')), request.deadlineMs)

    outgoing.on('error', (error) => finish(reasonOf(error), error))
    outgoing.once('socket', (socket) => {
      // With https, Node sends the first byte of the request after the TLS handshake. With http, Node sends the first
      // byte as soon as the TCP connection is established.
      if (tunnel !== null) return
      const connected = url.protocol === 'https:' ? 'secureConnect' : 'connect'
      socket.once(connected, () => {
        wasSent = true
      })
    })
    outgoing.once('response', (response) => {
      const headers = new Headers()
      for (const [name, values] of Object.entries(response.headersDistinct)) {
        for (const value of values ?? []) headers.append(name, value)
      }
      head = { status: response.statusCode ?? 0, headers }
      response.on('data', (chunk: Buffer) => {
        chunks.push(chunk.subarray(0, BODY_LIMIT_BYTES - size))
        size += chunk.length
        if (size > BODY_LIMIT_BYTES) finish(TOO_LARGE)
      })
      response.on('error', (error) => finish(reasonOf(error), error))
      response.once('aborted', () => finish(CUT_OFF))
      response.once('end', () => finish(response.complete ? null : CUT_OFF))
    })
    outgoing.end(request.body ?? undefined)
  })
}

/** Returns the packet that Node's HTTP parser has rejected with `error`; an empty buffer if it is another error. */
function rejectedPacket(error: unknown): Buffer {
  const packet = (error as { readonly rawPacket?: unknown } | undefined)?.rawPacket
  return packet instanceof Uint8Array ? Buffer.from(packet.subarray(0, BODY_LIMIT_BYTES)) : EMPTY
}

const EMPTY = Buffer.alloc(0)

/** Returns the status of a response that Node's HTTP parser has rejected, without its headers; `null` if it has none. */
function headOf(packet: Buffer): { readonly status: number; readonly headers: Headers } | null {
  const status = /^HTTP\/1\.[01] ([1-5]\d\d)\b/.exec(packet.toString('latin1', 0, 16))?.[1]
  return status === undefined ? null : { status: Number(status), headers: new Headers() }
}

/** The first bytes of a compressed body, by content coding. The other codings have no such mark. */
const MARKS = {
  gzip: Buffer.from([0x1f, 0x8b]),
  zstd: Buffer.from([0x28, 0xb5, 0x2f, 0xfd]),
} as const

const namesTokens = (bytes: Buffer): boolean =>
  /(?:access|refresh)_?token/i.test(bytes.toString('latin1').replaceAll('\0', ''))

/**
 * Returns the text of a body. The body is also decompressed if it is compressed although `Content-Encoding` does not
 * say so, and it is read as it is if it is not compressed although the header says so.
 */
async function textOf(
  body: Buffer,
  contentEncoding: string | null,
): Promise<{
  readonly text: string
  readonly oddities: readonly string[]
  readonly decodedCutOff: string | null
}> {
  const oddities: string[] = []
  let bytes = body
  let decodedCutOff: string | null = null
  const decode = async (codings: readonly string[]): Promise<void> => {
    const decoded = await decodeContent(bytes, codings, BODY_LIMIT_BYTES)
    oddities.push(
      decoded.problem === null
        ? 'the body is compressed'
        : `the body is compressed: ${decoded.problem}`,
    )
    if (decoded.problem === 'too large') decodedCutOff = TOO_LARGE
    if (decoded.problem === 'cut off') decodedCutOff = CUT_OFF
    const isGarbage = decoded.problem === 'invalid' && !namesTokens(decoded.bytes)
    if (decoded.bytes.length > 0 && !isGarbage) bytes = decoded.bytes
  }
  const named = contentCodings(contentEncoding)
  if (named.length > 0 && body.length > 0) await decode(named)
  // Twice, because each proxy on the way may have compressed the body.
  for (const [coding, mark] of [...Object.entries(MARKS), ...Object.entries(MARKS)])
    if (bytes.subarray(0, mark.length).equals(mark)) await decode([coding])
  for (const coding of ['deflate', 'br']) {
    if (namesTokens(bytes)) break
    const decoded = await decodeContent(bytes, [coding], BODY_LIMIT_BYTES)
    if (namesTokens(decoded.bytes)) await decode([coding])
  }

  const mark = bytes.subarray(0, 2).toString('hex')
  const encoding = mark === 'fffe' ? 'utf-16le' : mark === 'feff' ? 'utf-16be' : 'utf-8'
  const decoded = new TextDecoder(encoding, { ignoreBOM: true }).decode(bytes)
  // Tokens consist of ASCII characters. In UTF-16 and UTF-32 these differ from ASCII only by NUL.
  const text = decoded.replaceAll('\0', '')
  const hasMark = text.startsWith('\ufeff')
  if (hasMark) oddities.push('the body begins with a byte order mark')
  if (encoding !== 'utf-8' || text.length < decoded.length) oddities.push('the body is not UTF-8')
  return { text: hasMark ? text.slice(1) : text, oddities, decodedCutOff }
}
