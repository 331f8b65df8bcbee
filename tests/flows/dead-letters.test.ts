/**
 * Imports the policies of deploy/definitions.json into a broker that already has the queues. `npm run test:compose`
 * tests the same policies with RabbitMQ 4.
 */
import { join } from 'node:path'
import { processTopology } from '@integration-host/shared/contracts/topology'
import { queueArguments } from '@integration-host/shared/messaging/rabbitmq/messages'
import { connect } from 'amqplib'
import { expect, it } from 'vitest'
import { startRestartableRabbitMq } from '../support/backends/restartable-servers.ts'

const DEFINITIONS = join(import.meta.dirname, '../../deploy/definitions.json')

it('a dead-letter queue keeps a message that is read and requeued more often than the default delivery limit', async () => {
  await using broker = await startRestartableRabbitMq()
  const connection = await connect(broker.url)
  const channel = await connection.createConfirmChannel()
  const [dead] = processTopology('OrderProcess', []).queues
  if (dead === undefined) throw new Error('the process has no dead-letter queue')
  const declare = () =>
    channel.assertQueue(dead.name, { arguments: queueArguments(dead, ''), durable: true })
  await declare()
  await broker.control('import_definitions', DEFINITIONS)

  // A policy does not change the arguments of a queue. A coordinator that starts after the import can therefore
  // still declare the queue.
  await declare()
  const queues = await broker.control('list_queues', '--quiet', 'name', 'policy')
  expect(queues).toContain(`${dead.name}\tdead-letters`)

  channel.sendToQueue(dead.name, Buffer.from('unreadable'))
  await channel.waitForConfirms()
  for (let reading = 1; reading <= 25; reading++) {
    const message = await channel.get(dead.name)
    if (message === false) throw new Error(`the queue had no message at read ${reading}`)
    channel.nack(message, false, true)
  }
  expect(await channel.get(dead.name)).toMatchObject({ content: Buffer.from('unreadable') })
  await connection.close()
})
