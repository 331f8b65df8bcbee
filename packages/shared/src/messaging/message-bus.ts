/**
 * The port to the message broker: the part of RabbitMQ's model that the services use. `rabbitmq/message-bus.ts`
 * implements it over AMQP, and `in-process/message-bus.ts` in memory for the embedded host. Both pass the same contract
 * tests.
 *
 * Delivery is at least once. A consumer recognises a duplicate by the message id, or by the state that the message
 * names.
 */
export interface MessageBus extends AsyncDisposable {
  /** Whether messages outlive this OS process. */
  readonly isDurable: boolean

  /**
   * Declares exchanges and queues, now and after each reconnect. Resolves even if the broker is unavailable or the
   * declaration fails. The declaration is then retried until it succeeds, and the health check reports the reason. A
   * queue that is declared again with other bindings keeps its old bindings until the next reconnect.
   */
  declare(topology: Topology): Promise<void>

  /**
   * Removes bindings of a queue that this connection has declared. A binding that does not exist is ignored.
   *
   * @throws {IntegrationError} `broker_unavailable` if the broker has not confirmed the removal of every binding.
   */
  unbind(queue: string, bindings: readonly Binding[]): Promise<void>

  /**
   * Resolves when the broker has accepted responsibility for the message (publisher confirm).
   *
   * @throws {IntegrationError} `broker_unavailable` if there is no connection, or if the broker does not confirm the
   * message in time or returns it as unroutable. The message may have been delivered nevertheless.
   */
  publish(message: OutgoingMessage): Promise<void>

  /**
   * Resolves when the messages that were published in this turn of the event loop have been written to the connection,
   * without waiting for their confirms. In the embedded host it resolves at once, because the consumers run in this
   * process.
   */
  written(): Promise<void>

  /** Consumes a queue until the consumer is cancelled. After a reconnect the consumer is started again. */
  consume(
    queue: string,
    options: ConsumeOptions,
    handle: (delivery: Delivery) => Promise<Settlement>,
  ): Consumer

  /**
   * Returns how many ready messages and how many consumers a queue has; `null` if the broker is unavailable or the
   * queue does not exist.
   */
  depth(queue: string): Promise<QueueDepth | null>

  /** Resolves as soon as the broker is available; rejects if `signal` aborts first. */
  ready(signal?: AbortSignal): Promise<void>
}

export interface Topology {
  readonly exchanges: readonly ExchangeSpec[]
  readonly queues: readonly QueueSpec[]
}

export interface ExchangeSpec {
  readonly name: string
  readonly type: 'direct' | 'fanout' | 'topic'
}

export interface Binding {
  readonly exchange: string
  readonly routingKey: string
}

export interface QueueSpec {
  readonly name: string
  readonly bindings: readonly Binding[]
  /** The age in milliseconds at which a message is dead-lettered. */
  readonly messageTtlMs?: number
  /**
   * The exchange that receives rejected and expired messages, and messages beyond the delivery limit. If `routingKey`
   * is absent, a message keeps its own routing key.
   */
  readonly deadLetter?: { readonly exchange: string; readonly routingKey?: string }
  /** The delivery limit: a message that is requeued more often than this number is dead-lettered. */
  readonly deliveryLimit?: number
  /**
   * Whether only one consumer at a time gets messages, even if several replicas consume the queue. If the prefetch is 1
   * as well, messages are processed in order.
   */
  readonly singleActiveConsumer?: boolean
  /**
   * Whether the queue belongs to this connection and is deleted with it. Each replica of a service declares such a
   * queue for itself, so that every replica receives every message.
   */
  readonly exclusive?: boolean
}

export type HeaderValue = string | number | boolean

export interface OutgoingMessage {
  readonly exchange: string
  readonly routingKey: string
  readonly messageId: string
  /** The kind of message, such as `step` or `credential.refreshed`. RabbitMQ's management page shows it. */
  readonly type: string
  readonly correlationId?: string
  readonly headers?: Readonly<Record<string, HeaderValue>>
  /** The message body, which is sent as JSON; a Buffer is sent unchanged. */
  readonly body: unknown
  /** Whether publishing fails if the message is routed to no queue. `false` is for events that need no consumer. */
  readonly mandatory: boolean
  /**
   * Whether this message is the only copy: no process would publish it again if the broker lost it after its confirm. A
   * bus that is not durable confirms such a message only after its consumers have acknowledged it. Default: false.
   */
  readonly isOnlyCopy?: boolean
}

export interface Delivery {
  /** The exchange to which the message was published; empty for RabbitMQ's default exchange. */
  readonly exchange: string
  readonly routingKey: string
  readonly messageId: string
  readonly type: string
  /**
   * The user that published the message (AMQP `user-id`), which the broker verifies; empty if the message names none.
   */
  readonly userId: string
  readonly headers: Readonly<Record<string, unknown>>
  readonly content: Buffer
  readonly redelivered: boolean
  /** How often this message was requeued; 0 for the first delivery. */
  readonly deliveryCount: number
}

/**
 * How a delivery is settled: acknowledged, requeued, or dead-lettered (`reject`). If the handler throws, the delivery
 * is dead-lettered.
 */
export type Settlement = 'ack' | 'requeue' | 'reject'

export interface ConsumeOptions {
  /** Maximum number of unacknowledged deliveries. */
  readonly prefetch: number
  /** The consumer tag, shown on RabbitMQ's management page. */
  readonly tag: string
  /**
   * Called if the broker rejects or ends this consumer, for example because the account may not read the queue or the
   * queue does not exist. The consumer is then cancelled. If this function is absent, the connection is opened again
   * instead, so it must be absent for a consumer that the service needs.
   */
  readonly onRejected?: (reason: string) => void
}

/** Returns the bytes of a message body. */
export const contentOf = (body: unknown): Buffer =>
  Buffer.isBuffer(body) ? body : Buffer.from(JSON.stringify(body))

export interface Consumer {
  /** Stops accepting deliveries. Resolves when the deliveries in flight are settled. */
  cancel(): Promise<void>
}

export interface QueueDepth {
  readonly ready: number
  readonly consumers: number
}

/**
 * The delivery limit of every work queue. RabbitMQ 4 has the same limit by default; older versions have no default
 * limit.
 */
export const DELIVERY_LIMIT = 20

/** How a message came to its queue. */
export type MessageAddress = Pick<Delivery, 'exchange' | 'routingKey' | 'headers'>

/**
 * Returns why a message must not be used by a consumer that expects one of these routing keys; `null` if it may be used.
 *
 * RabbitMQ also routes a message by the keys in its headers `CC` and `BCC`, and before version 4.0.4 it does not compare
 * them with the topic permissions of the publisher. It removes `BCC` from the message, but each copy keeps the routing
 * key with which the message was published. A message of the default exchange (empty name) was published to the queue
 * itself, as RabbitMQ's management page does. Topic permissions do not apply to that exchange.
 *
 * @see https://www.rabbitmq.com/docs/sender-selected
 */
export function misaddressed(
  { exchange, routingKey, headers }: MessageAddress,
  ...expected: readonly string[]
): string | null {
  if (Object.hasOwn(headers, 'CC') || Object.hasOwn(headers, 'BCC'))
    return `${MISADDRESSED}: the headers CC and BCC are not allowed`
  if (exchange !== '' && !expected.includes(routingKey))
    return `${MISADDRESSED}: the message was published with another routing key`
  return null
}

/** The code with which the reason of such a dead letter begins. */
export const MISADDRESSED = 'misaddressed'
