import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import {
  type AddressInfo,
  createServer as createNetServer,
  type Server as NetServer,
  type Socket,
} from 'node:net'
import { getRequestListener } from '@hono/node-server'
import type { Hono } from 'hono'

export type NodeListener = (request: IncomingMessage, response: ServerResponse) => void

export interface HttpServer extends AsyncDisposable {
  /** `http://127.0.0.1:7217`, with the port really bound. */
  readonly url: string
  readonly port: number
  readonly server: Server
}

export interface ListenOptions {
  readonly host: string
  /** 0 lets the system choose. */
  readonly port: number
  /** Milliseconds that answers in hand get at shutdown before their connections are cut. */
  readonly drainMs?: number
  /** Gets every accepted connection in place of the HTTP server; `serve` gives it to that. */
  readonly onSocket?: (socket: Socket, serve: () => void) => void
}

/** A Hono app as a listener for `node:http`; the global Request and Response stay Node's own. */
export const honoListener = (app: Hono): NodeListener => {
  const listener = getRequestListener(app.fetch, { overrideGlobalObjects: false })
  return (request, response) => void listener(request, response)
}

/**
 * Serves until disposed: then it takes no new request, lets those in hand finish for `drainMs` and closes.
 *
 * @throws the system's error when the address cannot be bound.
 */
export async function listen(listener: NodeListener, options: ListenOptions): Promise<HttpServer> {
  const server = createServer(
    {
      maxHeaderSize: 16_384, // 431 beyond
      headersTimeout: 10_000, // 408 beyond: slow headers hold a socket, nothing else
      requestTimeout: 30_000,
      keepAliveTimeout: 65_000,
      connectionsCheckingInterval: 1_000,
    },
    listener,
  )
  const acceptor = options.onSocket === undefined ? server : acceptorFor(server, options.onSocket)
  acceptor.maxConnections = 4_096
  const sockets = new Set<Socket>()
  acceptor.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
  })
  // Answers that failed half-way are the app's to log; a broken socket is nobody's.
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    if (!socket.writable) return socket.destroy()
    const status =
      error.code === 'HPE_HEADER_OVERFLOW'
        ? '431 Request Header Fields Too Large'
        : error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
          ? '408 Request Timeout'
          : '400 Bad Request'
    return socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`)
  })
  await new Promise<void>((resolve, reject) => {
    acceptor.once('error', reject)
    acceptor.listen(options.port, options.host, () => {
      acceptor.off('error', reject)
      resolve()
    })
  })
  const { port } = acceptor.address() as AddressInfo
  const host = options.host.includes(':') ? `[${options.host}]` : options.host
  return {
    url: `http://${host === '0.0.0.0' || host === '[::]' ? '127.0.0.1' : host}:${port}`,
    port,
    server,
    async [Symbol.asyncDispose]() {
      const closed = new Promise<void>((resolve) => acceptor.close(() => resolve()))
      // A connection is idle only once its last answer is out, so it takes more than one look.
      const sweep = setInterval(() => {
        server.closeIdleConnections()
        // One opened ahead of need, and never used, does not count as idle to Node.
        for (const socket of sockets) if (socket.bytesRead === 0) socket.destroy()
      }, 20)
      // Node's own `closeAllConnections` knows only those that it serves itself.
      const cut = setTimeout(() => {
        for (const socket of sockets) socket.destroy()
      }, options.drainMs ?? 5_000)
      await closed
      clearTimeout(cut)
      clearInterval(sweep)
    },
  }
}

/** Accepts connections for `server`, which does not listen itself, and gives each of them to `onSocket`. */
function acceptorFor(server: Server, onSocket: NonNullable<ListenOptions['onSocket']>): NetServer {
  // The socket options of an HTTP server.
  const acceptor = createNetServer({ allowHalfOpen: true, noDelay: true })
  acceptor.on('connection', (socket) => {
    // Documented: "This event can also be explicitly emitted by users to inject connections into the HTTP server."
    onSocket(socket, () => void server.emit('connection', socket))
  })
  // On `listening` Node starts to enforce headersTimeout and requestTimeout, which a server that does not listen lacks.
  acceptor.on('listening', () => void server.emit('listening'))
  acceptor.on('close', () => void server.close())
  return acceptor
}
