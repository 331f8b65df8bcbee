/**
 * Starts a PostgreSQL session on one connection. The driver does the authentication. After that, one query sets the
 * settings of the session and reads the role of the server (PostgreSQL manual, sections 53.2.1 and 53.7).
 */
import type { Socket } from 'node:net'

/**
 * The server process that executes the statements of a session. The operating system reuses process ids, so the start
 * time is needed to identify the process.
 */
export interface Backend {
  readonly pid: number
  /** The start of the process in epoch seconds, as text. */
  readonly startedAt: string
}

export interface Session {
  readonly backend: Backend
  /** Whether a connection pooler such as PgBouncer is between client and server. */
  readonly isPooled: boolean
  /** The ReadyForQuery message of the server, which has not been passed to the driver yet. */
  readonly ready: Buffer
}

/** The error if the server has rejected the session. `response` is its ErrorResponse message. */
export class SessionRejected extends Error {
  override readonly name = 'SessionRejected'
  /** The error code of the server (SQLSTATE). */
  readonly code: string
  readonly response: Buffer

  constructor(response: Buffer) {
    super('the server rejects the session')
    this.response = response
    this.code = /\0C(\w{5})\0/.exec(`\0${response.toString('latin1', HEADER)}`)?.[1] ?? 'unknown'
  }
}

/** The error if the server is a standby, or if all transactions on the server are read-only. */
export class NotWritable extends Error {
  override readonly name = 'NotWritable'
  readonly code = 'NOT_WRITABLE'
}

export interface StartupOptions {
  readonly needsWrites: boolean
  /** PostgreSQL settings, which the query sets for the session. */
  readonly settings: Readonly<Record<string, string>>
  /** Passes a server message to the driver. */
  readonly forward: (message: Buffer) => void
  /** Ends the attempt, but leaves the socket open. */
  readonly signal: AbortSignal
}

export interface Startup {
  readonly session: Promise<Session>
  /** Whether the server has accepted the user. From then on, the server has a process for this session. */
  readonly isAuthenticated: boolean
  /** Sends the driver's reply to a request for authentication. If there was no such request, the reply is dropped. */
  readonly reply: (message: Buffer) => void
}

const HEADER = 5
const type = { authentication: 'R', error: 'E', keyData: 'K', ready: 'Z', row: 'D' } as const
const AUTHENTICATION_OK = 0
const SASL_FINAL = 12

/**
 * Sends the driver's startup message. `session` is rejected if the server rejects the session, if the connection ends,
 * or if `signal` aborts. Before `session` settles, this function removes its listeners from the socket.
 */
export function startSession(socket: Socket, message: Buffer, options: StartupOptions): Startup {
  const { promise, resolve, reject } = Promise.withResolvers<Session>()
  const messages = createMessageSplitter()
  let isAuthenticated = false
  let mayReply = false
  let keyPid: number | undefined
  let values: readonly string[] | undefined
  let ready: Buffer | undefined

  function receive(response: Buffer): void {
    switch (String.fromCharCode(response[0] ?? 0)) {
      case type.error:
        throw new SessionRejected(response)
      case type.authentication: {
        const request = response.readInt32BE(HEADER)
        if (request === AUTHENTICATION_OK) isAuthenticated = true
        mayReply = request !== AUTHENTICATION_OK && request !== SASL_FINAL
        return options.forward(response)
      }
      case type.keyData:
        keyPid = response.readInt32BE(HEADER)
        return options.forward(response)
      case type.row:
        values = valuesOf(response)
        return
      case type.ready:
        if (ready === undefined) {
          ready = response
          socket.write(queryMessage(options.settings))
          return
        }
        return resolve(sessionOf(values, ready))
      default:
        // The driver does not get the responses to the query of this function.
        if (ready === undefined) options.forward(response)
    }
  }
  function sessionOf(row: readonly string[] = [], readyMessage: Buffer): Session {
    const [pid, startedAt = '', isStandby, isReadOnly] = row
    if (options.needsWrites && (isStandby === 't' || isReadOnly === 'on'))
      throw new NotWritable('the server rejects writes')
    const backend = { pid: Number(pid), startedAt }
    return { backend, isPooled: keyPid !== backend.pid, ready: readyMessage }
  }
  const onData = (chunk: Buffer): void => {
    try {
      for (const response of messages(chunk)) receive(response)
    } catch (error) {
      reject(error)
    }
  }
  const onClose = (): void =>
    reject(Object.assign(new Error('the server ended the connection'), { code: 'ECONNRESET' }))
  const onAbort = (): void => reject(options.signal.reason as Error)
  socket.on('data', onData).on('error', reject).on('close', onClose)
  options.signal.addEventListener('abort', onAbort, { once: true })
  socket.write(message)
  return {
    session: promise.finally(() => {
      socket.off('data', onData).off('error', reject).off('close', onClose)
      options.signal.removeEventListener('abort', onAbort)
    }),
    get isAuthenticated() {
      return isAuthenticated
    },
    reply: (replyMessage) => {
      if (mayReply) socket.write(replyMessage)
      mayReply = false
    },
  }
}

/** Returns a function that splits the received bytes into messages. Each message has a type, a length and a content. */
function createMessageSplitter(): (chunk: Buffer) => Buffer[] {
  let rest: Buffer = Buffer.alloc(0)
  return (chunk) => {
    rest = Buffer.concat([rest, chunk])
    const complete: Buffer[] = []
    while (rest.length >= HEADER) {
      const end = 1 + rest.readInt32BE(1)
      if (end < HEADER) throw new Error('the peer does not speak the protocol of PostgreSQL')
      if (rest.length < end) break
      complete.push(rest.subarray(0, end))
      rest = rest.subarray(end)
    }
    return complete
  }
}

/** Returns the values of a DataRow message; the empty string for NULL. */
function valuesOf(row: Buffer): string[] {
  const values: string[] = []
  let at = HEADER + 2
  for (let left = row.readInt16BE(HEADER); left > 0; left -= 1) {
    const length = Math.max(0, row.readInt32BE(at))
    values.push(row.toString('utf8', at + 4, at + 4 + length))
    at += 4 + length
  }
  return values
}

/** PgBouncer rejects a startup message with settings that it does not know. Therefore a query sets the settings. */
function queryMessage(settings: Readonly<Record<string, string>>): Buffer {
  const set = Object.entries(settings).map(
    ([name, value]) => `, set_config(${quoted(name)}, ${quoted(value)}, false)`,
  )
  const query = Buffer.from(
    `select pg_backend_pid(), (select extract(epoch from backend_start) from pg_stat_activity
      where pid = pg_backend_pid()), pg_is_in_recovery(), current_setting('transaction_read_only')${set.join('')}\0`,
  )
  const head = Buffer.from('Q\0\0\0\0')
  head.writeInt32BE(query.length + 4, 1)
  return Buffer.concat([head, query])
}

const quoted = (text: string): string =>
  `E'${text.replaceAll('\\', String.raw`\\`).replaceAll("'", "''")}'`
