import { CREDENTIALS_EXCHANGE } from '@integration-host/shared/contracts/credential-event'
import {
  DEAD_EXCHANGE,
  deadQueue,
  delayName,
  delays,
  stepQueue,
  STEPS_EXCHANGE,
} from '@integration-host/shared/contracts/step-message'
import {
  COORDINATORS_EXCHANGE,
  TRANSACTIONS_EXCHANGE,
} from '@integration-host/shared/contracts/transaction-event'
import { connect } from 'amqplib'

const STEPS = ['order', 'report', 'csv']

/** Removes what a system declared under its prefix. Removing what is not there is no error. */
export async function removeTopology(url: string, prefix: string): Promise<void> {
  const connection = await connect(url)
  const channel = await connection.createChannel()
  const rungs = delays.map(({ name }) => delayName(name))
  const queues = [
    ...STEPS.map((step) => stepQueue('OrderProcess', step)),
    deadQueue('OrderProcess'),
    'coordinator.credentials',
    ...rungs,
  ]
  const exchanges = [
    STEPS_EXCHANGE,
    DEAD_EXCHANGE,
    CREDENTIALS_EXCHANGE,
    TRANSACTIONS_EXCHANGE,
    COORDINATORS_EXCHANGE,
    ...rungs,
  ]
  for (const queue of queues) await channel.deleteQueue(prefix + queue)
  for (const exchange of exchanges) await channel.deleteExchange(prefix + exchange)
  await connection.close()
}
