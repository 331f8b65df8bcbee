/**
 * The exchanges and queues that outlive the processes using them: declared by the coordinator, compared with
 * what is there by `integration-host doctor`.
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

/** What every process shares: the exchanges, and the retry ladder with one queue for each delay. */
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
    // No routing key: a message keeps its own, and so comes back to its step.
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

/** One queue for all coordinators: a credential's return is one job. */
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
