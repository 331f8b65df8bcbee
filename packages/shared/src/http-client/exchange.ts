import type { HeaderList } from './headers.ts'

/** The port to the accounting API: one request, its answer in pieces as they arrive. */
export interface Upstream {
  send(request: UpstreamRequest, receiver: Receiver): void
}

export interface UpstreamRequest {
  readonly method: string
  /** Path and query, sent byte for byte. */
  readonly path: string
  readonly headers: HeaderList
  readonly body: Buffer | AsyncIterable<Buffer> | null
}

/** Steers the answer that is coming. */
export interface Flow {
  pause(): void
  resume(): void
  /** Ends the exchange and its connection. */
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
  onFailure(failure: UpstreamFailure): void
}

/**
 * `unreachable`: no connection, or it broke; `timeout`: silence; `unsendable`: the request cannot be put
 * on the wire as it is.
 */
export type FailureKind = 'unreachable' | 'timeout' | 'unsendable'

export class UpstreamFailure extends Error {
  override readonly name = 'UpstreamFailure'
  readonly kind: FailureKind

  constructor(kind: FailureKind, options?: ErrorOptions) {
    super(`the accounting API did not answer: ${kind}`, options)
    this.kind = kind
  }
}
