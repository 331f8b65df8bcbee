import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { assert, expect, it } from 'vitest'
import { connectorOptions } from './connector.ts'

it('a second error of a Redis socket neither ends the process nor replaces the first error as the reported reason', async () => {
  await using server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const next = () => ({ host: '127.0.0.1', port })
  const { Connector } = connectorOptions({ next, usesTls: false, tls: undefined, timeoutMs: 5_000 })
  assert(Connector)
  const connector = new Connector({})
  const socket = await connector.connect(() => {})
  socket.emit('error', new Error('first'))
  socket.emit('error', new Error('second'))
  expect(connector.firstError).toEqual(new Error('first'))
  socket.destroy()
})
