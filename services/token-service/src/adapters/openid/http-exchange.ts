/**
 * One HTTP exchange with the provider, by node:http(s) and not by fetch, because custody hangs on a question
 * that fetch does not answer: did a byte of the request leave? Each call has a connection of its own, so
 * that a kept-alive one which the provider has just closed cannot make the outcome unknown.
 */
import { request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import { reasonOf } from '@integration-host/shared/health'
import { callTraced, tracing } from '@integration-host/shared/telemetry'

/** A token response has a few kilobytes; more is no token response. */
const BODY_LIMIT_BYTES = 65_536

export interface ExchangeRequest {
  readonly method: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | null
  /** From now to the last byte of the answer. */
  readonly deadlineMs: number
}

export interface HttpAnswer {
  readonly status: number
  readonly headers: Headers
  readonly text: string
}

/** The call has no whole answer. `wasSent`: the provider may have acted on it. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer'
  readonly wasSent: boolean
  readonly reason: string

  constructor(reason: string, wasSent: boolean, options?: ErrorOptions) {
    super(`no answer: ${reason}`, options)
    this.reason = reason
    this.wasSent = wasSent
  }
}

/** Redirects are not followed; the answer is read whole. @throws {NoAnswer} */
export function exchangeHttp(url: URL, request: ExchangeRequest): Promise<HttpAnswer> {
  if (tracing === undefined) return send(url, request)
  const traced = (added: Readonly<Record<string, string>>): Promise<HttpAnswer> =>
    send(url, { ...request, headers: { ...request.headers, ...added } })
  return callTraced(tracing, { method: request.method, url }, traced, ({ status }) => status)
}

function send(url: URL, request: ExchangeRequest): Promise<HttpAnswer> {
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
      settle(() => reject(new NoAnswer(reason, wasSent, cause === undefined ? {} : { cause })))
    const deadline = setTimeout(() => fail('deadline'), request.deadlineMs)

    outgoing.once('error', (error) => fail(reasonOf(error), error))
    outgoing.once('socket', (socket) => {
      // Before the handshake is through nothing of the request is on the wire.
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
        if (size > BODY_LIMIT_BYTES) return fail('the answer is too large')
        chunks.push(chunk)
      })
      response.once('error', (error) => fail(reasonOf(error), error))
      response.once('aborted', () => fail('the answer was cut off'))
      response.once('end', () => {
        if (!response.complete) return fail('the answer was cut off')
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
