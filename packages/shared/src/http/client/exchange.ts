import type { HeaderList } from './header-list.ts'

export interface HttpRequest {
  readonly method: string
  /** Path and query, sent byte for byte. */
  readonly path: string
  /** Sent unchanged after `Host` and `Connection`. `Content-Length` or `Transfer-Encoding` is added if a body has neither. */
  readonly headers: HeaderList
  readonly body: Buffer | AsyncIterable<Buffer> | null
}

/** Controls a request in flight and its response. */
export interface Flow {
  /** Bytes of the request may have been sent. */
  readonly isSent: boolean
  pause(): void
  resume(): void
  /** Aborts the request, and closes its connection if bytes of the request may have been sent on it. */
  abort(): void
}

/** Receives the parts of a response in their order. The last call is either `onEnd` or `onFailure`, exactly once. */
export interface Receiver {
  /** Called before anything is sent. */
  onStart(flow: Flow): void
  /** An informational response (RFC 9110 §15.2) such as 103 Early Hints; called any number of times. */
  onInformation(status: number, headers: HeaderList): void
  /** Status and headers of the final response. */
  onHeaders(status: number, headers: HeaderList): void
  onData(chunk: Buffer): void
  /** Called after each read of the socket, once its bytes have been passed on, unless the response is complete. */
  onCaughtUp(): void
  onEnd(trailers: HeaderList): void
  onFailure(failure: HttpFailure): void
}

/**
 * `unreachable`: no connection, a broken one, or a response that is not valid HTTP; `timeout`: no part of the body
 * arrived in time; `unsendable`: the request cannot be sent as it is.
 */
export type FailureKind = 'unreachable' | 'timeout' | 'unsendable'

/** There is no response, or only a part of one. */
export class HttpFailure extends Error {
  override readonly name = 'HttpFailure'
  readonly kind: FailureKind

  constructor(kind: FailureKind, options?: ErrorOptions) {
    super(`no response: ${kind}`, options)
    this.kind = kind
  }
}
