import { EventEmitter } from 'node:events'
import { STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import { afterThisTurn } from '@integration-host/shared/batching'
import { headerValue } from '@integration-host/shared/http/header-list'

/**
 * How long a connection may stay idle between two requests. The HTTP server's `keepAliveTimeout` has the same value.
 * The `Keep-Alive` header announces this timeout to the caller.
 */
export const KEEP_ALIVE_TIMEOUT_MS = 65_000
const KEEP_ALIVE = `Connection: keep-alive\r\nKeep-Alive: timeout=${KEEP_ALIVE_TIMEOUT_MS / 1_000}\r\n`
/**
 * Maximum size of a chunk that is copied into one buffer together with its framing. For a larger chunk, two writes are
 * cheaper than the copy.
 */
const MAX_COPIED_BYTES = 16_384
/**
 * Maximum number of bytes that wait to be sent to a caller before the gateway stops reading from upstream. The limit is
 * larger than one read of a socket, so that a response that arrives in two reads is relayed without a pause.
 */
const MAX_UNSENT_BYTES = 131_072
const EMPTY = Buffer.alloc(0)

/** The members of a connection that a response uses. */
interface ResponseConnection {
  /** True if the connection closes after this response. */
  readonly isLastResponse: boolean
  /** Must be called when the last byte of the response has been written to the socket. */
  onResponseEnd(): void
}

/**
 * Writes one response with the framing of RFC 9112 §6. The body is delimited by `Content-Length` if the accounting API
 * sent this header, and by chunks (§7.1) otherwise. Responses with status 204 or 304 have no body.
 */
export class FastPathResponse extends EventEmitter {
  statusCode = 200
  headersSent = false
  writableEnded = false
  readonly socket: Socket
  readonly #connection: ResponseConnection
  /**
   * The serialized head; empty after it has been written. The head and the first part of the body are written together
   * if the body follows at once.
   */
  #head = ''
  #framing: 'length' | 'chunked' | 'none' = 'length'
  #trailers = ''
  /** Whether the parts of the body are collected until the end of this turn of the event loop. */
  #isCollecting = false

  constructor(socket: Socket, connection: ResponseConnection) {
    super()
    this.socket = socket
    this.#connection = connection
  }

  get writableFinished(): boolean {
    return this.writableEnded
  }

  get destroyed(): boolean {
    return this.socket.destroyed
  }

  // Header values need no check here, because they come from llhttp in strict mode, which rejects every character that
  // RFC 9110 §5.5 does not allow in a value.
  writeInformation(status: number, headers: readonly string[]): void {
    this.socket.write(`${statusLine(status)}${headerLines(headers)}\r\n`, 'latin1')
  }

  writeHead(status: number, headers: readonly string[]): void {
    if (status < 200) throw new RangeError('not a final status')
    const hasBody = status !== 204 && status !== 304
    const hasLength = headerValue(headers, 'content-length') !== null
    this.#framing = hasBody ? (hasLength ? 'length' : 'chunked') : 'none'
    this.statusCode = status
    this.headersSent = true
    this.#head =
      statusLine(status) +
      headerLines(headers) +
      (headerValue(headers, 'date') === null ? `Date: ${new Date().toUTCString()}\r\n` : '') +
      (this.#connection.isLastResponse ? 'Connection: close\r\n' : KEEP_ALIVE) +
      (this.#framing === 'chunked' ? 'Transfer-Encoding: chunked\r\n\r\n' : '\r\n')
  }

  flushHeaders(): void {
    if (this.#head !== '') this.socket.write(this.#head, 'latin1')
    this.#head = ''
  }

  write(chunk: Buffer): boolean {
    if (this.#framing === 'none') return true
    const suffix = this.#framing === 'chunked' ? '\r\n' : ''
    this.#collect()
    this.#send(this.#prefixOf(chunk), chunk, suffix)
    return this.socket.writableLength < MAX_UNSENT_BYTES
  }

  /**
   * Collects all parts of the body that arrive in this turn of the event loop, so that they are sent in one system call.
   * A response that is a little longer than one read of the socket arrives in two parts.
   */
  #collect(): void {
    if (this.#isCollecting) return
    this.#isCollecting = true
    this.socket.cork()
    afterThisTurn(() => {
      this.#isCollecting = false
      this.socket.uncork()
    })
  }

  addTrailers(trailers: [name: string, value: string][]): void {
    this.#trailers = headerLines(trailers.flat())
  }

  end(chunk: Buffer | string = EMPTY): void {
    this.writableEnded = true
    // If the head was not written yet, the whole response is sent in one write. This write is deferred to the end of
    // the turn of the event loop, where it can be combined with the writes of other connections.
    const isComplete = this.#head !== ''
    const isChunked = this.#framing === 'chunked'
    const given = typeof chunk === 'string' ? Buffer.from(chunk) : chunk
    const body = this.#framing === 'none' ? EMPTY : given
    const prefix = this.#prefixOf(body)
    const lastChunk = isChunked ? `0\r\n${this.#trailers}\r\n` : ''
    const suffix = isChunked && body.length > 0 ? `\r\n${lastChunk}` : lastChunk
    const send = (): void => {
      this.#send(prefix, body, suffix)
      this.#connection.onResponseEnd()
    }
    if (isComplete) afterThisTurn(send)
    else send()
  }

  destroy(): void {
    this.socket.destroy()
  }

  /**
   * Returns the bytes that precede a part of the body: the head if it was not written yet, and the chunk size if the
   * response is chunked.
   */
  #prefixOf(part: Buffer): string {
    const head = this.#head
    this.#head = ''
    return this.#framing === 'chunked' && part.length > 0
      ? `${head}${part.length.toString(16)}\r\n`
      : head
  }

  /** Writes prefix, chunk and suffix in one system call. */
  #send(prefix: string, chunk: Buffer, suffix: string): void {
    const socket = this.socket
    const length = prefix.length + chunk.length + suffix.length
    if (length === 0) return
    if (length === chunk.length) {
      socket.write(chunk)
      return
    }
    if (chunk.length <= MAX_COPIED_BYTES) {
      const bytes = Buffer.allocUnsafe(length)
      bytes.write(prefix, 0, 'latin1')
      chunk.copy(bytes, prefix.length)
      if (suffix !== '') bytes.write(suffix, prefix.length + chunk.length, 'latin1')
      socket.write(bytes)
      return
    }
    socket.cork()
    if (prefix !== '') socket.write(prefix, 'latin1')
    socket.write(chunk)
    if (suffix !== '') socket.write(suffix, 'latin1')
    socket.uncork()
  }
}

const statusLine = (status: number): string =>
  `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'unknown'}\r\n`

function headerLines(headers: readonly string[]): string {
  let text = ''
  for (let i = 0; i < headers.length; i += 2) text += `${headers[i]}: ${headers[i + 1]}\r\n`
  return text
}
