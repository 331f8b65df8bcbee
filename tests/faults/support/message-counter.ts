import { stepRoutingKey, STEPS_EXCHANGE } from '@integration-host/shared/contracts/step-message'
import { connect } from 'amqplib'
import { backend, type System } from '../../support/system.ts'

/** Counts what is published to the steps of a system, whoever takes it from there. */
export interface MessageCounter extends AsyncDisposable {
  readonly published: number
  /** The most that were published for one transaction. */
  readonly mostForOne: number
}

/** The exchange must be there: a coordinator has been ready. */
export async function countStepMessages(system: System): Promise<MessageCounter> {
  const connection = await connect(backend('TEST_AMQP_URL'))
  const channel = await connection.createChannel()
  const { queue } = await channel.assertQueue('', { exclusive: true })
  for (const step of ['order', 'report', 'csv'])
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
    get mostForOne() {
      return Math.max(...counts.values())
    },
    [Symbol.asyncDispose]: () => connection.close(),
  }
}
