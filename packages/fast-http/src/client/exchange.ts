import type { HeaderList } from '@integration-host/shared/http/header-list'

export interface HttpRequest {
  readonly method: string
  /** Path and query of the URL. They are sent byte for byte. */
  readonly path: string
  /**
   * Header fields, sent unchanged after `Host` and `Connection`. If a request has a body but no field that announces
   * the body, `Content-Length` or `Transfer-Encoding` is added.
   */
  readonly headers: HeaderList
  /** The parts of a body that is in memory, or a body that arrives while it is sent; `null` if there is no body. */
  readonly body: readonly Buffer[] | AsyncIterable<Buffer> | null
}

/** Controls a request in flight and its response. */
export interface Flow {
  /** Whether bytes of the request may have been sent. */
  readonly isSent: boolean
  pause(): void
  resume(): void
  /** Aborts the request. If bytes of the request may have been sent, its connection is closed. */
  abort(): void
}

/**
 * Receives the parts of a response in order. The last call is either `onEnd` or `onFailure`. Only one of these two
 * methods is called, and only once.
 */
export interface Receiver {
  /** Called before any byte of the request is sent. */
  onStart(flow: Flow): void
  /** An informational response (RFC 9110 §15.2) such as 103 Early Hints; called any number of times. */
  onInformation(status: number, headers: HeaderList): void
  /** Status and headers of the final response. */
  onHeaders(status: number, headers: HeaderList): void
  onData(chunk: Buffer): void
  /**
   * Called after each read of the socket, when all bytes of the read were passed on. Not called if the response is
   * complete.
   */
  onCaughtUp(): void
  onEnd(trailers: HeaderList): void
  onFailure(failure: HttpFailure): void
}

/**
 * The reason of a failure. `unreachable`: no connection could be opened, the connection broke, or the response is not
 * valid HTTP. `timeout`: no part of the body arrived in time. `unsendable`: the length of the request body differs from
 * its `Content-Length`.
 */
export type FailureKind = 'unreachable' | 'timeout' | 'unsendable'

/** The error of a request whose response has not arrived, or has arrived only in part. */
export class HttpFailure extends Error {
  override readonly name = 'HttpFailure'
  readonly kind: FailureKind

  constructor(kind: FailureKind, options?: ErrorOptions) {
    super(`no response: ${kind}`, options)
    this.kind = kind
  }
}
