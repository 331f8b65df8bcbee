/**
 * The port to the broker: RabbitMQ's model, as much of it as the services use. `rabbitmq/message-bus.ts`
 * speaks to the real one, `in-process/message-bus.ts` is the embedded host's; one contract suite holds both
 * to the same behaviour.
 *
 * Delivery is at least once. Consumers recognise a duplicate by its message id or by the state it names.
 */
export interface MessageBus extends AsyncDisposable {
  /**
   * Declares what must exist; kept and declared again after each reconnect. Resolves once it stands, or when it
   * cannot be declared now: the dependency says why, and it is tried again until it stands.
   */
  declare(topology: Topology): Promise<void>

  /**
   * Resolves when the broker has taken responsibility for the message (publisher confirm).
   *
   * @throws {IntegrationError} `broker_unavailable`: not connected, not confirmed in time, or returned as
   * unroutable. The message may have arrived all the same.
   */
  publish(message: OutgoingMessage): Promise<void>

  /** Consumes from now on, through reconnects, until cancelled. */
  consume(
    queue: string,
    options: ConsumeOptions,
    handle: (delivery: Delivery) => Promise<Settlement>,
  ): Consumer

  /** Messages ready in a queue and its consumers; null while the broker is away or the queue unknown. */
  depth(queue: string): Promise<QueueDepth | null>

  /** Resolves as soon as the broker can be used; rejects when `signal` aborts first. */
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
  /** Deliveries after which a message that keeps coming back is dead-lettered. */
  readonly deliveryLimit?: number
  /** A queue of this connection alone, gone with it: every replica sees every message. */
  readonly exclusive?: boolean
}

export type HeaderValue = string | number | boolean

export interface OutgoingMessage {
  readonly exchange: string
  readonly routingKey: string
  readonly messageId: string
  /** What kind of message it is, for the reader in the console: `step`, `credential.refreshed`. */
  readonly type: string
  readonly correlationId?: string
  readonly headers?: Readonly<Record<string, HeaderValue>>
  /** Sent as JSON. */
  readonly body: unknown
  /** Fails when no queue would take it. Off for events that nobody has to listen to. */
  readonly mandatory: boolean
}

export interface Delivery {
  readonly routingKey: string
  readonly messageId: string
  readonly type: string
  readonly headers: Readonly<Record<string, unknown>>
  readonly content: Buffer
  readonly redelivered: boolean
  /** How often this message came back before; 0 for the first delivery. */
  readonly deliveryCount: number
}

/** What becomes of a delivery: done, back to the queue, or dead-lettered. A handler that throws rejects. */
export type Settlement = 'ack' | 'requeue' | 'reject'

export interface ConsumeOptions {
  /** Deliveries in hand at a time. */
  readonly prefetch: number
  /** The consumer tag, as the console shows it. */
  readonly tag: string
}

export interface Consumer {
  /** Takes no more deliveries and resolves when those in hand are settled. */
  cancel(): Promise<void>
}

export interface QueueDepth {
  readonly ready: number
  readonly consumers: number
}

/** The delivery limit of every work queue; RabbitMQ 4 has the same by default, older ones have none. */
export const DELIVERY_LIMIT = 20
