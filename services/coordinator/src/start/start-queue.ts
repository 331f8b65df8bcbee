import {
  START_EXCHANGE,
  startQueue,
  startTopology,
} from '@integration-host/shared/contracts/topology'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { createIntakeQueue } from '../worker/intake-queue.ts'

export type StartQueue = ReturnType<typeof createStartQueue>

/**
 * The queues `start.<Process>`. Other programs publish messages to them, and the messages become runs.
 *
 * @param keyOf returns the routing key of the messages of a process; their queue is `start.` with this key
 */
export const createStartQueue = (
  bus: MessageBus,
  owner: string,
  keyOf: (process: string) => string = (process) => process,
) => ({
  /** Declares the queue of a process, and declares it again after every reconnect. */
  declare: (process: string): Promise<void> => bus.declare(startTopology(process, keyOf(process))),

  ...createIntakeQueue(bus, owner, {
    queueOf: (process) => startQueue(keyOf(process)),
    copyOf: (process) => ({
      exchange: START_EXCHANGE,
      routingKey: keyOf(process),
      type: 'start',
    }),
    isNamedInDeadLetters: true,
    isOnlyCopy: false,
  }),
})
