import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { expect, it } from 'vitest'
import { listen } from './http-server.ts'

it('shuts down immediately if a client opened a connection in advance and never used it', async () => {
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

it('closes every connection after the drain time, also one that is not served by node:http', async () => {
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
