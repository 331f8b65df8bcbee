/**
 * The durable exchanges and queues, and the messages of steps. The coordinator declares the exchanges and queues;
 * `integration-host doctor` compares them with those that exist on the broker.
 */
import { z } from 'zod'
import { ReplayID, StepName, TransactionID } from './transaction.ts'
import { DELIVERY_LIMIT, type QueueSpec, type Topology } from '../messaging/message-bus.ts'
import { CREDENTIALS_EXCHANGE, credentialRoutingKey } from './credential.ts'
import { PROVIDER_EXCHANGE } from './provider-event.ts'
import { WEBHOOK_PROCESS } from './events.ts'

/** Direct exchange of step messages; the routing key is `<Process>.<Step>`. */
export const STEPS_EXCHANGE = 'integration.steps'
/** Direct exchange of dead letters; the routing key is the name of the business process. */
export const DEAD_EXCHANGE = 'integration.dead'

/**
 * The message that a step is due. It contains no business data, because the worker reads this data from the database
 * row. `Version` identifies one state of this row, so that the coordinator can recognise and discard a duplicate or
 * late message.
 */
export const StepMessage = z.strictObject({
  v: z.literal(1),
  Process: StepName,
  TransactionID,
  ReplayID,
  Step: StepName,
  Version: z.int().min(0).max(2_147_483_647),
})
export type StepMessage = z.output<typeof StepMessage>

/**
 * Returns the name of a step's queue, such as `steps.OrderProcess.order`. Each step has its own queue, so that
 * RabbitMQ's management page shows how many transactions wait at each step.
 */
export const stepQueue = (process: string, step: string): string => `steps.${process}.${step}`
/**
 * The lanes of a business process: queues beside those of its steps, each of which takes the messages of all steps. The
 * busy lanes, such as `steps.OrderProcess.busy`, are for companies that have more messages than a coordinator processes at
 * once, and `steps.OrderProcess.high` is for runs of high priority (`services/coordinator/src/worker/lanes.ts`). A process
 * with a place of the name `busy` has no busy lanes, and one with a place `high` no lane for priorities.
 */
export const BUSY_LANES = ['busy', 'busy.1', 'busy.2', 'busy.3'] as const
export const HIGH_LANE = 'high'
export const LANES: readonly string[] = [...BUSY_LANES, HIGH_LANE]
export const busyLanesOf = (steps: readonly string[]): readonly string[] =>
  steps.includes(BUSY_LANES[0]) ? [] : BUSY_LANES
export const hasHighLane = (steps: readonly string[]): boolean => !steps.includes(HIGH_LANE)
export const lanesOf = (steps: readonly string[]): readonly string[] => [
  ...busyLanesOf(steps),
  ...(hasHighLane(steps) ? [HIGH_LANE] : []),
]
export const stepRoutingKey = (process: string, step: string): string => `${process}.${step}`
/**
 * Returns the name of the queue for the dead letters of a business process, such as `dead.OrderProcess`. A header of
 * each dead letter contains the reason.
 */
export const deadQueue = (process: string): string => `dead.${process}`

/**
 * The delays before a retry. Each delay has its own queue, because RabbitMQ expires messages only at the head of a
 * queue.
 */
export const delays = [
  { name: '1s', ms: 1_000 },
  { name: '5s', ms: 5_000 },
  { name: '15s', ms: 15_000 },
  { name: '1m', ms: 60_000 },
  { name: '5m', ms: 300_000 },
  { name: '15m', ms: 900_000 },
  { name: '1h', ms: 3_600_000 },
] as const
/** Returns the name that the fanout exchange and the queue for one delay have in common. */
export const delayName = (name: string): string => `integration.delay.${name}`

/**
 * The topic exchange of start messages; the routing key is the name of the business process. A topic exchange is used
 * because on other exchanges RabbitMQ cannot limit an account to certain routing keys (topic permissions).
 */
export const START_EXCHANGE = 'integration.start'

/**
 * Returns the name of the queue whose messages become runs of a business process, such as `start.OrderProcess`. A start
 * message has the same body as `POST /processes/{process}/transactions`.
 */
export const startQueue = (process: string): string => `start.${process}`

/**
 * The routing key of events for the runs of a process, such as `OrderProcess.signal`. Their queue is `start.` with this
 * key. A topic permission for the name of the process does not cover this key.
 */
export const signalKey = (process: string): string => `${process}.signal`

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
