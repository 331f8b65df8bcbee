import { connect as connectTcp, isIP, Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { AbstractConnector, type RedisOptions } from 'ioredis'
import type { Server } from '../process/server-list.ts'
import type { TlsFiles } from '../tls/tls-files.ts'

/** The options of an ioredis client, without the option that converts replies. */
export type ClientOptions = Omit<RedisOptions, 'replyMapping'>

/** The reply to INFO, by field. It is empty if the Redis user is not permitted to run INFO. */
export type ServerInfo = Readonly<Record<string, string | undefined>>

export interface ConnectorDeps {
  /** Returns the server of the next connection attempt. If the function throws, the attempt counts as failed. */
  readonly next: () => Server | Promise<Server>
  readonly usesTls: boolean
  readonly tls: TlsFiles | undefined
  /** How long a connection may take until it is established, including the TLS handshake. */
  readonly timeoutMs: number
  /**
   * Decides about each new connection. If the function returns false, the client closes the new connection and makes
   * another connection attempt.
   */
  readonly accepts?: (info: ServerInfo) => boolean
}

const DISCONNECT_TIMEOUT_MS = 2_000

/**
 * Returns the options for an ioredis client. Before each connection attempt, such a client gets a server from `next`
 * and reads the TLS files again. With the options of ioredis alone, the server and the TLS files could not change after
 * the client was created.
 */
export function connectorOptions(deps: ConnectorDeps): ClientOptions {
  class Connector extends AbstractConnector {
    constructor() {
      super(DISCONNECT_TIMEOUT_MS)
    }

    override async connect(): Promise<Socket> {
      this.connecting = true
      delete this.firstError
      try {
        const server = await deps.next()
        // The client may have called `disconnect` in the meantime.
        this.stream = this.connecting ? open(server, deps) : closedSocket()
      } catch (error) {
        if (error instanceof Error) this.firstError = error
        this.stream = closedSocket()
      }
      // A TLS socket can emit a second error, for example an alert and then the failed write. ioredis removes its own
      // listener after the first error, and an error without a listener would end the process.
      this.stream.on('error', (error: Error) => (this.firstError ??= error))
      return this.stream
    }

    override check(info: ServerInfo): boolean {
      return deps.accepts?.(info) ?? true
    }
  }
  // With the option `tls`, ioredis waits for the end of the TLS handshake. The option is empty, because the function
  // `open` passes the TLS files to the socket. ioredis's own timeout is disabled, because its error does not say
  // whether the connection or the handshake took too long.
  return { Connector, connectTimeout: 0, ...(deps.usesTls && { tls: {} }) }
}

function open({ host, port }: Server, { usesTls, tls, timeoutMs }: ConnectorDeps): Socket {
  // Node sends the host name in the TLS handshake (SNI) only if the option `servername` is set.
  const name = isIP(host) === 0 ? { servername: host } : {}
  const socket = usesTls
    ? connectTls({ host, port, ...name, ...tls?.read() })
    : connectTcp({ host, port })
  let code = 'ETIMEDOUT'
  socket.once('connect', () => (code = 'ERR_TLS_HANDSHAKE_TIMEOUT'))
  const timeout = setTimeout(
    () => socket.destroy(Object.assign(new Error(code), { code, syscall: 'connect' })),
    timeoutMs,
  )
  for (const event of [usesTls ? 'secureConnect' : 'connect', 'close'])
    socket.once(event, () => clearTimeout(timeout))
  return socket
}

// ioredis makes another attempt if it gets a closed socket. It would make no further attempt if the promise of
// `connect` were rejected.
const closedSocket = (): Socket => new Socket().destroy()
