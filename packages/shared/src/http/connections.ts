/**
 * The open connections of an HTTP server. The following rules prevent unauthenticated clients from occupying all
 * connections. A connection is authenticated once one of its requests has presented a valid service key.
 *
 * C1  An unauthenticated connection is closed when it has been idle for 5 s after a response. It is also closed if no
 *     request has begun within 30 s after it was opened. All other idle connections are closed by `node:http` after its
 *     keep-alive timeout.
 * C2  At the limit, each new connection replaces another connection. The first choice is the unauthenticated connection
 *     that has kept the server waiting longest. The second choice is the authenticated connection that has been idle
 *     longest. The third choice is the unauthenticated connection whose request has been in flight longest, but for at
 *     least 10 s. An example is a client that does not read its response.
 * C3  Rule C2 never interrupts a request or a response on an authenticated connection. Such a connection is closed only
 *     after it has been idle for one second, with no request in flight and no unsent data. By that time, the client has
 *     received the last response.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/** How long an unauthenticated connection may be idle after a response. */
export const UNAUTHENTICATED_IDLE_MS = 5_000
/**
 * How long an unauthenticated connection may be open before its first request. `node:http` and the gateway's fast path
 * close a connection earlier if the head of a request does not arrive. However, `node:http` and the fast path keep a
 * connection open after a response to CONNECT, after a 400 for a malformed request, and after a 417 for an unknown
 * `Expect`. Without this limit, a client could keep such a connection open forever.
 */
const UNAUTHENTICATED_FIRST_REQUEST_MS = 30_000
const AUTHENTICATED_MIN_IDLE_MS = 1_000
const UNAUTHENTICATED_MAX_BUSY_MS = 10_000

const STATE = Symbol('ConnectionState')

/** The state of one connection to the server. */
export class ConnectionState {
  /** Whether one of the requests on this connection has presented a valid service key. */
  isAuthenticated = false
  #inFlight = 0
  #hasServed = false
  /**
   * The last request, whose body may still be arriving; `null` if no request is in flight or the request has no body.
   */
  #request: IncomingMessage | null = null
  /** The time when the connection became busy or idle, in milliseconds of the monotonic clock. */
  #since = performance.now()

  /**
   * Records that the headers of a request have arrived. The argument is the request if part of its body may still be
   * outstanding, otherwise `null`.
   */
  begin(request: IncomingMessage | null): void {
    if (this.#inFlight === 0) this.#since = performance.now()
    this.#inFlight += 1
    this.#request = request
  }

  /** Records that the response to a request has been written, or that the connection has been closed. */
  end(): void {
    this.#inFlight -= 1
    if (this.#inFlight > 0) return
    this.#request = null
    this.#hasServed = true
    this.#since = performance.now()
  }

  /**
   * Returns whether an unauthenticated connection has been idle for too long and must be closed (rule C1).
   * @param now milliseconds of the monotonic clock
   */
  hasExpired(socket: Socket, now: number): boolean {
    const maxIdleMs = this.#hasServed ? UNAUTHENTICATED_IDLE_MS : UNAUTHENTICATED_FIRST_REQUEST_MS
    return !this.isAuthenticated && !this.#isBusy(socket) && now - this.#since >= maxIdleMs
  }

  /**
   * Returns the rank of this connection when room is made for a new connection. The connection with the lowest rank is
   * closed (rule C2). Returns `null` if this connection must not be closed.
   */
  closingOrder(socket: Socket, now: number): number | null {
    const elapsedMs = now - this.#since
    const isBusy = this.#isBusy(socket)
    if (this.isAuthenticated)
      return !isBusy && elapsedMs >= AUTHENTICATED_MIN_IDLE_MS
        ? AUTHENTICATED_IDLE - elapsedMs
        : null
    const isWaitingForClient = !isBusy || this.#request?.complete === false
    if (isWaitingForClient) return UNAUTHENTICATED_WAITING - elapsedMs
    return elapsedMs >= UNAUTHENTICATED_MAX_BUSY_MS ? UNAUTHENTICATED_BUSY - elapsedMs : null
  }

  #isBusy(socket: Socket): boolean {
    return this.#inFlight > 0 || socket.writableLength > 0
  }
}

// The base ranks of the three choices in rule C2. Within a choice, the connection that has waited longest gets the
// lowest rank, because its waiting time in milliseconds is subtracted from the base rank. The base ranks are further
// apart than any waiting time, so an earlier choice always has the lower rank.
const UNAUTHENTICATED_WAITING = 0
const AUTHENTICATED_IDLE = 1e12
const UNAUTHENTICATED_BUSY = 2e12

/** Returns the state of a connection. The state is stored as a property of the connection's socket. */
export function connectionState(socket: Socket): ConnectionState {
  const stateful = socket as Socket & { [STATE]?: ConnectionState }
  stateful[STATE] ??= new ConnectionState()
  return stateful[STATE]
}

/** Records on the request's connection that the request is in flight until its response is complete. */
export function trackRequest(request: IncomingMessage, response: ServerResponse): void {
  const state = connectionState(request.socket)
  state.begin(request)
  response.on('close', () => state.end())
}

/**
 * The reason why a connection was closed. `idle`: an unauthenticated connection was idle for too long. `room`: the
 * connection made room for a new connection. `full`: the new connection itself was closed, because no other connection
 * could be closed.
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

  /**
   * Adds a new connection. At the limit, another connection is closed to make room. If no other connection may be
   * closed, the new connection is closed itself.
   */
  add(socket: Socket): void {
    if (this.#sockets.size >= this.#limit && !this.#makeRoom()) return this.#close(socket, 'full')
    this.#sockets.add(socket)
    socket.on('close', () => this.#sockets.delete(socket))
  }

  /** Closes all unauthenticated connections that have been idle for too long (rule C1). */
  closeExpired(): void {
    const now = performance.now()
    for (const socket of this.#sockets)
      if (connectionState(socket).hasExpired(socket, now)) this.#close(socket, 'idle')
  }

  // All connections are compared for each new connection at the limit. Comparing 4,096 connections takes less time than
  // accepting one. Keeping the connections sorted would instead cost time in every request.
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
