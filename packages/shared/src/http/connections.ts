/**
 * The open connections of an HTTP server, and which of them are closed so that strangers cannot occupy all of them.
 *
 * C1  A connection that has shown no valid service key is closed once it was idle for 5 s after a response, or 30 s after
 *     it was opened if no request has begun by then. All others are closed by `node:http` after its keep-alive timeout.
 * C2  At the limit, a connection is closed for each new one: the one without a key that has kept the server waiting
 *     longest; if there is none, the longest idle one with a key; if there is none, the oldest request without a key
 *     that has been in flight for 10 s, such as one whose response is not read.
 * C3  Making room never resets a request or a response of a connection with a key: such a connection is closed only if
 *     nothing is in flight or unsent on it, and only a second later, when the client has received its last response.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/** How long a connection that has shown no valid service key may be idle after a response. */
export const KEYLESS_IDLE_MS = 5_000
/**
 * How long such a connection may be open before its first request. Longer than `node:http` and the fast path of the
 * gateway together wait for the head of a request, so it only ends connections that those two leave open: after the
 * 400 to a malformed request, the 417 to an unknown `Expect` and the response to CONNECT, none of which is tracked
 * here, a client that does not close its side could otherwise keep the connection for as long as it likes.
 */
const KEYLESS_FIRST_REQUEST_MS = 30_000
const KEYED_MIN_IDLE_MS = 1_000
const KEYLESS_MAX_BUSY_MS = 10_000

const STATE = Symbol('ConnectionState')

/** What the server knows about a connection. */
export class ConnectionState {
  /** A request on this connection has shown a valid service key. */
  isAuthenticated = false
  #inFlight = 0
  #hasServed = false
  /** The last request, whose body may still be arriving; `null` if none is in flight or it has no body. */
  #request: IncomingMessage | null = null
  /** When the connection became busy or idle, in milliseconds of the monotonic clock. */
  #since = performance.now()

  /** A request has arrived; `request` if its body may not have arrived completely. */
  begin(request: IncomingMessage | null): void {
    if (this.#inFlight === 0) this.#since = performance.now()
    this.#inFlight += 1
    this.#request = request
  }

  /** The response to a request has been written, or its connection is closed. */
  end(): void {
    this.#inFlight -= 1
    if (this.#inFlight > 0) return
    this.#request = null
    this.#hasServed = true
    this.#since = performance.now()
  }

  /** C1. @param now milliseconds of the monotonic clock */
  hasExpired(socket: Socket, now: number): boolean {
    const maxIdleMs = this.#hasServed ? KEYLESS_IDLE_MS : KEYLESS_FIRST_REQUEST_MS
    return !this.isAuthenticated && !this.#isBusy(socket) && now - this.#since >= maxIdleMs
  }

  /** C2. Returns the order in which connections are closed to make room, lowest first; `null` if this one is not. */
  closingOrder(socket: Socket, now: number): number | null {
    const elapsedMs = now - this.#since
    const isBusy = this.#isBusy(socket)
    if (this.isAuthenticated)
      return !isBusy && elapsedMs >= KEYED_MIN_IDLE_MS ? KEYED_IDLE - elapsedMs : null
    const isWaitingForClient = !isBusy || this.#request?.complete === false
    if (isWaitingForClient) return KEYLESS_WAITING - elapsedMs
    return elapsedMs >= KEYLESS_MAX_BUSY_MS ? KEYLESS_BUSY - elapsedMs : null
  }

  #isBusy(socket: Socket): boolean {
    return this.#inFlight > 0 || socket.writableLength > 0
  }
}

// Distances in milliseconds that no connection reaches, so that within each of the groups the longest wait comes first.
const KEYLESS_WAITING = 0
const KEYED_IDLE = 1e12
const KEYLESS_BUSY = 2e12

/** Returns the state of a connection, which is a property of its socket. */
export function connectionState(socket: Socket): ConnectionState {
  const stateful = socket as Socket & { [STATE]?: ConnectionState }
  stateful[STATE] ??= new ConnectionState()
  return stateful[STATE]
}

/** Records on its connection that a request is in flight until its response is complete. */
export function trackRequest(request: IncomingMessage, response: ServerResponse): void {
  const state = connectionState(request.socket)
  state.begin(request)
  response.on('close', () => state.end())
}

/**
 * Why a connection was closed: `idle` for too long without a key, to make `room` for a new one, or, as a new one,
 * because the server was `full` and no other could be closed.
 */
export type ClosingReason = 'idle' | 'room' | 'full'

/** The open connections of one server. */
export class Connections {
  readonly #sockets = new Set<Socket>()
  readonly #limit: number
  readonly #onClose: (reason: ClosingReason) => void

  constructor(limit: number, onClose: (reason: ClosingReason) => void) {
    this.#limit = limit
    this.#onClose = onClose
  }

  get all(): Iterable<Socket> {
    return this.#sockets
  }

  /** Adds a new connection. At the limit, closes another one for it, or the new one if no other may be closed. */
  add(socket: Socket): void {
    if (this.#sockets.size >= this.#limit && !this.#makeRoom()) return this.#close(socket, 'full')
    this.#sockets.add(socket)
    socket.on('close', () => this.#sockets.delete(socket))
  }

  /** C1 */
  closeExpired(): void {
    const now = performance.now()
    for (const socket of this.#sockets)
      if (connectionState(socket).hasExpired(socket, now)) this.#close(socket, 'idle')
  }

  // Compares all connections for each new one: 4,096 of them take less time than accepting a connection does, and the
  // requests of all others pay nothing for an order of the connections.
  #makeRoom(): boolean {
    const now = performance.now()
    let first: Socket | null = null
    let lowest = Number.POSITIVE_INFINITY
    for (const socket of this.#sockets) {
      const order = connectionState(socket).closingOrder(socket, now)
      if (order === null || order >= lowest) continue
      first = socket
      lowest = order
    }
    if (first === null) return false
    this.#close(first, 'room')
    return true
  }

  #close(socket: Socket, reason: ClosingReason): void {
    this.#sockets.delete(socket)
    socket.destroy()
    this.#onClose(reason)
  }
}
