import { once } from 'node:events'
import { createServer, type AddressInfo, type Server } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { mutated } from './mutate.ts'
import { exchange } from './raw-http.ts'

let server: Server
afterEach(() => void server.close())

/** Starts a server that responds to each request with the given bytes and then closes the connection. */
async function serve(bytes: string): Promise<number> {
  server = createServer((socket) => {
    socket.on('error', () => {})
    socket.once('data', () => socket.end(bytes))
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}
const request = Buffer.from('GET / HTTP/1.1\r\n\r\n')

describe('the strict HTTP client of the fuzz tests', () => {
  it('the strict HTTP client accepts complete responses with a length, with chunks, and without a body', async () => {
    const port = await serve(
      'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n',
    )
    expect(await exchange(port, request)).toEqual([
      { status: 200, body: 'ok' },
      { status: 201, body: 'a' },
      { status: 204, body: '' },
    ])
  })

  it.each([
    ['bytes after a response', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok!'],
    ['a body that is too short', 'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok'],
    ['a malformed header', 'HTTP/1.1 200 OK\r\nA B: c\r\nContent-Length: 0\r\n\r\n'],
    ['an incomplete chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\na'],
  ])('the strict HTTP client rejects %s', async (_, bytes) => {
    const port = await serve(bytes)
    await expect(exchange(port, request)).rejects.toThrow(/not a |not complete/)
  })
})

it('the mutation of an input depends only on the seed, and different seeds give different inputs', () => {
  const inputs = [Buffer.from('GET /one HTTP/1.1'), Buffer.from('GET /two HTTP/1.1')]
  expect(mutated(inputs, 7)).toEqual(mutated(inputs, 7))
  const different = new Set(
    Array.from({ length: 100 }, (_, seed) => mutated(inputs, seed).toString('hex')),
  )
  expect(different.size).toBeGreaterThan(50)
})
