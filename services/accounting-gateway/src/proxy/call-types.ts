import type { IncomingHttpHeaders } from 'node:http'
import type { HeaderList } from '@integration-host/shared/http/header-list'
import { IntegrationError } from '@integration-host/shared/errors'
import type { RequestBody } from './request-body.ts'
import type { CompanyTarget } from './target.ts'
import type { HttpFailure, HttpRequest, Receiver } from '@integration-host/fast-http/exchange'

/**
 * The parts of a caller's request that the proxy uses. Implemented by Node's `IncomingMessage` and by the requests of
 * the fast path.
 */
export interface CallerRequest {
  readonly method?: string | undefined
  readonly rawHeaders: HeaderList
  readonly headers: IncomingHttpHeaders
  readonly httpVersion: string
  /** True if the whole request, with its body, has arrived. */
  readonly complete: boolean
}

/** A response to a caller. Implemented by Node's `ServerResponse` and by the responses of the fast path. */
export interface CallerResponse {
  readonly headersSent: boolean
  readonly writableEnded: boolean
  readonly writableFinished: boolean
  readonly destroyed: boolean
  readonly statusCode: number
  /** The connection's socket; `null` while an earlier response on the same connection is incomplete (pipelining). */
  readonly socket: object | null
  /** Sends an informational (1xx) response. @throws if a header is not allowed in HTTP. */
  writeInformation(status: number, headers: readonly string[]): unknown
  /** Sets the status and the headers of the response. @throws if the status or a header is not allowed in HTTP. */
  writeHead(status: number, headers: string[]): unknown
  flushHeaders(): void
  /**
   * Writes a part of the body. Returns false if the write buffer is full; the event `drain` reports when there is room
   * again.
   */
  write(chunk: Buffer): boolean
  addTrailers(trailers: [name: string, value: string][]): void
  end(chunk?: Buffer | string): unknown
  /** Closes the connection. If the response is incomplete, the caller learns this from the closed connection. */
  destroy(): unknown
  /**
   * `close` is emitted when the connection is closed or the response is complete. `drain` is emitted when the write
   * buffer has room again.
   */
  on(event: 'close' | 'drain', listener: () => void): unknown
  once(event: 'close', listener: () => void): unknown
  off(event: 'close' | 'drain', listener: () => void): unknown
}

/** A caller's request to `/v3/company/…` that the gateway has accepted and forwards to the accounting API. */
export interface CompanyCall {
  readonly request: CallerRequest
  readonly response: CallerResponse
  /** The request body; `null` if the request has none. */
  readonly body: RequestBody | null
  readonly target: CompanyTarget
  /** The id of the caller's key, for the log. */
  readonly keyId: string
  /**
   * The id of the call. The gateway sends it to the caller and logs it, so that an operator can find the log entry of a
   * response.
   */
  readonly requestId: string
}

/** The result of a forwarded call, for the log and the metrics. */
export interface CallResult {
  /**
   * The error that must still be sent to the caller; `null` if a response was sent or the caller has closed its
   * connection.
   */
  readonly error: IntegrationError | null
  /** True if the caller closed its connection before the response was complete. */
  readonly isAbandoned: boolean
  /** True if the response was truncated after the response head had been sent. */
  readonly isCut: boolean
  readonly attempts: number
  /** Milliseconds for which the call waited for a permit, a token, the request body or the next attempt. */
  readonly waitedMs: number
  /** Milliseconds between sending a request upstream and receiving the response head, summed over all attempts. */
  readonly upstreamMs: number
  /**
   * The header `intuit_tid` of the last upstream response, by which Intuit's support finds a request; `null` if no
   * response had the header.
   */
  readonly traceId: string | null
  /** The beginning of the body of a relayed response with a status of 400 or above; `null` if there is none. */
  readonly errorStart: Buffer | null
}

/** Returns the error for the caller after an attempt failed without a response and is not repeated. */
export function upstreamError(cause: HttpFailure): IntegrationError {
  switch (cause.kind) {
    case 'unsendable':
      return new IntegrationError('invalid_request', 'the request cannot be sent as it is', {
        cause,
      })
    case 'timeout':
      return new IntegrationError('upstream_timeout', 'the accounting API timed out', { cause })
    case 'unreachable':
      return new IntegrationError(
        'upstream_unreachable',
        'the accounting API sent no valid response',
        { cause },
      )
  }
}

/**
 * Returns the error to send to the caller. An error without one of the project's error codes is reported as an internal
 * error of the gateway.
 */
export const reportable = (error: Error): IntegrationError =>
  error instanceof IntegrationError
    ? error
    : new IntegrationError('internal_error', 'the call could not be forwarded', { cause: error })

/** Returns the error of a call whose caller has closed its connection. No response can be sent to such a caller. */
export class CallerGone extends Error {
  override readonly name = 'CallerGone'
}

/** The port to the accounting API. `send` sends one request and passes the parts of the response to `receiver`. */
export interface Upstream {
  send(request: HttpRequest, receiver: Receiver): void
}
