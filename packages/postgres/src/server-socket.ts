import { EventEmitter } from 'node:events'
import type { Socket } from 'node:net'
import { type Backend, type Session, SessionRejected } from './startup.ts'

/** A PostgreSQL session and the socket that it uses. */
export interface OpenedSession {
  readonly socket: Socket
  readonly session: Session
}

/** Opens a session at one of the servers; see `ServerSockets`. */
export type OpenSession = (
  startupMessage: Buffer,
  driver: {
    /** Passes a server message to the driver. */
    readonly forward: (message: Buffer) => void
    /**
     * Called at the beginning of each connection attempt, with the function that passes the driver's replies to the
     * server.
     */
    readonly onAttempt: (reply: (message: Buffer) => void) => void
    readonly signal: AbortSignal
  },
) => Promise<OpenedSession>

/** The error if none of the listed servers can be used. It contains one failure for each server. */
export class NoUsableServer extends Error {
  override readonly name = 'NoUsableServer'
  readonly code = 'NO_USABLE_SERVER'
  readonly failures: readonly unknown[]

  constructor(failures: readonly unknown[]) {
    super('no server can be used', { cause: failures[0] })
    this.failures = failures
  }
}

type Phase =
  | { readonly kind: 'new' }
  | { readonly kind: 'opening'; readonly abort: AbortController; reply: (message: Buffer) => void }
  | ({ readonly kind: 'open' } & OpenedSession)
  | { readonly kind: 'closed' }

/**
 * The socket that is given to the driver. While the driver opens its connection, this socket selects a server, encrypts
 * the connection and sets the settings of the session. After that, it only passes data on.
 *
 * The class has those members of `net.Socket` that the driver uses.
 */
export class ServerSocket extends EventEmitter {
  readonly #open: OpenSession
  readonly #onUnresponsive: (socket: ServerSocket) => void
  #phase: Phase = { kind: 'new' }
  #isOverdue = false
  #openedAt = Infinity
  #isEnding = false

  /** @param onUnresponsive called when the server has not responded to a statement within the driver's timeout. */
  constructor(open: OpenSession, onUnresponsive: (socket: ServerSocket) => void) {
    super()
    this.#open = open
    this.#onUnresponsive = onUnresponsive
  }

  get readyState(): 'open' | 'closed' {
    return this.#phase.kind === 'closed' ? 'closed' : 'open'
  }

  /**
   * The PostgreSQL server process of the session; `null` if the session is not open, or if the driver is ending the
   * session.
   */
  get backend(): Backend | null {
    return this.#phase.kind === 'open' && !this.#isEnding ? this.#phase.session.backend : null
  }

  get isPooled(): boolean {
    return this.#phase.kind === 'open' && this.#phase.session.isPooled
  }

  /** Whether a statement has been in flight for longer than the driver's timeout. */
  get isOverdue(): boolean {
    return this.#isOverdue
  }

  /** The time of `performance.now()` at which the session was opened; `Infinity` until then. */
  get openedAt(): number {
    return this.#openedAt
  }

  write(data: Buffer, written?: () => void): boolean {
    switch (this.#phase.kind) {
      case 'new':
        // The driver's first write is the startup message, after which the driver waits for the server.
        void this.#start(Buffer.from(data))
        return true
      case 'opening':
        this.#phase.reply(Buffer.from(data))
        return true
      case 'open':
        return this.#phase.socket.write(data, written)
      case 'closed':
        return false
    }
  }

  /** Sends `data`, the driver's Terminate message, and ends the connection. */
  end(data: Buffer): void {
    this.#isEnding = true
    if (this.#phase.kind === 'open') this.#phase.socket.end(data)
    else this.close()
  }

  /** The driver calls this method if the response to a statement does not arrive in time. */
  destroy(): void {
    if (this.#phase.kind !== 'open') return this.close()
    this.#isOverdue = true
    this.#onUnresponsive(this)
  }

  /** Closes the connection. Statements in flight fail with the driver's CONNECTION_CLOSED. */
  close(): void {
    const phase = this.#phase
    if (phase.kind === 'open') phase.socket.destroy()
    if (phase.kind === 'opening') phase.abort.abort()
    this.#finish(true)
  }

  /**
   * Closes the connection for the driver only. Returns the underlying socket, which stays connected to the server;
   * `null` if no socket is open.
   */
  release(): Socket | null {
    if (this.#phase.kind !== 'open') return null
    const { socket } = this.#phase
    this.#finish(true)
    return socket
  }

  async #start(startupMessage: Buffer): Promise<void> {
    const opening: Phase = { kind: 'opening', abort: new AbortController(), reply: () => {} }
    this.#phase = opening
    try {
      const opened = await this.#open(startupMessage, {
        forward: (message) => void this.emit('data', message),
        onAttempt: (reply) => (opening.reply = reply),
        signal: opening.abort.signal,
      })
      // The driver may have closed the connection before the session was open.
      if (this.#phase === opening) this.#pass(opened)
      else opened.socket.destroy()
    } catch (error) {
      this.#fail(error)
    }
  }

  #pass(opened: OpenedSession): void {
    const { socket, session } = opened
    this.#phase = { kind: 'open', ...opened }
    this.#openedAt = performance.now()
    const pass = (event: 'data' | 'drain' | 'error', value?: unknown): void => {
      if (this.#phase.kind === 'open') this.emit(event, value)
    }
    socket.on('data', (data) => {
      this.#isOverdue = false
      pass('data', data)
    })
    socket.on('drain', () => pass('drain'))
    socket.on('error', (error) => pass('error', error))
    socket.on('close', (hadError) => this.#finish(hadError))
    this.emit('data', session.ready)
  }

  #fail(error: unknown): void {
    if (this.#phase.kind === 'closed') return
    // If the server has sent an error response, the driver gets this response and throws an error of its own type.
    if (error instanceof SessionRejected) this.emit('data', error.response)
    else this.emit('error', error)
    this.#finish(true)
  }

  #finish(hadError: boolean): void {
    if (this.#phase.kind === 'closed') return
    this.#phase = { kind: 'closed' }
    this.#isOverdue = false
    this.emit('close', hadError)
  }
}
