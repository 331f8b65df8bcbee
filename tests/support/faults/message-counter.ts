import { stepRoutingKey, STEPS_EXCHANGE } from '@integration-host/shared/contracts/topology'
import { connect } from 'amqplib'
import { backend, type System } from '../system.ts'
import { STEPS } from './step-queues.ts'

/** Counts the step messages that a system publishes. The counter binds a queue of its own to the exchange. */
export interface MessageCounter extends AsyncDisposable {
  readonly published: number
  /** The highest number of messages that were published for one transaction. */
  readonly maxPerTransaction: number
}

/** Starts counting. The coordinator declares the exchange, so a coordinator must have been ready before. */
export async function countStepMessages(system: System): Promise<MessageCounter> {
  const connection = await connect(backend('TEST_AMQP_URL'))
  const channel = await connection.createChannel()
  const { queue } = await channel.assertQueue('', { exclusive: true })
  for (const step of STEPS)
    await channel.bindQueue(
      queue,
      system.amqpPrefix + STEPS_EXCHANGE,
      stepRoutingKey('OrderProcess', step),
    )
  const counts = new Map<string, number>()
  let published = 0
  await channel.consume(
    queue,
    (message) => {
      const { TransactionID } = JSON.parse(String(message?.content)) as { TransactionID: string }
      published += 1
      counts.set(TransactionID, (counts.get(TransactionID) ?? 0) + 1)
    },
    { noAck: true },
  )
  return {
    get published() {
      return published
    },
    get maxPerTransaction() {
      return Math.max(...counts.values())
    },
    [Symbol.asyncDispose]: () => connection.close(),
  }
}
