import type { HeaderList } from './header-list.ts'

export interface HttpRequest {
  readonly method: string
  /** Path and query, sent byte for byte. */
  readonly path: string
  /** Sent as they are, after `Host` and `Connection`; a length or chunking is added for a body without one. */
  readonly headers: HeaderList
  readonly body: Buffer | AsyncIterable<Buffer> | null
}

/** Steers the answer that is coming. */
export interface Flow {
  /** Something of the request may have left. */
  readonly isSent: boolean
  pause(): void
  resume(): void
  /** Ends the exchange, and its connection when something has left on it. */
  abort(): void
}

/** Exactly one of `onEnd` and `onFailure` is the last call. */
export interface Receiver {
  /** Before anything is sent. */
  onStart(flow: Flow): void
  /** An answer before the answer (RFC 9110 §15.2), such as 103 Early Hints; any number of them. */
  onInformation(status: number, headers: HeaderList): void
  /** The final status line and headers. */
  onHeaders(status: number, headers: HeaderList): void
  onData(chunk: Buffer): void
  /** All that has arrived so far was told, and more is to come. */
  onCaughtUp(): void
  onEnd(trailers: HeaderList): void
  onFailure(failure: HttpFailure): void
}

/**
 * `unreachable`: no connection, or it broke; `timeout`: silence; `unsendable`: the request cannot be put
 * on the wire as it is.
 */
export type FailureKind = 'unreachable' | 'timeout' | 'unsendable'

/** There is no answer, or half of one. */
export class HttpFailure extends Error {
  override readonly name = 'HttpFailure'
  readonly kind: FailureKind

  constructor(kind: FailureKind, options?: ErrorOptions) {
    super(`no answer: ${kind}`, options)
    this.kind = kind
  }
}
