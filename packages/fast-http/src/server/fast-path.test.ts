import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { LONG, slowCaller, startFastPath } from '../../test-support/start-fast-path.ts'
import type { Serve } from './fast-path.ts'
import type { FastPathResponse } from './response.ts'

// The tests of the gateway compare the responses of its fast path with those of `node:http`.

let opened: AsyncDisposableStack
beforeEach(() => {
  opened = new AsyncDisposableStack()
})
afterEach(() => opened.disposeAsync())

const get = (): string => 'GET /v3/company/1/x HTTP/1.1\r\nHost: x\r\n\r\n'
const post = (body: string): string =>
  `POST /v3/company/1/x HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`

async function caller(port: number): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true })
  opened.defer(() => void socket.destroy())
  socket.on('error', () => {})
  await once(socket, 'connect')
  return socket
}

const written = (socket: Socket, bytes: string): Promise<void> =>
  new Promise((resolve) => socket.write(bytes, 'latin1', () => resolve()))

const respondLong: Serve = (_request, response) => {
  response.writeHead(200, ['Content-Length', String(LONG.length)])
  response.end(LONG)
  return true
}

it('the fast path serves a POST whose body arrives in several parts', async () => {
  const bodies: string[] = []
  const { port, sockets } = await startFastPath(opened, (request, response) => {
    bodies.push(Buffer.concat(request.body).toString('latin1'))
    response.writeHead(200, ['Content-Length', '0'])
    response.end()
    return true
  })
  const socket = await caller(port)
  const request = post('a'.repeat(1_000))
  for (const [from, to] of [
    [0, 300],
    [300, 700],
  ] as const) {
    await written(socket, request.slice(from, to))
    await eventually(() => expect(sockets[0]?.bytesRead).toBe(to))
  }
  expect(bodies).toEqual([])
  await written(socket, request.slice(700))
  expect(String((await once(socket, 'data'))[0])).toMatch('HTTP/1.1 200 ')
  expect(bodies).toEqual(['a'.repeat(1_000)])
})

it('the fast path hands a POST of a caller without a valid key over to node:http and does not buffer its body', async () => {
  const serve = vi.fn<Serve>()
  const { port } = await startFastPath(opened, serve, { mayBuffer: false })
  const socket = await caller(port)
  const closed = once(socket, 'close')
  socket.write(post('a'.repeat(1_000)).slice(0, 500))
  await closed // `startFastPath` closes the connections that are handed over.
  expect(serve).not.toHaveBeenCalled()
})

it('at shutdown, the fast path hands a POST whose body is incomplete over to node:http', async () => {
  const serve = vi.fn<Serve>()
  const { port, fastPath, sockets } = await startFastPath(opened, serve)
  const socket = await caller(port)
  const closed = once(socket, 'close')
  socket.write(post('a'.repeat(1_000)).slice(0, 500))
  await eventually(() => expect(sockets[0]?.bytesRead).toBe(500))
  fastPath.shutDown()
  await closed
  expect(serve).not.toHaveBeenCalled()
})

it('at shutdown, the fast path completes a response that the caller has not read yet before it closes the connection', async () => {
  const { fastPath, port, sockets } = await startFastPath(opened, respondLong)
  const { socket, reads } = await slowCaller(opened, port)
  socket.write(get())
  await eventually(() => expect(sockets[0]?.writableNeedDrain).toBe(true))
  fastPath.shutDown()
  const closed = once(socket, 'close')
  expect(await reads(LONG.length)).toBe(true)
  await closed
})

it('during shutdown, the fast path closes a connection after its last response, even if the caller keeps it open', async () => {
  const requested = Promise.withResolvers<FastPathResponse>()
  const { fastPath, port, sockets } = await startFastPath(opened, (_request, response) => {
    requested.resolve(response)
    return true
  })
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
  opened.defer(() => void socket.destroy())
  socket.write(get())
  const response = await requested.promise
  fastPath.shutDown()
  response.writeHead(200, ['Content-Length', '0'])
  response.end()
  await eventually(() => expect(sockets[0]?.closed).toBe(true))
})

it('the fast path accepts no further requests from a caller that does not read its responses', async () => {
  const serve = vi.fn<Serve>(respondLong)
  const { port, sockets } = await startFastPath(opened, serve)
  const { socket, reads } = await slowCaller(opened, port)
  for (let n = 1; n <= 3; n += 1) {
    await written(socket, get())
    await eventually(() => expect(sockets[0]?.bytesRead).toBe(n * get().length))
  }
  expect(serve).toHaveBeenCalledOnce()
  expect(await reads(3 * LONG.length)).toBe(true)
})
