import type { IncomingHttpHeaders } from 'node:http'
import type { HeaderList } from '@integration-host/shared/http/client/header-list'

/** The parts of a caller's request that a call needs. Node's `IncomingMessage` implements it, and so does the fast path. */
export interface CallerRequest {
  readonly method?: string | undefined
  readonly rawHeaders: HeaderList
  readonly headers: IncomingHttpHeaders
  readonly httpVersion: string
  /** The whole request, with its body, has arrived. */
  readonly complete: boolean
}

/** The response to a caller. Node's `ServerResponse` implements it, and so does the fast path. */
export interface CallerResponse {
  readonly headersSent: boolean
  readonly writableEnded: boolean
  readonly writableFinished: boolean
  readonly destroyed: boolean
  readonly statusCode: number
  /** `null` while an earlier response on the same connection is incomplete (pipelining). */
  readonly socket: object | null
  /** Sends an informational response (1xx). @throws for a header that HTTP does not allow. */
  writeInformation(status: number, headers: readonly string[]): unknown
  /** @throws for a status or header that HTTP does not allow. */
  writeHead(status: number, headers: string[]): unknown
  flushHeaders(): void
  /** Returns false if the buffer is full; `drain` follows. */
  write(chunk: Buffer): boolean
  addTrailers(trailers: [name: string, value: string][]): void
  end(chunk?: Buffer | string): unknown
  /** Closes the connection, so that the caller can tell that the response is incomplete. */
  destroy(): unknown
  /** `close`: the connection is closed, or the response complete. `drain`: the buffer has room again. */
  on(event: 'close' | 'drain', listener: () => void): unknown
  once(event: 'close', listener: () => void): unknown
  off(event: 'close' | 'drain', listener: () => void): unknown
}
