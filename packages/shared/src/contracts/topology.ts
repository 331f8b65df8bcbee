/**
 * The durable exchanges and queues. The coordinator declares them; `integration-host doctor` compares them with the
 * exchanges and queues that exist on the broker.
 */
import { DELIVERY_LIMIT, type QueueSpec, type Topology } from '../messaging/message-bus.ts'
import { CREDENTIALS_EXCHANGE, credentialRoutingKey } from './credential-event.ts'
import {
  DEAD_EXCHANGE,
  deadQueue,
  delayName,
  delays,
  lanesOf,
  stepQueue,
  stepRoutingKey,
  STEPS_EXCHANGE,
} from './step-message.ts'
import { PROVIDER_EXCHANGE } from './provider-event.ts'
import { START_EXCHANGE, startQueue } from './start-message.ts'
import { WEBHOOK_PROCESS } from './webhook.ts'

/** The exchanges and queues that all business processes share. They include one delay queue for each retry delay. */
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
    // A delay queue has no dead-letter routing key, so an expired message keeps its own routing key and returns to the
    // queue of its step.
    deadLetter: { exchange: STEPS_EXCHANGE },
  })),
}

/** The queues of one business process: one for each step, its lanes, and one for the dead letters of the process. */
export const processTopology = (process: string, steps: readonly string[]): Topology => ({
  exchanges: [],
  queues: [
    { name: deadQueue(process), bindings: [{ exchange: DEAD_EXCHANGE, routingKey: process }] },
    ...[...steps, ...lanesOf(steps)].map((step): QueueSpec => ({
      name: stepQueue(process, step),
      bindings: [{ exchange: STEPS_EXCHANGE, routingKey: stepRoutingKey(process, step) }],
      deadLetter: { exchange: DEAD_EXCHANGE, routingKey: process },
      deliveryLimit: DELIVERY_LIMIT,
    })),
  ],
})

/** The exchange and queue of the start messages of one business process. A built-in process has none. */
export const startTopology = (process: string, routingKey = process): Topology => ({
  exchanges: [{ name: START_EXCHANGE, type: 'topic' }],
  queues: [
    {
      name: startQueue(routingKey),
      bindings: [{ exchange: START_EXCHANGE, routingKey }],
      deadLetter: { exchange: DEAD_EXCHANGE, routingKey: process },
      deliveryLimit: DELIVERY_LIMIT,
    },
  ],
})

/** The queue of the provider events that start runs of a business process or end their waits, bound by these keys. */
export const changesTopology = (
  queue: string,
  process: string,
  routingKeys: readonly string[],
): Topology => ({
  exchanges: [{ name: PROVIDER_EXCHANGE, type: 'topic' }],
  queues: [
    {
      name: queue,
      bindings: routingKeys.map((routingKey) => ({ exchange: PROVIDER_EXCHANGE, routingKey })),
      deadLetter: { exchange: DEAD_EXCHANGE, routingKey: process },
      deliveryLimit: DELIVERY_LIMIT,
    },
  ],
})

/**
 * The queue of credential events. All replicas of the coordinator consume from this one queue, because each event has
 * to be handled by only one replica.
 */
export const CREDENTIALS_QUEUE = 'coordinator.credentials'

/**
 * The queue of the events that report the removal of a credential. After a removal, the coordinator may have to erase
 * the runs of the credential. The queue keeps the events while no coordinator runs, and has no maximum length.
 */
export const ERASURES_QUEUE = 'coordinator.erasures'

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
    {
      name: ERASURES_QUEUE,
      bindings: [{ exchange: CREDENTIALS_EXCHANGE, routingKey: credentialRoutingKey('removed') }],
    },
  ],
}

/**
 * The queue of the credential events that become webhooks. The coordinator declares it only if `WEBHOOKS_FILE` is set,
 * because a queue without a consumer would grow forever.
 */
export const WEBHOOKS_QUEUE = 'coordinator.webhooks'

export const webhooksTopology: Topology = {
  exchanges: [{ name: CREDENTIALS_EXCHANGE, type: 'topic' }],
  queues: [
    {
      name: WEBHOOKS_QUEUE,
      bindings: (['stored', 'faulted', 'expiring', 'removed'] as const).map((kind) => ({
        exchange: CREDENTIALS_EXCHANGE,
        routingKey: credentialRoutingKey(kind),
      })),
      deadLetter: { exchange: DEAD_EXCHANGE, routingKey: WEBHOOK_PROCESS },
      deliveryLimit: DELIVERY_LIMIT,
      singleActiveConsumer: true,
    },
  ],
}
