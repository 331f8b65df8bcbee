/** What the queues of messages that become runs share: `start.<Process>`, `on.<Process>` and the like. */
import type {
  Delivery,
  MessageAddress,
  MessageBus,
  OutgoingMessage,
} from '@integration-host/shared/messaging/message-bus'
import { tracing } from '@integration-host/shared/observability/telemetry'
import { outgoingDeadLetter } from './dead-letter-queue.ts'
import type { ProcessQueue } from './intake-consumers.ts'

export interface IntakeMessage {
  /** How the message came to the queue. It is checked before the message is used. */
  readonly address: MessageAddress
  /** The message id; empty if the message has no id. */
  readonly messageId: string
  readonly content: Buffer
  /** The broker user that published the message, verified by the broker; empty if the message names none. */
  readonly userId: string
  /** The header `traceparent`; `null` if the message has no such header. */
  readonly traceparent: string | null
  /** How often the broker has returned the message to the queue. */
  readonly deliveryCount: number
  /** How often a coordinator has published the message again. */
  readonly renewals: number
}

export interface IntakeQueue extends ProcessQueue<IntakeMessage> {
  /**
   * Publishes a copy of the message as a new message, for which the broker counts returns from 0.
   *
   * @throws {IntegrationError} `broker_unavailable` if the broker has not confirmed the new message.
   */
  publishAgain(process: string, message: IntakeMessage): Promise<void>
  /**
   * Dead-letters the message: publishes it to the queue of dead letters of the process.
   *
   * @throws {IntegrationError} `broker_unavailable` if the broker has not confirmed the dead letter.
   */
  deadLetter(process: string, message: IntakeMessage, reason: string): Promise<void>
}

export interface IntakeQueueOptions {
  /** Returns the name of the queue of a process. */
  readonly queueOf: (process: string) => string
  /** Returns where a copy of a message is published. */
  readonly copyOf: (
    process: string,
    message: IntakeMessage,
  ) => Pick<OutgoingMessage, 'exchange' | 'routingKey' | 'type'>
  /** Whether dead letters name the queue. */
  readonly isNamedInDeadLetters: boolean
  /** Whether the sender keeps no copy of its messages (`OutgoingMessage`). */
  readonly isOnlyCopy: boolean
}

/**
 * The maximum number of unacknowledged messages of a process. It exceeds the size of a batch, so that a complete next
 * batch is already available when a batch is committed.
 */
const PREFETCH = 250
/** The header with the number of times that a coordinator has published the message again. */
const RENEWALS_HEADER = 'renewals'

export function createIntakeQueue(
  bus: MessageBus,
  owner: string,
  { queueOf, copyOf, isNamedInDeadLetters, isOnlyCopy }: IntakeQueueOptions,
): IntakeQueue {
  const publish = (message: OutgoingMessage): Promise<void> =>
    bus.publish({ ...message, ...(isOnlyCopy && { isOnlyCopy }) })
  return {
    consume(process, { handle, onRejected }) {
      const queue = queueOf(process)
      return bus.consume(
        queue,
        { prefetch: PREFETCH, tag: `${owner} ${queue}`, onRejected },
        (delivery) => {
          const message = messageOf(delivery)
          if (tracing === undefined) return handle(message)
          const attributes = {
            'messaging.system': 'rabbitmq',
            'messaging.operation.name': 'process',
            'messaging.destination.name': queue,
          }
          const { headers: from } = delivery
          return tracing.span(
            { name: `process ${queue}`, kind: 'consumer', attributes, from },
            () => handle(message),
          )
        },
      )
    },
    publishAgain(process, message) {
      const { messageId, content, traceparent, renewals } = message
      return publish({
        ...copyOf(process, message),
        messageId,
        headers: { [RENEWALS_HEADER]: renewals, ...(traceparent !== null && { traceparent }) },
        body: content,
        mandatory: true,
      })
    },
    deadLetter(process, { messageId, content }, reason) {
      const queue = isNamedInDeadLetters ? queueOf(process) : null
      const contentBytes = content.length
      return publish(
        outgoingDeadLetter(process, { messageId, reason, content, contentBytes, queue }),
      )
    },
  }
}

function messageOf({ exchange, routingKey, headers, ...delivery }: Delivery): IntakeMessage {
  const { messageId, content, userId, deliveryCount } = delivery
  const { traceparent, [RENEWALS_HEADER]: renewals } = headers
  return {
    address: { exchange, routingKey, headers },
    messageId,
    content,
    userId,
    traceparent: typeof traceparent === 'string' ? traceparent.slice(0, 200) : null,
    deliveryCount,
    renewals: Number.isSafeInteger(renewals) ? Math.max(0, Number(renewals)) : 0,
  }
}
