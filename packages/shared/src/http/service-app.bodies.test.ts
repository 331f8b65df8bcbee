import { once } from 'node:events'
import { request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createHealth } from '../observability/health.ts'
import { honoListener, type HttpServer, listen } from './http-server.ts'
import { createLogger } from '../observability/logger.ts'
import { createMetrics, type Metrics } from '../observability/metrics.ts'
import { createServiceApp } from './service-app.ts'
import { eventually } from '../../test-support/eventually.ts'

describe('the request body limit of a service', () => {
  const logger = createLogger('test', 'silent')
  let server: HttpServer
  let metrics: Metrics

  beforeEach(async () => {
    metrics = createMetrics('echo')
    const app = createServiceApp(
      {
        name: 'echo',
        purpose: 'Returns the length of the request body.',
        logger,
        health: createHealth(logger),
        metrics,
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

  it('a service accepts a chunked request body within the size limit, and its handler still receives the request headers', async () => {
    const response = await send('POST', ['12345', '67890'])
    expect(response).toEqual({ status: 200, text: JSON.stringify({ length: 10, type: 'yes' }) })
  })

  it('a service accepts a PUT request without a body', async () => {
    expect(await send('PUT', [])).toMatchObject({ status: 200 })
  })

  it('a service responds 413 to a chunked request body beyond the size limit', async () => {
    const response = await send('POST', ['12345', '678901'])
    expect(response.status).toBe(413)
    expect(JSON.parse(response.text)).toMatchObject({ code: 'payload_too_large' })
  })

  it('a service responds 413 to a Content-Length beyond the size limit', async () => {
    expect(await send('POST', ['12345678901'], 11)).toMatchObject({ status: 413 })
  })

  it.each([
    ['with its head', ['12345'], []],
    ['after its head', [], ['12345']],
    ['in two parts', ['12'], ['345']],
  ])(
    'a service reads a request body that arrives %s, and the next request of the connection',
    async (_, first, later) => {
      const head = 'POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n'
      const socket = connect(server.port, '127.0.0.1').setEncoding('latin1')
      try {
        for (let n = 0; n < 2; n += 1) {
          const hasBegun = once(server.server, 'request')
          socket.write([head, ...first].join(''))
          await hasBegun
          for (const part of later) socket.write(part)
          expect(await textOf(socket)).toMatch(/^HTTP\/1\.1 200 OK\r\n.*\{"length":5\}$/s)
        }
      } finally {
        socket.destroy()
      }
    },
  )

  it('a chunked request body that the client ends early is not counted as a failure of the service', async () => {
    const socket = connect(server.port, '127.0.0.1')
    socket.write(
      'POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n',
    )
    await once(socket, 'ready')
    await eventually(async () => expect(await getConnections(server)).toBe(1))
    socket.destroy()
    await eventually(async () =>
      expect(await metrics.read()).toMatch(/http_request_duration_seconds_count\{.*status="400"/),
    )
    expect(await metrics.read()).not.toContain('status="500"')
  })
})

/** Returns the next response of the connection, which ends with a JSON object. */
async function textOf(socket: Socket): Promise<string> {
  let text = ''
  while (!text.endsWith('}')) text += ((await once(socket, 'data')) as [string])[0]
  return text
}

const getConnections = ({ server }: HttpServer): Promise<number> =>
  new Promise((resolve, reject) =>
    server.getConnections((error, count) => (error === null ? resolve(count) : reject(error))),
  )
