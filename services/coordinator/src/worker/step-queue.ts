import { parseMessageAs } from '@integration-host/shared/json'
import { hash, randomBytes } from 'node:crypto'
import {
  delayName,
  delays,
  LANES,
  StepMessage,
  stepQueue,
  stepRoutingKey,
  STEPS_EXCHANGE,
  ladder,
  processTopology,
} from '@integration-host/shared/contracts/topology'
import {
  type Consumer,
  type Delivery,
  type MessageBus,
  type OutgoingMessage,
  misaddressed,
} from '@integration-host/shared/messaging/message-bus'
import { type SpanDescription, tracing } from '@integration-host/shared/observability/telemetry'
import { keyText, type RunKey } from '../run/run.ts'
import type { ProcessOutline } from '../run/transaction-source.ts'
import { outgoingDeadLetter } from './dead-letter-queue.ts'

export interface DueStep extends RunKey {
  readonly step: string
  readonly version: number
}

export interface StepDelivery {
  /** Why the message does not belong to the queue of the step; `null` if it does. */
  readonly misaddressed: string | null
  /** The parsed message; `null` if the message is not a step message. */
  readonly due: DueStep | null
  /** The lane from which the message came; `null` if it came from the queue of its step. */
  readonly lane: string | null
  readonly content: Buffer
  readonly messageId: string
}

export type StepQueue = ReturnType<typeof createStepQueue>

/**
 * Sends and receives step messages over the message bus. A step message starts a due step: it contains the key and the
 * version of a run, but no data. Each step has a queue of its own, so that RabbitMQ's management page shows the backlog
 * of each step.
 */
export function createStepQueue(bus: MessageBus, owner: string, traceparentOf: Traceparents) {
  // A unique prefix distinguishes the message ids of this replica from those of other replicas. A counter makes each id
  // unique within the replica.
  const messagePrefix = randomBytes(2).toString('hex')
  let messages = 0
  let areDelaysDeclared = false
  const messageOf = (
    { step, version, ...run }: DueStep,
    delayMs: number,
    lane: string | null,
    headers: OutgoingMessage['headers'] & object,
  ): OutgoingMessage => {
    const body: StepMessage = { v: 1, ...run, Step: step, Version: version }
    const tier = delayTierFor(delayMs)
    messages += 1
    return {
      exchange: tier === null ? STEPS_EXCHANGE : delayName(tier),
      routingKey: stepRoutingKey(run.Process, lane ?? step),
      // Publisher confirms are matched by message id, and a republished message is a different message. Therefore every
      // message has a unique id. The TransactionID in the id is truncated, because AMQP allows 255 bytes for a message
      // id and one character may take three bytes.
      messageId: `${run.Process}/${run.TransactionID.slice(0, 28)}/${run.ReplayID}/${step}/${version}/${messagePrefix}${messages.toString(36)}`,
      type: 'step',
      correlationId: run.TransactionID.slice(0, 80),
      headers,
      body,
      mandatory: true,
    }
  }

  return {
    /** Declares the queues of a process, and declares them again after every reconnect. */
    async declare({ name, steps }: ProcessOutline): Promise<void> {
      const isFirst = !areDelaysDeclared
      areDelaysDeclared = true
      if (isFirst) await bus.declare(ladder)
      await bus.declare(processTopology(name, steps))
    },

    /**
     * Publishes a message that starts a step now or in about `delayMs`. If the message arrives too early, its claim
     * returns `early` with the remaining time. With a `lane`, the message goes to this queue of the process instead of the
     * queue of the step.
     *
     * @throws {IntegrationError} `broker_unavailable` if the broker has not confirmed the message. The sweeper publishes
     *   such a message again.
     */
    publish(due: DueStep, delayMs: number, lane: string | null = null): Promise<void> {
      if (tracing === undefined)
        return bus.publish(messageOf(due, delayMs, lane, { traceparent: traceparentOf(due) }))
      const traces = tracing
      // A message that the sweeper republishes starts a new trace, because the trace of the first message is not
      // stored.
      return traces.span(spanOf('publish', 'producer', due.Process, due.step), () =>
        bus.publish(messageOf(due, delayMs, lane, traces.headers())),
      )
    },

    /** Resolves when the messages of this turn of the event loop are on their way to the broker. */
    written: (): Promise<void> => bus.written(),

    /** Dead-letters a message that can never be processed, with the reason. */
    deadLetter: (
      process: string,
      { content, messageId }: StepDelivery,
      reason: string,
    ): Promise<void> =>
      bus.publish(
        outgoingDeadLetter(process, { messageId, reason, content, contentBytes: content.length }),
      ),

    /** Consumes the queue of a step, or a lane. */
    consume: (
      process: string,
      step: string,
      prefetch: number,
      handle: (delivery: StepDelivery) => Promise<'ack' | 'requeue'>,
    ): Consumer =>
      bus.consume(
        stepQueue(process, step),
        { prefetch, tag: `${owner} ${process}.${step}` },
        (received) => {
          const { headers } = received
          const delivery = deliveryOf(received, stepRoutingKey(process, step), laneOf(step))
          if (tracing === undefined) return handle(delivery)
          const span = { ...spanOf('process', 'consumer', process, step), from: headers }
          return tracing.span(span, () => handle(delivery))
        },
      ),

    /** Returns the number of ready messages in the queue of a step or in a lane; `null` while the broker is unavailable. */
    async waiting(process: string, step: string): Promise<number | null> {
      return (await bus.depth(stepQueue(process, step)))?.ready ?? null
    },
    /**
     * Returns the number of consumers of the queue of a step; `null` if the queue does not exist or the broker is
     * unavailable.
     */
    async consumers(process: string, step: string): Promise<number | null> {
      return (await bus.depth(stepQueue(process, step)))?.consumers ?? null
    },
  }
}

