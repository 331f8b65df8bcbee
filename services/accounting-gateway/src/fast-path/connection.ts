import type { Socket } from 'node:net'
import { type ConnectionState, connectionState } from '@integration-host/shared/http/connections'
import type { CallerResponse } from '../proxy/caller.ts'
import type { BodilessGet, RequestReader } from './request-reader.ts'
import { FastPathResponse, KEEP_ALIVE_TIMEOUT_MS } from './response.ts'

/** How long a new connection may be idle before its first request; the same as `headersTimeout`. */
const FIRST_REQUEST_TIMEOUT_MS = 10_000

export interface FastPathConnectionDeps {
  readonly reader: RequestReader
  readonly serve: (request: BodilessGet, response: CallerResponse) => boolean
  /** Gives the socket to `node:http`. */
  readonly handOver: () => void
  /** Called when the connection is closed or handed over. */
  readonly onRemoved: () => void
}

/** A connection on the fast path. The invariants are at the head of fast-path.ts. */
export class FastPathConnection {
  readonly #socket: Socket
  readonly #deps: FastPathConnectionDeps
  /** The server closes connections by this state if too many are open. */
  readonly #state: ConnectionState
  /** The response to the request in flight; `null` if the connection is idle. */
  #response: FastPathResponse | null = null
  /** The `Authorization` value of the last request that was served. */
  #accepted: string | undefined
  /** Bytes that arrived while a request was in flight or the socket's buffer was full (I2). */
  #pending: Buffer[] = []
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
    if (this.#response !== null || this.#socket.writableNeedDrain) {
      this.#pending.push(bytes)
      this.#socket.pause()
      return
    }
    const request = this.#deps.reader.read(bytes, this.#accepted)
    if (request === null) return this.#handOver(bytes)
    this.#response = new FastPathResponse(this.#socket, this)
    if (!this.#deps.serve(request, this.#response)) return this.#handOver(bytes)
    this.#accepted = request.authorization
    this.#state.isAuthenticated = true
    this.#state.begin(null)
  }

  readonly #onDrain = (): void => {
    if (this.#response === null) this.#readPending()
    else this.#response.emit('drain')
  }

  // A caller that half-closes while its request is in flight is treated as gone, as `node:http` does.
  readonly #onEnd = (): void =>
    void (this.#response === null ? this.#socket.end() : this.#socket.destroy())

  readonly #onClose = (): void => {
    this.#deps.onRemoved()
    this.#response?.emit('close')
  }

  // I1: `unshift` puts the bytes back, so that `node:http` reads the request from its first byte.
  #handOver(bytes: Buffer): void {
    const socket = this.#socket
    this.#response = null
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

  /** The connection closes after the response in flight, which says so in `Connection: close`. */
  get isLastResponse(): boolean {
    return this.#isShuttingDown
  }

  /** Called when the response in flight has been written completely. */
  onResponseEnd(): void {
    const response = this.#response
    this.#response = null
    this.#state.end()
    // An attempt may still wait for the socket to drain. `close` tells it that the response is complete, as in Node.
    response?.emit('close')
    this.#idleSince = performance.now()
    this.#idleTimeoutMs = KEEP_ALIVE_TIMEOUT_MS
    if (this.#isShuttingDown) return this.#socket.destroySoon()
    // Deferred, because this method can be called while llhttp parses upstream's response. All parsers share one
    // instance of llhttp, which must not be called from within its own callbacks.
    if (this.#pending.length > 0) process.nextTick(() => this.#readPending())
  }

  #readPending(): void {
    if (this.#pending.length === 0) return
    const bytes = Buffer.concat(this.#pending.splice(0))
    this.#socket.resume()
    this.#onData(bytes)
  }

  /** @param now milliseconds of the monotonic clock */
  closeIfIdle(now: number): void {
    if (this.#response === null && now - this.#idleSince >= this.#idleTimeoutMs)
      this.#socket.destroy()
  }

  shutDown(): void {
    this.#isShuttingDown = true
    // `destroySoon` closes after what has been written; a response may still be in the socket's buffer.
    if (this.#response === null) this.#socket.destroySoon()
  }
}

const ignoreError = (): void => {}
