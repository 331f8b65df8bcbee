import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import {
  type AddressInfo,
  createServer as createNetServer,
  type Server as NetServer,
  type Socket,
} from 'node:net'
import { getRequestListener } from '@hono/node-server'
import type { Hono } from 'hono'
import type { Metrics } from '../observability/metrics.ts'
import { Connections, trackRequest } from './connections.ts'
import { type NodeEnv, sendRaw } from './without-web-streams.ts'

export type NodeListener = (request: IncomingMessage, response: ServerResponse) => void

export interface HttpServer extends AsyncDisposable {
  /** The server's address with the bound port, such as `http://127.0.0.1:7217`. */
  readonly url: string
  readonly port: number
  readonly server: Server
}

export interface ListenOptions {
  readonly host: string
  /** The port to listen on; 0 lets the operating system choose one. */
  readonly port: number
  /** The milliseconds that responses in flight have to finish at shutdown before their connections are closed. */
  readonly drainMs?: number
  /** The metrics that count the connections closed by the server. */
  readonly metrics?: Metrics
  /**
   * If present, this function receives each accepted connection in place of the HTTP server. By calling `serve`, it
   * passes the connection on to the HTTP server.
   */
  readonly onSocket?: (socket: Socket, serve: () => void) => void
}

/** Returns a `node:http` listener for a Hono app, without replacing the global Request and Response. */
export const honoListener = (app: Hono): NodeListener => {
  const listener = getRequestListener(
    async (request, { incoming, outgoing }) => {
      const env = { incoming, outgoing, json: null } as NodeEnv
      return sendRaw(await app.fetch(request, env), env)
    },
    { overrideGlobalObjects: false },
  )
  return (request, response) => void listener(request, response)
}

const MAX_CONNECTIONS = 4_096
const CHECK_INTERVAL_MS = 1_000

/**
 * Serves requests until the returned server is disposed. Disposing stops accepting requests, waits up to `drainMs` for
 * the requests in flight, and closes all connections.
 *
 * @throws the operating system's error if the address cannot be bound.
 */
export async function listen(listener: NodeListener, options: ListenOptions): Promise<HttpServer> {
  const server = createServer(
    {
      maxHeaderSize: 16_384, // a larger head gets the response 431
      headersTimeout: 10_000, // a head that takes longer gets the response 408
      requestTimeout: 30_000,
      keepAliveTimeout: 65_000,
      connectionsCheckingInterval: CHECK_INTERVAL_MS,
    },
    (request, response) => {
      trackRequest(request, response)
      listener(request, response)
    },
  )
  const acceptor = options.onSocket === undefined ? server : acceptorFor(server, options.onSocket)
  const closedConnections = options.metrics?.counter(
    'http_connections_closed_total',
    'Connections that the server closed because they were idle without a key, to make room, or because it was full',
    ['reason'],
  )
  const connections = new Connections(MAX_CONNECTIONS, (reason) =>
    closedConnections?.inc({ reason }),
  )
  acceptor.on('connection', (socket: Socket) => connections.add(socket))
  const idleCheck = setInterval(() => connections.closeExpired(), CHECK_INTERVAL_MS)
  idleCheck.unref()
  // Sends an error response to a request that is malformed or does not arrive in time. A broken socket cannot receive a
  // response. Errors that occur while a response is written are not reported here, but logged by the app.
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    if (!socket.writable) {
      // The socket was ended after a response, and its buffer may still contain a part of that response. The socket is
      // destroyed only when the buffer is empty.
      if (socket.writableLength === 0) return socket.destroy()
      return socket.once('finish', () => socket.destroy())
    }
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
    // By default, Node lets 511 connections wait to be accepted. The kernel drops the handshakes of further clients,
    // which repeat them later.
    acceptor.listen(options.port, options.host, MAX_CONNECTIONS, () => {
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
      // A connection becomes idle only when its last response has been sent, so idle connections are closed repeatedly
      // until no connection is left.
      const sweep = setInterval(() => {
        server.closeIdleConnections()
        // Node does not count a connection as idle if a client opened the connection in advance and never used it.
        for (const socket of connections.all) if (socket.bytesRead === 0) socket.destroy()
      }, 20)
      // Node's `closeAllConnections` does not include the sockets that the gateway serves itself, so all sockets are
      // destroyed here.
      const cut = setTimeout(() => {
        for (const socket of connections.all) socket.destroy()
      }, options.drainMs ?? 5_000)
      await closed
      clearTimeout(cut)
      clearInterval(sweep)
      clearInterval(idleCheck)
    },
  }
}

/**
 * Returns a TCP server that accepts connections in place of `server` and passes each of them to `onSocket`. `server`
 * itself does not listen.
 */
function acceptorFor(server: Server, onSocket: NonNullable<ListenOptions['onSocket']>): NetServer {
  // These are the socket options that Node's HTTP server uses as well.
  const acceptor = createNetServer({ allowHalfOpen: true, noDelay: true })
  acceptor.on('connection', (socket) => {
    // Node's documentation of the event `connection` allows emitting it: "This event can also be explicitly emitted by
    // users to inject connections into the HTTP server."
    onSocket(socket, () => void server.emit('connection', socket))
  })
  // An HTTP server enforces headersTimeout and requestTimeout only after its event `listening`. `server` does not
  // listen itself, so the event is emitted here.
  acceptor.on('listening', () => void server.emit('listening'))
  acceptor.on('close', () => void server.close())
  return acceptor
}