const spanOf = (
  operation: 'publish' | 'process',
  kind: SpanDescription['kind'],
  process: string,
  step: string,
): SpanDescription => ({
  name: `${operation} ${stepQueue(process, step)}`,
  kind,
  attributes: {
    'messaging.system': 'rabbitmq',
    'messaging.operation.name': operation,
    'messaging.destination.name': stepQueue(process, step),
  },
})

/**
 * Returns the longest delay tier (the delay of one of the delay queues) that does not exceed the requested delay;
 * `null` if no delay is needed. A message may therefore arrive early. The claim of its step is then rejected as too
 * early, and the message is published again with the remaining delay.
 */
function delayTierFor(delayMs: number): string | null {
  if (delayMs <= 0) return null
  return (delays.findLast(({ ms }) => ms <= delayMs) ?? delays[0]).name
}

const laneOf = (queue: string): string | null => LANES.find((lane) => lane === queue) ?? null

function deliveryOf(delivery: Delivery, routingKey: string, lane: string | null): StepDelivery {
  const { content, messageId } = delivery
  const received = { misaddressed: misaddressed(delivery, routingKey), lane, content, messageId }
  const message = parseMessageAs(StepMessage, content)
  if (message === null) return { due: null, ...received }
  const { Step, Version, v: _, ...run } = message
  return { due: { ...run, step: Step, version: Version }, ...received }
}

/** Returns the value of the `traceparent` header (W3C Trace Context §3.2) for a call that a run makes. */
export type Traceparents = (run: RunKey) => string

/**
 * The trace id is derived from the run. So it is the same on every replica and after every restart, and need not be
 * stored. The span id differs for each call: it consists of a random prefix, which all calls share, and a counter.
 * Random bytes for every span would cost more than the rest of this function.
 */
export function createTraceparents(): Traceparents {
  const prefix = randomBytes(4).toString('hex')
  let spans = 0
  return (run) => {
    const traceId = hash('sha256', keyText(run)).slice(0, 32)
    spans = (spans + 1) % 0x1_0000_0000
    return `00-${traceId}-${prefix}${spans.toString(16).padStart(8, '0')}-01`
  }
}
