/**
 * The fast path serves calls to the accounting API (`/v3/company/…`) without Node's HTTP server. It serves GET and POST
 * requests whose body is small and has a known length.
 *
 * Nearly all of the gateway's load consists of such requests. Reading the request and writing the response through
 * `node:http` costs more processor time than everything else in a call (docs/adr/0014). With `FAST_PATH=off` the fast
 * path is not created, and `node:http` serves every connection.
 *
 * The fast path accepts one HTTP/1.1 request at a time. Its head must arrive in one read of the socket, be at most 16
 * KiB long and contain a `Host` header. Its body must have a `Content-Length` of at most 256 KiB, and must arrive within
 * about a second. The request must also be a call to `/v3/company/…` with a valid service key; for such a request
 * `serve` returns true.
 *
 * The fast path does not accept other methods or versions; requests with `Transfer-Encoding`, `Expect`, `Upgrade` or
 * `Connection: close`; a head that arrives in several reads; several requests in one read; bytes that the parser
 * rejects; and requests that the gateway has to reject, for example because of an invalid key or target.
 *
 * I1  A connection stays on the fast path as long as each of its requests is accepted. At the first request that is not
 *     accepted, the connection and the bytes of this request are handed over to `node:http`, which serves the
 *     connection from then on. So only `node:http` and the listener behind it reject requests.
 * I2  Each connection has at most one request in flight. Bytes that arrive while a request is in flight (pipelining,
 *     RFC 9112 §9.3.2) are parsed only after the response has been written and the socket's write buffer has drained.
 */
import type { Socket } from 'node:net'
import { FastPathConnection } from './connection.ts'
import { type BufferedRequest, RequestReader } from './request-reader.ts'
import type { FastPathResponse } from './response.ts'

export interface FastPath {
  /** Serves a new connection on the fast path. Calls `handOver` to hand the connection over to `node:http`. */
  accept(socket: Socket, handOver: () => void): void
  /**
   * Closes idle connections at once, and each other connection after its current response. Hands new connections over
   * to `node:http`.
   */
  shutDown(): void
}

/** Serves a request. Returns false, without any effect, if `node:http` has to serve the request. */
export type Serve = (request: BufferedRequest, response: FastPathResponse) => boolean

export interface FastPathDeps {
  readonly serve: Serve
  /** Returns whether `serve` will serve this request when the body of the request is complete. */
  readonly mayBuffer: (request: BufferedRequest) => boolean
}

const IDLE_CHECK_MS = 1_000

export function createFastPath({ serve, mayBuffer }: FastPathDeps): FastPath {
  // All connections share one parser. That is safe because each request is parsed within one synchronous call.
  const reader = new RequestReader()
  const connections = new Set<FastPathConnection>()
  let isShuttingDown = false
  const idleCheck = setInterval(() => {
    const now = performance.now()
    for (const connection of connections) connection.checkTimeout(now)
  }, IDLE_CHECK_MS)
  idleCheck.unref()

  return {
    accept(socket, handOver) {
      if (isShuttingDown) return handOver()
      const connection = new FastPathConnection(socket, {
        reader,
        serve,
        mayBuffer,
        handOver,
        onRemoved: () => connections.delete(connection),
      })
      connections.add(connection)
    },
    shutDown() {
      isShuttingDown = true
      clearInterval(idleCheck)
      for (const connection of connections) connection.shutDown()
    },
  }
}
