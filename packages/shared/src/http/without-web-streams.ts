/**
 * Reads and writes bodies with Node's own request and response objects, in place of the classes of the fetch standard.
 *
 * The standard's Request and Response make a Web stream of each body. For a short request that takes longer than all
 * middleware together (docs/performance.md), and for many slow clients several times the memory. A route works without
 * this file: `c.json` is `rawJson`, and `c.body` with a stream is `rawResponse`.
 */
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http'
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response'
import type { Context } from 'hono'
import type { ContentfulStatusCode } from 'hono/utils/http-status'

/** The value of `c.env` in a handler. `@hono/node-server` gives the first two members. */
export interface NodeEnv {
  readonly incoming: IncomingMessage
  readonly outgoing: ServerResponse
  /** Writes the body. Set by `rawResponse`. */
  startWriting?: () => void
  /** The body that `rawJson` has prepared; `null` if the handler did not call it. */
  json: string | null
}

/**
 * Returns a 200 response whose body the handler writes directly to Node's response object.
 *
 * `open` is called immediately and returns the function that writes the body. This function is called after the head
 * has been sent with the headers of all middleware. For HEAD, neither function is called. The app must be served by
 * `honoListener`.
 */
export function rawResponse(
  c: Context,
  headers: Record<string, string>,
  open: (outgoing: ServerResponse) => () => void,
): Response {
  const env = c.env as NodeEnv
  if (env.incoming.method !== 'HEAD') env.startWriting = open(env.outgoing)
  // This stream is never read, because `sendRaw` writes the response itself. The stream only marks the response as having
  // a body.
  return c.body(new ReadableStream(), 200, headers)
}

/**
 * Returns a JSON response like `c.json`, for routes that are called often. Middleware sees a response without a body. If
 * `honoListener` does not serve the app, the result is that of `c.json`.
 */
export function rawJson(c: Context, value: object, status: ContentfulStatusCode = 200): Response {
  const env = c.env as Partial<NodeEnv> | undefined
  if (env?.json === undefined) return c.json(value, status)
  env.json = JSON.stringify(value)
  // Content-Length is added when the response is sent: Hono would copy it to an error response that replaces this one.
  return c.body(null, status, { 'Content-Type': 'application/json' })
}

/** Sends a response of `rawResponse` or `rawJson`. Returns any other response unchanged. */
export function sendRaw(response: Response, { outgoing, startWriting, json }: NodeEnv): Response {
  const isJson = json !== null && response.body === null
  if ((startWriting === undefined && !isJson) || !response.ok) return response
  const headers: OutgoingHttpHeaders = Object.fromEntries(response.headers)
  if (isJson) headers['content-length'] = Buffer.byteLength(json)
  outgoing.writeHead(response.status, headers)
  if (isJson) outgoing.end(json)
  else startWriting?.()
  return RESPONSE_ALREADY_SENT
}

/**
 * Calls `listener` when the response has been sent, or when the connection has been closed, whichever is first, as the
 * signal of Hono's request does. If `honoListener` does not serve the app, `listener` is not called.
 */
export function onResponseClosed(c: Context, listener: () => void): void {
  const { outgoing } = (c.env ?? {}) as Partial<NodeEnv>
  if (outgoing?.closed === true) listener()
  else outgoing?.once('close', listener)
}

/**
 * Reads the body if all of it has arrived with the head, as most bodies do. @hono/node-server then uses this buffer
 * instead of reading a stream.
 */
export async function keepArrivedBody(c: Context, length: number): Promise<void> {
  // Node's parser adds the body to the request only after its callback for the head, which calls this middleware, has
  // returned. Microtasks run after that.
  await Promise.resolve()
  const { incoming } = (c.env ?? {}) as { readonly incoming?: WithRawBody }
  if (incoming === undefined || incoming.readableDidRead) return
  if (incoming.readableLength !== length) return
  incoming.rawBody = (incoming.read() as Buffer | null) ?? Buffer.alloc(0)
  incoming.resume() // only a stream that flows reports its end, which Node awaits before the next request
}

/** The member from which @hono/node-server takes a body that was read before. */
type WithRawBody = IncomingMessage & { rawBody?: Buffer }
