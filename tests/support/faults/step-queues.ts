import {
  deadQueue,
  delayName,
  delays,
  stepQueue,
} from '@integration-host/shared/contracts/topology'
import { connect, type Channel } from 'amqplib'
import { backend, type System } from '../system.ts'

export const STEPS = ['order', 'report', 'csv'] as const
type StepName = (typeof STEPS)[number]

/** Reads the queues of a system from RabbitMQ itself, because a report of the services could hide an error. */
export interface StepQueues {
  /** Returns the number of ready messages in each queue that is not empty. */
  ready(): Promise<Record<string, number>>
  /** Counts the consumers of the first step's queue. */
  consumers(): Promise<number>
  /**
   * Deletes the ready messages of a step, to simulate the loss of the broker's disk. Returns the number of deleted
   * messages.
   */
  purge(step: StepName): Promise<number>
}

export function stepQueuesOf(system: System): StepQueues {
  const nameOf = (queue: string): string => system.amqpPrefix + queue
  const stepQueueOf = (step: StepName): string => nameOf(stepQueue('OrderProcess', step))
  const all = [
    ...STEPS.map((step) => stepQueue('OrderProcess', step)),
    deadQueue('OrderProcess'),
    ...delays.map(({ name }) => delayName(name)),
  ]
  // The broker may have restarted since the previous call, so each call opens a new connection.
  async function onChannel<Result>(work: (channel: Channel) => Promise<Result>): Promise<Result> {
    const connection = await connect(backend('TEST_AMQP_URL'))
    connection.on('error', () => {})
    try {
      return await work(await connection.createChannel())
    } finally {
      await connection.close()
    }
  }
  return {
    ready: () =>
      onChannel(async (channel) => {
        const counts: Record<string, number> = {}
        for (const queue of all) {
          const { messageCount } = await channel.checkQueue(nameOf(queue))
          if (messageCount > 0) counts[queue] = messageCount
        }
        return counts
      }),
    consumers: () =>
      onChannel(async (channel) => (await channel.checkQueue(stepQueueOf('order'))).consumerCount),
    purge: (step) =>
      onChannel(async (channel) => (await channel.purgeQueue(stepQueueOf(step))).messageCount),
  }
}
