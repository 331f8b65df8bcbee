/**
 * Sends one HTTP request to the provider by node:http(s) instead of fetch, because the refresh protocol must know
 * whether any byte of the request was sent, and fetch does not report this.
 *
 * Each request opens a new connection, because the outcome of a request would be unknown on a kept-alive connection
 * that the provider has just closed.
 */
import { request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import { reasonOf } from '@integration-host/shared/observability/health'
import { callTraced, tracing } from '@integration-host/shared/observability/telemetry'

/** The maximum number of bytes that are read from a response. A token response has a few kilobytes. */
const BODY_LIMIT_BYTES = 65_536

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
  readonly text: string
}

/**
 * The error for a request without a complete response. If `wasSent` is true, the provider may have processed the
 * request.
 */
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
 * Sends one request and reads the whole response. Redirects are not followed.
 *
 * @throws {NoResponse} if no complete response arrives before the deadline.
 */
export function sendRequest(url: URL, request: ProviderHttpRequest): Promise<ProviderHttpResponse> {
  if (tracing === undefined) return send(url, request)
  const traced = (added: Readonly<Record<string, string>>): Promise<ProviderHttpResponse> =>
    send(url, { ...request, headers: { ...request.headers, ...added } })
  return callTraced(tracing, { method: request.method, url }, traced, ({ status }) => status)
}

function send(url: URL, request: ProviderHttpRequest): Promise<ProviderHttpResponse> {
  return new Promise((resolve, reject) => {
    let wasSent = false
    const open = url.protocol === 'https:' ? requestHttps : requestHttp
    const outgoing = open(url, {
      method: request.method,
      agent: false,
      headers: {
        ...request.headers,
        'accept-encoding': 'identity',
        ...(request.body !== null && { 'content-length': String(Buffer.byteLength(request.body)) }),
      },
    })
    const settle = (finish: () => void): void => {
      clearTimeout(deadline)
      outgoing.destroy()
      finish()
    }
    const fail = (reason: string, cause?: unknown): void =>
      settle(() => reject(new NoResponse(reason, wasSent, cause === undefined ? {} : { cause })))
    // Node runs timers before it reads sockets. After a suspension of this process, a response that arrived in time may
    // therefore still be unread. It may contain the only copy of a new refresh token, so the socket is read before the
    // request is aborted.
    const deadline = setTimeout(() => setImmediate(() => fail('deadline')), request.deadlineMs)

    outgoing.once('error', (error) => fail(reasonOf(error), error))
    outgoing.once('socket', (socket) => {
      // With https, Node sends the first byte of the request after the TLS handshake. With http, Node sends the first
      // byte as soon as the TCP connection is established.
      const connected = url.protocol === 'https:' ? 'secureConnect' : 'connect'
      socket.once(connected, () => {
        wasSent = true
      })
    })
    outgoing.once('response', (response) => {
      const chunks: Buffer[] = []
      let size = 0
      response.on('data', (chunk: Buffer) => {
        size += chunk.length
        if (size > BODY_LIMIT_BYTES) return fail('the response is too large')
        chunks.push(chunk)
      })
      response.once('error', (error) => fail(reasonOf(error), error))
      response.once('aborted', () => fail('the response was cut off'))
      response.once('end', () => {
        if (!response.complete) return fail('the response was cut off')
        const headers = new Headers()
        for (const [name, values] of Object.entries(response.headersDistinct)) {
          for (const value of values ?? []) headers.append(name, value)
        }
        const text = Buffer.concat(chunks).toString('utf8')
        settle(() => resolve({ status: response.statusCode ?? 0, headers, text }))
      })
    })
    outgoing.end(request.body ?? undefined)
  })
}
