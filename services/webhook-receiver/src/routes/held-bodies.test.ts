/**
 * Tests the limit on the memory of all request bodies together, with clients that never finish sending a body and with
 * a broker that confirms nothing.
 */
import { type Socket, connect } from 'node:net'
import { createInProcessBus } from '@integration-host/shared/messaging/in-process/message-bus'
import { createLogger } from '@integration-host/shared/observability/logger'
import { until } from '@integration-host/shared/test-support/eventually'
import { expect, it } from 'vitest'
import { CHANGE_ID, legacyNotification } from '../../test-support/notifications.ts'
import { startReceiver } from '../../test-support/receiver-fixture.ts'

const MIB = 1_048_576
/** The number of bodies of maximum size that fit into the memory of 16 MiB. */
const ROOM = 16
const BODY = JSON.stringify(legacyNotification())
const LARGEST_BODY = BODY.padEnd(MIB)

it('the receiver accepts a webhook while clients keep open more unfinished bodies than fit into its memory', async () => {
  await using receiver = await startReceiver({ deadlineMs: 60_000 })
  const sockets: Socket[] = []
  const statuses: string[] = []
  for (let index = 0; index < ROOM + 4; index += 1) {
    const socket = connect(receiver.port, '127.0.0.1')
    sockets.push(socket)
    socket.on('error', () => {})
    socket.on('data', (data) => void statuses.push(data.toString('latin1').slice(9, 12)))
    socket.write(`POST /webhooks/intuit HTTP/1.1\r\nHost: r\r\nContent-Length: ${MIB}\r\n\r\n`)
    socket.write('x'.repeat(MIB - 1))
  }
  // If no memory is free, each further body drops the oldest incomplete body.
  await until(() => statuses.length === 4)
  expect(statuses).toEqual(['503', '503', '503', '503'])
  expect(await receiver.metric('webhook_body_bytes')).toBeLessThanOrEqual(ROOM * MIB)
  expect((await receiver.send(LARGEST_BODY)).status).toBe(200)
  await receiver.expectIds([CHANGE_ID])
  for (const socket of sockets) socket.destroy()
  await until(async () => (await receiver.metric('webhook_body_bytes')) === 0)
})

it('the receiver rejects a webhook with 503 while the memory is full of complete bodies that wait for the broker', async () => {
  const released = Promise.withResolvers<void>()
  const bus = createInProcessBus(createLogger('test', 'silent'))
  const waiting = {
    ...bus,
    async publish(message: Parameters<typeof bus.publish>[0]) {
      await released.promise
      return bus.publish(message)
    },
  }
  await using receiver = await startReceiver({ bus: waiting, deadlineMs: 60_000 })
  const held = Array.from({ length: ROOM }, () => receiver.send(LARGEST_BODY))
  await until(async () => (await receiver.metric('webhook_body_bytes')) === ROOM * MIB)
  const rejected = await receiver.send(BODY)
  expect(rejected.status).toBe(503)
  expect(await rejected.json()).toMatchObject({ code: 'too_many_deliveries' })
  expect(rejected.headers.get('Retry-After')).toBe('10')
  released.resolve()
  for (const response of await Promise.all(held)) expect(response.status).toBe(200)
  expect((await receiver.send(BODY)).status).toBe(200)
  await receiver.expectIds(Array(ROOM + 1).fill(CHANGE_ID))
})
