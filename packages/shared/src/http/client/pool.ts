import { Connection } from './connection.ts'
import { HttpFailure, type HttpRequest, type Receiver } from './exchange.ts'

export interface PoolOptions {
  /** Milliseconds until a connection must stand. */
  readonly connectTimeoutMs?: number
  /** The longest silence within an answer, in milliseconds. */
  readonly idleTimeoutMs?: number
  /** Calls beyond as many wait for their turn. */
  readonly maxConnections?: number
}

const SWEEP_EVERY_MS = 1_000

/** HTTP/1.1 connections to one origin, kept open between calls. */
export class Pool implements AsyncDisposable {
  readonly #origin: URL
  readonly #options: Required<PoolOptions>
  readonly #connections = new Set<Connection>()
  /** Fit for the next call; the one used last is taken first, so that the others can grow old. */
  readonly #resting: Connection[] = []
  readonly #waiting: { readonly request: HttpRequest; readonly receiver: Receiver }[] = []
  #finished: Connection[] = []
  #isClosed = false
  readonly #sweeping: NodeJS.Timeout

  constructor(
    origin: string,
    {
      connectTimeoutMs = 5_000,
      idleTimeoutMs = 60_000,
      maxConnections = Number.POSITIVE_INFINITY,
    }: PoolOptions = {},
  ) {
    this.#origin = new URL(origin)
    this.#options = { connectTimeoutMs, idleTimeoutMs, maxConnections }
    this.#sweeping = setInterval(() => this.#sweep(), Math.min(SWEEP_EVERY_MS, idleTimeoutMs / 2))
    this.#sweeping.unref()
  }

  /** No connection is open, and no call waits for one. */
  get isIdle(): boolean {
    return this.#connections.size === 0 && this.#waiting.length === 0
  }

  send(request: HttpRequest, receiver: Receiver): void {
    if (this.#isClosed) return receiver.onFailure(new HttpFailure('unreachable'))
    let connection = this.#resting.pop()
    while (connection?.isFit === false) {
      // Closed and not told yet, or grown too old: it must not count for much longer.
      void connection.close()
      connection = this.#resting.pop()
    }
    if (connection === undefined && this.#connections.size >= this.#options.maxConnections)
      this.#waiting.push({ request, receiver })
    else (connection ?? this.#connect()).send(request, receiver)
  }

  #connect(): Connection {
    const connection = new Connection(this.#origin, this.#options.connectTimeoutMs, {
      onFinished: () => this.#rest(connection),
      onClosed: () => this.#forget(connection),
    })
    this.#connections.add(connection)
    return connection
  }

  // Not before what came with the answer's end has been looked at: bytes too many, or the end of the connection.
  #rest(connection: Connection): void {
    if (this.#finished.length === 0)
      setImmediate(() => {
        const finished = this.#finished
        this.#finished = []
        for (const one of finished) {
          if (!one.isFit) void one.close() // the next call takes its place
          else {
            this.#resting.push(one)
            this.#sendNext()
          }
        }
      })
    this.#finished.push(connection)
  }

  #forget(connection: Connection): void {
    this.#connections.delete(connection)
    const index = this.#resting.indexOf(connection)
    if (index !== -1) this.#resting.splice(index, 1)
    this.#sendNext()
  }

  #sendNext(): void {
    const next = this.#waiting.shift()
    if (next !== undefined) this.send(next.request, next.receiver)
  }

  #sweep(): void {
    const at = performance.now()
    for (const connection of this.#connections) connection.age(at, this.#options.idleTimeoutMs)
  }

  /** Fails what is under way. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isClosed = true
    clearInterval(this.#sweeping)
    for (const { receiver } of this.#waiting.splice(0))
      receiver.onFailure(new HttpFailure('unreachable'))
    await Promise.all([...this.#connections].map((connection) => connection.close()))
  }
}
