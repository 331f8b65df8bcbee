import type { IncomingHttpHeaders } from 'node:http'
import type { HeaderList } from '@integration-host/shared/http/client/header-list'

/** What a call needs of its request; Node's `IncomingMessage` is one. */
export interface CallerRequest {
  readonly method?: string | undefined
  readonly rawHeaders: HeaderList
  readonly headers: IncomingHttpHeaders
  readonly httpVersion: string
  /** Nothing of it is still to come. */
  readonly complete: boolean
}

/** Where a call's answer goes; Node's `ServerResponse` is one. */
export interface CallerResponse {
  readonly headersSent: boolean
  readonly writableEnded: boolean
  readonly writableFinished: boolean
  readonly destroyed: boolean
  readonly statusCode: number
  /** Null while an answer before it on the connection is under way. */
  readonly socket: object | null
  /** An answer before the answer. @throws for what HTTP does not allow. */
  writeInformation(status: number, headers: readonly string[]): unknown
  /** @throws for what HTTP does not allow. */
  writeHead(status: number, headers: string[]): unknown
  flushHeaders(): void
  /** False when the caller is to be waited for: `drain` follows. */
  write(chunk: Buffer): boolean
  addTrailers(trailers: [name: string, value: string][]): void
  end(chunk?: Buffer | string): unknown
  /** Breaks off, so that the caller sees that this is not all. */
  destroy(): unknown
  /** `close` comes when the caller has gone, or the answer is out; `drain` when there is room again. */
  on(event: 'close' | 'drain', listener: () => void): unknown
  once(event: 'close', listener: () => void): unknown
  off(event: 'close' | 'drain', listener: () => void): unknown
}
