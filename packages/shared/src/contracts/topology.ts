/**
 * The durable exchanges and queues. The coordinator declares them; `integration-host doctor` compares them with
 * those of the broker.
 */
import { DELIVERY_LIMIT, type QueueSpec, type Topology } from '../messaging/message-bus.ts'
import { CREDENTIALS_EXCHANGE, credentialRoutingKey } from './credential-event.ts'
import {
  DEAD_EXCHANGE,
  deadQueue,
  delayName,
  delays,
  stepQueue,
  stepRoutingKey,
  STEPS_EXCHANGE,
} from './step-message.ts'

/** The part that all processes share: the exchanges, and one delay queue for each retry delay. */
export const ladder: Topology = {
  exchanges: [
    { name: STEPS_EXCHANGE, type: 'direct' },
    { name: DEAD_EXCHANGE, type: 'direct' },
    ...delays.map(({ name }) => ({ name: delayName(name), type: 'fanout' as const })),
  ],
  queues: delays.map(({ name, ms }) => ({
    name: delayName(name),
    bindings: [{ exchange: delayName(name), routingKey: '' }],
    messageTtlMs: ms,
    // Without a routing key a dead-lettered message keeps its own, which leads it back to its step's queue.
    deadLetter: { exchange: STEPS_EXCHANGE },
  })),
}

/** The queues of one process: one for each step, one for its dead letters. */
export const processTopology = (process: string, steps: readonly string[]): Topology => ({
  exchanges: [],
  queues: [
    { name: deadQueue(process), bindings: [{ exchange: DEAD_EXCHANGE, routingKey: process }] },
    ...steps.map((step): QueueSpec => ({
      name: stepQueue(process, step),
      bindings: [{ exchange: STEPS_EXCHANGE, routingKey: stepRoutingKey(process, step) }],
      deadLetter: { exchange: DEAD_EXCHANGE, routingKey: process },
      deliveryLimit: DELIVERY_LIMIT,
    })),
  ],
})

/** One queue for all coordinators: the event of a credential has to be handled once, not by each replica. */
export const CREDENTIALS_QUEUE = 'coordinator.credentials'

export const credentialsTopology: Topology = {
  exchanges: [{ name: CREDENTIALS_EXCHANGE, type: 'topic' }],
  queues: [
    {
      name: CREDENTIALS_QUEUE,
      bindings: (['stored', 'refreshed'] as const).map((kind) => ({
        exchange: CREDENTIALS_EXCHANGE,
        routingKey: credentialRoutingKey(kind),
      })),
    },
  ],
}
