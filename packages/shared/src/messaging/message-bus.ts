/**
 * The port to the broker: the part of RabbitMQ's model that the services use. `rabbitmq/message-bus.ts` implements
 * it over AMQP, `in-process/message-bus.ts` in memory for the embedded host; both pass one contract suite.
 *
 * Delivery is at least once. Consumers recognise a duplicate by its message id or by the state it names.
 */
export interface MessageBus extends AsyncDisposable {
  /**
   * Declares exchanges and queues, now and after each reconnect. Resolves once they are declared. It also resolves if
   * the declaration fails: the dependency reports the reason, and the declaration is retried until it succeeds.
   */
  declare(topology: Topology): Promise<void>

  /**
   * Resolves when the broker has accepted responsibility for the message (publisher confirm).
   *
   * @throws {IntegrationError} `broker_unavailable`: not connected, not confirmed in time, or returned as
   * unroutable. The message may have been delivered nevertheless.
   */
  publish(message: OutgoingMessage): Promise<void>

  /** Consumes until cancelled, also after reconnects. */
  consume(
    queue: string,
    options: ConsumeOptions,
    handle: (delivery: Delivery) => Promise<Settlement>,
  ): Consumer

  /** Counts a queue's ready messages and its consumers; `null` if the broker is unavailable or the queue does not exist. */
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

export interface QueueSpec {
  readonly name: string
  readonly bindings: readonly { readonly exchange: string; readonly routingKey: string }[]
  /** Messages older than this are dead-lettered. */
  readonly messageTtlMs?: number
  /** Where rejected, expired and over-delivered messages go; without a routing key they keep theirs. */
  readonly deadLetter?: { readonly exchange: string; readonly routingKey?: string }
  /** A message that is requeued more often than this is dead-lettered. */
  readonly deliveryLimit?: number
  /** The queue belongs to this connection and is deleted with it. Each replica has its own, so all get every message. */
  readonly exclusive?: boolean
}

export type HeaderValue = string | number | boolean

export interface OutgoingMessage {
  readonly exchange: string
  readonly routingKey: string
  readonly messageId: string
  /** The kind of message, shown on RabbitMQ's management page: `step`, `credential.refreshed`. */
  readonly type: string
  readonly correlationId?: string
  readonly headers?: Readonly<Record<string, HeaderValue>>
  /** Sent as JSON. */
  readonly body: unknown
  /** Whether publishing fails if no queue is bound for the message; false for events that need no consumer. */
  readonly mandatory: boolean
}

export interface Delivery {
  readonly routingKey: string
  readonly messageId: string
  readonly type: string
  readonly headers: Readonly<Record<string, unknown>>
  readonly content: Buffer
  readonly redelivered: boolean
  /** How often this message was requeued; 0 for the first delivery. */
  readonly deliveryCount: number
}

/** How a delivery is settled: acknowledged, requeued, or dead-lettered. A delivery whose handler throws is rejected. */
export type Settlement = 'ack' | 'requeue' | 'reject'

export interface ConsumeOptions {
  /** Maximum number of unacknowledged deliveries. */
  readonly prefetch: number
  /** The consumer tag, shown on RabbitMQ's management page. */
  readonly tag: string
}

export interface Consumer {
  /** Accepts no more deliveries and resolves when those in flight are settled. */
  cancel(): Promise<void>
}

export interface QueueDepth {
  readonly ready: number
  readonly consumers: number
}

/** The delivery limit of every work queue; RabbitMQ 4 has the same by default, older versions have none. */
export const DELIVERY_LIMIT = 20
