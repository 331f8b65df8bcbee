import type { MiddlewareHandler } from 'hono'
import { IntegrationError } from '../errors.ts'
import { keepArrivedBody } from './without-web-streams.ts'

/** Whether requests with this method may have a body. */
export const hasBody = (method: string): boolean => method !== 'GET' && method !== 'HEAD'

/**
 * Responds with 413 to a body larger than the limit of its path; `null` stands for no limit. Hono's own middleware is
 * not used, because it makes a Web stream of every body (without-web-streams.ts). It also copies a Request with a chunked
 * body, and the Request class of @hono/node-server can be copied only if it replaces the global Request, which
 * `honoListener` does not do.
 */
export function limitBody(maxBytesAt: (path: string) => number | null): MiddlewareHandler {
  return async (c, next) => {
    const { headers, method } = c.req.raw
    const maxBytes = hasBody(method) ? maxBytesAt(c.req.path) : null
    if (maxBytes === null) return next()
    const length = headers.get('Content-Length')
    if (length !== null && !headers.has('Transfer-Encoding')) {
      if (Number(length) > maxBytes) throw tooLarge(maxBytes)
      await keepArrivedBody(c, Number(length))
      return next()
    }
    // The property `raw.body` is read last, because reading it makes a Web stream. As long as this property is not read,
    // @hono/node-server reads the body directly.
    const { body } = c.req.raw
    if (body === null) return next()
    c.req.raw = new Request(c.req.url, {
      method,
      headers: [...headers],
      body: await readBody(body as AsyncIterable<Uint8Array>, maxBytes),
      signal: c.req.raw.signal,
    })
    return next()
  }
}

/**
 * Reads a request body completely.
 *
 * @throws {IntegrationError} `payload_too_large` if the body exceeds `maxBytes`; `invalid_request` if the client ends
 * the body early.
 */
async function readBody(body: AsyncIterable<Uint8Array>, maxBytes: number): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  let size = 0
  try {
    for await (const chunk of body) {
      size += chunk.length
      if (size > maxBytes) throw tooLarge(maxBytes)
      chunks.push(chunk)
    }
  } catch (cause) {
    if (cause instanceof IntegrationError) throw cause
    // The client has closed its connection. This is not a failure of the service.
    throw new IntegrationError('invalid_request', 'the body is not complete', { cause })
  }
  return Buffer.concat(chunks)
}

const tooLarge = (maxBytes: number): IntegrationError =>
  new IntegrationError('payload_too_large', `the body may have at most ${maxBytes} bytes`)
