import type { ConnectSocket } from '@integration-host/shared/http/forward-proxy/tunnel'
import { Connection } from './connection.ts'
import { HttpFailure, type HttpRequest, type Receiver } from './exchange.ts'

export interface PoolOptions {
  /** Connect timeout in ms, including the TLS handshake. */
  readonly connectTimeoutMs?: number
  /** The longest time in ms that may pass between two parts of a response body. */
  readonly idleTimeoutMs?: number
  /** The maximum number of connections. Requests beyond this number are queued. */
  readonly maxConnections?: number
  /** Opens a connection, for example through a forward proxy. By default it is opened to the origin directly. */
  readonly connect?: ConnectSocket | undefined
}

const TIMEOUT_CHECK_MS = 1_000

/** A pool of HTTP/1.1 keep-alive connections to one origin. */
export class Pool implements AsyncDisposable {
  readonly #origin: URL
  readonly #options: Required<Omit<PoolOptions, 'connect'>>
  readonly #connectSocket: ConnectSocket | undefined
  readonly #connections = new Set<Connection>()
  /**
   * The idle connections, as a stack. The connection that was used last is reused first, so that surplus connections
   * stay idle until they are closed.
   */
  readonly #idle: Connection[] = []
  readonly #queue: { readonly request: HttpRequest; readonly receiver: Receiver }[] = []
  #released: Connection[] = []
  #isClosed = false
  readonly #timeoutCheck: NodeJS.Timeout

  constructor(
    origin: string,
    {
      connectTimeoutMs = 5_000,
      idleTimeoutMs = 60_000,
      maxConnections = Number.POSITIVE_INFINITY,
      connect,
    }: PoolOptions = {},
  ) {
    this.#origin = new URL(origin)
    this.#options = { connectTimeoutMs, idleTimeoutMs, maxConnections }
    this.#connectSocket = connect
    this.#timeoutCheck = setInterval(
      () => this.#checkTimeouts(),
      Math.min(TIMEOUT_CHECK_MS, idleTimeoutMs / 2),
    )
    this.#timeoutCheck.unref()
  }

  /** Whether the pool has neither an open connection nor a queued request. */
  get isIdle(): boolean {
    return this.#connections.size === 0 && this.#queue.length === 0
  }

  send(request: HttpRequest, receiver: Receiver): void {
    if (this.#isClosed) return receiver.onFailure(new HttpFailure('unreachable'))
    let connection = this.#idle.pop()
    while (connection?.isUsable === false) {
      // This connection was idle for too long, or has ended without having emitted `close` yet. After this connection
      // is closed, the pool can open a new connection.
      void connection.close()
      connection = this.#idle.pop()
    }
    if (connection === undefined && this.#connections.size >= this.#options.maxConnections)
      this.#queue.push({ request, receiver })
    else (connection ?? this.#connect()).send(request, receiver)
  }

  #connect(): Connection {
    const events = {
      onFinished: () => this.#release(connection),
      onClosed: () => this.#remove(connection),
    }
    const { connectTimeoutMs } = this.#options
    const connection = new Connection(this.#origin, connectTimeoutMs, events, this.#connectSocket)
    this.#connections.add(connection)
    return connection
  }

  // Releases a connection one turn of the event loop after its response. Further bytes, or the end of the connection,
  // may have arrived together with the end of the response. In both cases the connection can no longer be used.
  #release(connection: Connection): void {
    if (this.#released.length === 0)
      setImmediate(() => {
        const finished = this.#released
        this.#released = []
        for (const one of finished) {
          if (!one.isUsable) void one.close() // `onClosed` sends a queued request
          else {
            this.#idle.push(one)
            this.#sendNext()
          }
        }
      })
    this.#released.push(connection)
  }

  #remove(connection: Connection): void {
    this.#connections.delete(connection)
    const index = this.#idle.indexOf(connection)
    if (index !== -1) this.#idle.splice(index, 1)
    this.#sendNext()
  }

  #sendNext(): void {
    const next = this.#queue.shift()
    if (next !== undefined) this.send(next.request, next.receiver)
  }

  #checkTimeouts(): void {
    const at = performance.now()
    for (const connection of this.#connections)
      connection.checkTimeouts(at, this.#options.idleTimeoutMs)
  }

  /** Closes the pool. Queued requests and requests in flight fail. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isClosed = true
    clearInterval(this.#timeoutCheck)
    for (const { receiver } of this.#queue.splice(0))
      receiver.onFailure(new HttpFailure('unreachable'))
    await Promise.all([...this.#connections].map((connection) => connection.close()))
  }
}
