import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import {
  type AddressInfo,
  createServer as createNetServer,
  type Server as NetServer,
  type Socket,
} from 'node:net'
import { getRequestListener } from '@hono/node-server'
import type { Context, Hono } from 'hono'
import type { Metrics } from '../observability/metrics.ts'
import { Connections, trackRequest } from './connections.ts'

export type NodeListener = (request: IncomingMessage, response: ServerResponse) => void

export interface HttpServer extends AsyncDisposable {
  /** `http://127.0.0.1:7217`, with the port that was bound. */
  readonly url: string
  readonly port: number
  readonly server: Server
}

export interface ListenOptions {
  readonly host: string
  /** 0 lets the operating system choose. */
  readonly port: number
  /** Milliseconds that responses in flight get at shutdown before their connections are closed. */
  readonly drainMs?: number
  /** Where the connections that the server closes are counted. */
  readonly metrics?: Metrics
  /** Gets every accepted connection in place of the HTTP server; `serve` gives it to that. */
  readonly onSocket?: (socket: Socket, serve: () => void) => void
}

/** What `@hono/node-server` gives a handler as `c.env`, and what `rawResponse` adds. */
interface NodeEnv {
  readonly incoming: IncomingMessage
  readonly outgoing: ServerResponse
  startWriting?: () => void
}

/** Returns a `node:http` listener for a Hono app, without replacing the global Request and Response. */
export const honoListener = (app: Hono): NodeListener => {
  const respond = async (request: Request, env: NodeEnv): Promise<Response> => {
    const response = await app.fetch(request, env)
    if (env.startWriting === undefined || !response.ok) return response
    env.outgoing.writeHead(response.status, Object.fromEntries(response.headers))
    env.startWriting()
    return new Response(null, { headers: { 'x-hono-already-sent': 'true' } })
  }
  const listener = getRequestListener((request, env) => respond(request, env as NodeEnv), {
    overrideGlobalObjects: false,
  })
  return (request, response) => void listener(request, response)
}

const MAX_CONNECTIONS = 4_096
const CHECK_INTERVAL_MS = 1_000

/**
 * Returns a 200 response whose body a handler writes to Node's response by itself: a Web stream for each of many slow
 * clients costs several times as much. `open` is called at once; the function it returns is called when the head has
 * been sent with the headers of all middleware. For HEAD neither is called. Works behind `honoListener` only.
 */
export function rawResponse(
  c: Context,
  headers: Record<string, string>,
  open: (outgoing: ServerResponse) => () => void,
): Response {
  const env = c.env as NodeEnv
  if (env.incoming.method !== 'HEAD') env.startWriting = open(env.outgoing)
  // Never read: `honoListener` responds itself. It only marks a response that has a body.
  return c.body(new ReadableStream(), 200, headers)
}

/**
 * Serves until disposed: then it accepts no new request, lets those in flight finish for `drainMs`, and closes.
 *
 * @throws the system's error if the address cannot be bound.
 */
export async function listen(listener: NodeListener, options: ListenOptions): Promise<HttpServer> {
  const server = createServer(
    {
      maxHeaderSize: 16_384, // 431 beyond
      headersTimeout: 10_000, // 408 beyond; a slow client only occupies its socket
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
  // Only malformed or late requests get a response here. Failed responses are logged by the app; a broken socket needs none.
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    if (!socket.writable) {
      // A socket that was ended after a response may still have that response in its buffer.
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
      // A connection becomes idle only after its last response was sent, so idle ones are closed repeatedly.
      const sweep = setInterval(() => {
        server.closeIdleConnections()
        // Node does not count a connection as idle that a client opened in advance and never used.
        for (const socket of connections.all) if (socket.bytesRead === 0) socket.destroy()
      }, 20)
      // `closeAllConnections` of Node does not know the sockets that the gateway serves itself.
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
