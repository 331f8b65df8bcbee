import type { Socket } from 'node:net'
import { type ConnectionState, connectionState } from '@integration-host/shared/http/connections'
import type { BufferedRequest, RequestReader } from './request-reader.ts'
import { FastPathResponse, KEEP_ALIVE_TIMEOUT_MS } from './response.ts'

/**
 * How long a new connection may stay idle before its first request. The HTTP server's `headersTimeout` has the same
 * value.
 */
const FIRST_REQUEST_TIMEOUT_MS = 10_000
/**
 * How long the fast path waits for the rest of a request body. After this time, it hands the request over to
 * `node:http`.
 */
const BODY_TIMEOUT_MS = 1_000
/** The maximum number of parts in which a body may arrive. Each part occupies memory besides its bytes. */
const MAX_PARTS = 256

export interface FastPathConnectionDeps {
  readonly reader: RequestReader
  readonly serve: (request: BufferedRequest, response: FastPathResponse) => boolean
  /** Returns whether `serve` will serve this request when the body of the request is complete. */
  readonly mayBuffer: (request: BufferedRequest) => boolean
  /** Hands the connection's socket over to `node:http`. */
  readonly handOver: () => void
  /** Called when the connection leaves the fast path: it was closed or handed over to `node:http`. */
  readonly onRemoved: () => void
}

/**
 * One caller's connection that the fast path serves instead of `node:http`. The comment at the head of fast-path.ts
 * states the invariants I1 and I2.
 */
export class FastPathConnection {
  readonly #socket: Socket
  readonly #deps: FastPathConnectionDeps
  /** The server uses this state to select the connections that it closes when too many are open. */
  readonly #state: ConnectionState
  /** The response to the request in flight; `null` if no request is in flight. */
  #response: FastPathResponse | null = null
  /**
   * Bytes that arrived while a request was in flight or while the socket's write buffer was full. These bytes are
   * parsed later (I2).
   */
  #pending: Buffer[] = []
  /**
   * The request whose body has not arrived completely; `null` if there is no such request. The bytes that have arrived
   * are in `#pending`.
   */
  #incomplete: BufferedRequest | null = null
  #idleSince = performance.now()
  #idleTimeoutMs = FIRST_REQUEST_TIMEOUT_MS
  #isShuttingDown = false

  constructor(socket: Socket, deps: FastPathConnectionDeps) {
    this.#socket = socket
    this.#deps = deps
    this.#state = connectionState(socket)
    socket.on('data', this.#onData)
    socket.on('drain', this.#onDrain)
    socket.on('end', this.#onEnd)
    socket.on('error', ignoreError)
    socket.on('close', this.#onClose)
  }

  readonly #onData = (bytes: Buffer): void => {
    if (!this.#socket.writable) return
    if (this.#incomplete !== null) return this.#onBody(this.#incomplete, bytes)
    if (this.#response !== null || this.#socket.writableNeedDrain) {
      this.#pending.push(bytes)
      this.#socket.pause()
      return
    }
    const request = this.#deps.reader.read(bytes)
    if (request === null) return this.#handOver(bytes)
    if (!request.complete) return this.#buffer(request, bytes)
    if (!this.#serve(request)) return this.#handOver(bytes)
    this.#state.isAuthenticated = true
    this.#state.begin(null)
  }

  #serve(request: BufferedRequest): boolean {
    this.#response = new FastPathResponse(this.#socket, this)
    return this.#deps.serve(request, this.#response)
  }

  // The caller's key is checked before the first byte is buffered. Only authenticated callers can therefore occupy
  // memory.
  #buffer(request: BufferedRequest, bytes: Buffer): void {
    if (!this.#deps.mayBuffer(request)) return this.#handOver(bytes)
    this.#pending.push(bytes)
    this.#incomplete = request
    this.#state.isAuthenticated = true
    this.#state.begin(null)
    this.#idleSince = performance.now()
    this.#idleTimeoutMs = BODY_TIMEOUT_MS
  }

  #onBody(request: BufferedRequest, bytes: Buffer): void {
    this.#pending.push(bytes)
    const isPart = request.append(bytes)
    if (isPart && !request.complete && this.#pending.length < MAX_PARTS) return
    if (!isPart || !request.complete || !this.#serve(request)) return this.#handOverIncomplete()
    this.#pending = []
    this.#incomplete = null
  }

  #handOverIncomplete(): void {
    this.#state.end()
    this.#handOver(Buffer.concat(this.#pending.splice(0)))
  }

  readonly #onDrain = (): void => {
    if (this.#response === null) this.#readPending()
    else this.#response.emit('drain')
  }

  // A caller may close its sending side while its request is in flight or incomplete. As in `node:http`, the gateway
  // then treats the caller as disconnected.
  readonly #onEnd = (): void =>
    void (this.#response === null && this.#incomplete === null
      ? this.#socket.end()
      : this.#socket.destroy())

  readonly #onClose = (): void => {
    this.#deps.onRemoved()
    this.#response?.emit('close')
  }

  // `unshift` puts the bytes of the request back into the socket. `node:http` then reads the request from its first
  // byte (I1).
  #handOver(bytes: Buffer): void {
    const socket = this.#socket
    this.#response = null
    this.#incomplete = null
    socket.off('data', this.#onData)
    socket.off('drain', this.#onDrain)
    socket.off('end', this.#onEnd)
    socket.off('error', ignoreError)
    socket.off('close', this.#onClose)
    this.#deps.onRemoved()
    this.#deps.handOver()
    socket.unshift(bytes)
    socket.resume()
  }

  /** True if the connection closes after the current response. The response then contains `Connection: close`. */
  get isLastResponse(): boolean {
    return this.#isShuttingDown
  }

  /** Must be called when the current response has been written to the socket completely. */
  onResponseEnd(): void {
    const response = this.#response
    this.#response = null
    this.#state.end()
    // The proxy may still be waiting for the socket to drain. The event `close` ends this wait. It is emitted here
    // because Node's `ServerResponse`, which this class replaces, emits `close` when a response is complete.
    response?.emit('close')
    this.#idleSince = performance.now()
    this.#idleTimeoutMs = KEEP_ALIVE_TIMEOUT_MS
    if (this.#isShuttingDown) return this.#socket.destroySoon()
    // The next request is read in a later turn of the event loop, because llhttp may be parsing upstream's response
    // when this method is called. All parsers share one instance of llhttp, which must not be called from its own
    // callbacks.
    if (this.#pending.length > 0) process.nextTick(() => this.#readPending())
  }

  #readPending(): void {
    if (this.#pending.length === 0) return
    const bytes = Buffer.concat(this.#pending.splice(0))
    this.#socket.resume()
    this.#onData(bytes)
  }

  /**
   * Closes the connection if it has been idle for too long. Hands a request whose body arrives slowly over to
   * `node:http`, which has its own timeouts for bodies.
   *
   * @param now milliseconds of the monotonic clock
   */
  checkTimeout(now: number): void {
    if (this.#response !== null || now - this.#idleSince < this.#idleTimeoutMs) return
    if (this.#incomplete !== null) this.#handOverIncomplete()
    else this.#socket.destroy()
  }

  shutDown(): void {
    this.#isShuttingDown = true
    // The socket's buffer may still contain the end of a response. `destroySoon` closes the socket after that buffer
    // has been written.
    if (this.#incomplete !== null) this.#handOverIncomplete()
    else if (this.#response === null) this.#socket.destroySoon()
  }
}

const ignoreError = (): void => {}
