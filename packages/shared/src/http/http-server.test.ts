import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { expect, it, vi } from 'vitest'
import { listen } from './http-server.ts'

it('the HTTP server shuts down without a delay although a client has opened a connection in advance and never used it', async () => {
  const server = await listen((_request, response) => response.end(), {
    host: '127.0.0.1',
    port: 0,
    drainMs: 60_000,
  })
  const socket = connect(server.port, '127.0.0.1')
  await once(server.server, 'connection')
  const closed = once(socket, 'close')
  await server[Symbol.asyncDispose]()
  await closed
  expect(socket.destroyed).toBe(true)
})

it('the HTTP server closes every connection after the drain time, even a connection that node:http does not serve', async () => {
  const server = await listen((_request, response) => response.end(), {
    host: '127.0.0.1',
    port: 0,
    drainMs: 50,
  })
  const [admit] = server.server.listeners('connection') as (() => void)[]
  if (admit !== undefined) server.server.off('connection', admit)
  const accepted = once(server.server, 'connection')
  const socket = connect(server.port, '127.0.0.1')
  socket.write('bytes')
  const [theirs] = (await accepted) as [Socket]
  await once(theirs, 'data')
  const closed = once(socket, 'close')
  await server[Symbol.asyncDispose]()
  await closed
  expect(theirs.destroyed).toBe(true)
})

it.each([
  ['400 response to a malformed request', 'malformed\r\n\r\n', 400],
  [
    '417 response to an unknown Expect header',
    'GET / HTTP/1.1\r\nHost: x\r\nExpect: all\r\n\r\n',
    417,
  ],
])(
  'the HTTP server closes a connection 30 s after a %s if the client does not close it',
  async (_, text, status) => {
    vi.useFakeTimers({ toFake: ['performance', 'setInterval', 'clearInterval'] })
    try {
      await using server = await listen((_request, response) => response.end(), {
        host: '127.0.0.1',
        port: 0,
      })
      // With `allowHalfOpen`, the client keeps its side open when the server closes the connection.
      const client = connect({ port: server.port, host: '127.0.0.1', allowHalfOpen: true })
      const accepted = once(server.server, 'connection')
      client.on('error', () => {})
      client.write(text)
      const [theirs] = (await accepted) as [Socket]
      const [response] = (await once(client, 'data')) as [Buffer]
      expect(response.toString()).toContain(`HTTP/1.1 ${status} `)
      vi.advanceTimersByTime(29_000)
      expect(theirs.destroyed).toBe(false)
      vi.advanceTimersByTime(2_000)
      expect(theirs.destroyed).toBe(true)
      client.destroy()
    } finally {
      vi.useRealTimers()
    }
  },
)
