import type { IncomingHttpHeaders } from 'node:http'
import type { HeaderList } from '@integration-host/shared/http/header-list'

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
