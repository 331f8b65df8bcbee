import { request } from 'node:http'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createHealth } from '../observability/health.ts'
import { honoListener, type HttpServer, listen } from './http-server.ts'
import { createLogger } from '../observability/logger.ts'
import { createMetrics } from '../observability/metrics.ts'
import { createServiceApp } from './service-app.ts'

describe('the request body limit of a service', () => {
  const logger = createLogger('test', 'silent')
  let server: HttpServer

  beforeEach(async () => {
    const app = createServiceApp(
      {
        name: 'echo',
        purpose: 'Returns the length of the request body.',
        logger,
        health: createHealth(logger),
        metrics: createMetrics('echo'),
        keys: null,
        maxBodyBytes: 10,
      },
      (routes) =>
        routes.on(['POST', 'PUT'], '/echo', async (c) =>
          c.json({ length: (await c.req.arrayBuffer()).byteLength, type: c.req.header('X-Kept') }),
        ),
    )
    server = await listen(honoListener(app), { host: '127.0.0.1', port: 0 })
  })
  afterEach(() => server[Symbol.asyncDispose]())

  /** Sends a request body with chunked transfer coding, or with `Content-Length` if `length` is given. */
  const send = (method: string, chunks: readonly string[], length?: number) =>
    new Promise<{ status: number | undefined; text: string }>((resolve, reject) => {
      const outgoing = request(
        `${server.url}/echo`,
        {
          method,
          headers: { 'X-Kept': 'yes', ...(length !== undefined && { 'Content-Length': length }) },
        },
        (incoming) => {
          let text = ''
          incoming.on('data', (data: Buffer) => (text += data.toString()))
          incoming.on('end', () => resolve({ status: incoming.statusCode, text }))
        },
      )
      outgoing.on('error', reject)
      for (const chunk of chunks) outgoing.write(chunk)
      outgoing.end()
    })

  it('accepts a chunked body within the limit, and keeps the request headers', async () => {
    const response = await send('POST', ['12345', '67890'])
    expect(response).toEqual({ status: 200, text: JSON.stringify({ length: 10, type: 'yes' }) })
  })

  it('accepts a PUT without a body', async () => {
    expect(await send('PUT', [])).toMatchObject({ status: 200 })
  })

  it('rejects a chunked body beyond the limit with 413', async () => {
    const response = await send('POST', ['12345', '678901'])
    expect(response.status).toBe(413)
    expect(JSON.parse(response.text)).toMatchObject({ code: 'payload_too_large' })
  })

  it('rejects a Content-Length beyond the limit with 413', async () => {
    expect(await send('POST', ['12345678901'], 11)).toMatchObject({ status: 413 })
  })
})
