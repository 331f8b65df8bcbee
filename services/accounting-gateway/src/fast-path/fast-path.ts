/**
 * The fast path: serves company calls that are a complete GET without a body, without Node's HTTP server.
 *
 * Why it exists: such GETs are nearly all of the gateway's load, and reading the request and writing the response
 * through `node:http` costs more processor time than everything else in a call (docs/adr/0014). With
 * `FAST_PATH=off` it is not created, and every connection is served by `node:http`.
 *
 * What it accepts: one HTTP/1.1 GET at a time that arrives in one read of the socket, at most 16 KiB long, with a
 * `Host` header, and for which `serve` returns true (a company call with a valid service key).
 *
 * What it never accepts: any other method or version; a request with `Content-Length`, `Transfer-Encoding`,
 * `Expect` or `Upgrade`; `Connection: close`; a request in several reads or several requests in one; bytes that the
 * parser rejects; and requests that the gateway has to reject, for example for an invalid key or target.
 *
 * I1  A connection stays on the fast path while each of its requests is accepted. At the first request that is not,
 *     the connection and the bytes of that request are given to `node:http`, which serves the connection from then
 *     on. So every rejection is decided in one place, by `node:http` and the listener behind it.
 * I2  One request is in flight per connection. Bytes that arrive meanwhile (pipelining, RFC 9112 §9.3.2) are not
 *     parsed before its response is written and the socket's buffer has drained.
 */
import type { Socket } from 'node:net'
import type { CallerResponse } from '../proxy/caller.ts'
import { FastPathConnection } from './connection.ts'
import { type BodilessGet, RequestReader } from './request-reader.ts'

export interface FastPath {
  /** Serves a new connection; `handOver` gives it to `node:http`. */
  accept(socket: Socket, handOver: () => void): void
  /** Closes idle connections at once and all others after their response; new ones go to `node:http`. */
  shutDown(): void
}

/** Serves a request. Returns false without any effect if the request does not belong on the fast path. */
export type Serve = (request: BodilessGet, response: CallerResponse) => boolean

const IDLE_CHECK_MS = 1_000

export function createFastPath(serve: Serve): FastPath {
  // One parser for all connections: each request is parsed in one synchronous call.
  const reader = new RequestReader()
  const connections = new Set<FastPathConnection>()
  let isShuttingDown = false
  const idleCheck = setInterval(() => {
    const now = performance.now()
    for (const connection of connections) connection.closeIfIdle(now)
  }, IDLE_CHECK_MS)
  idleCheck.unref()

  return {
    accept(socket, handOver) {
      if (isShuttingDown) return handOver()
      const connection = new FastPathConnection(socket, {
        reader,
        serve,
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
