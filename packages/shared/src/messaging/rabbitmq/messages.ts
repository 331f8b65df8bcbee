/** Converts messages of the message bus to AMQP properties, and AMQP deliveries to deliveries of the message bus. */
import type { ConsumeMessage, Options } from 'amqplib'
import type { Delivery, OutgoingMessage, QueueSpec } from '../message-bus.ts'

/**
 * Only the headers that the publisher has set are sent. If a delivery is published again, the headers that the broker has
 * added to it are not copied. With a copied header `x-death`, the broker would detect a dead-letter cycle and drop the
 * message.
 */
export const publishOptions = (message: OutgoingMessage): Options.Publish => ({
  persistent: true,
  mandatory: message.mandatory,
  contentType: Buffer.isBuffer(message.body) ? 'application/octet-stream' : 'application/json',
  messageId: message.messageId,
  type: message.type,
  timestamp: Math.floor(Date.now() / 1_000),
  headers: { ...message.headers },
  ...(message.correlationId !== undefined && { correlationId: message.correlationId }),
})

/** @param prefix - the prefix of exchange names (`AMQP_PREFIX`), which the delivery does not contain */
export function deliveryOf(message: ConsumeMessage, prefix: string): Delivery {
  const headers = (message.properties.headers ?? {}) as Record<string, unknown>
  const count = headers['x-delivery-count']
  const { exchange } = message.fields
  return {
    exchange: exchange.startsWith(prefix) ? exchange.slice(prefix.length) : exchange,
    routingKey: message.fields.routingKey,
    messageId: String(message.properties.messageId ?? ''),
    type: String(message.properties.type ?? ''),
    userId: String(message.properties.userId ?? ''),
    headers,
    content: message.content,
    redelivered: message.fields.redelivered,
    deliveryCount: typeof count === 'number' ? count : 0,
  }
}

/**
 * Returns the arguments that a durable queue needs for correctness. An operator could change a policy by mistake, so
 * these values are arguments and not a policy.
 */
export function queueArguments(
  queue: QueueSpec,
  prefix: string,
): Readonly<Record<string, string | number | boolean>> {
  return {
    'x-queue-type': 'quorum',
    ...(queue.messageTtlMs !== undefined && { 'x-message-ttl': queue.messageTtlMs }),
    ...(queue.deliveryLimit !== undefined && { 'x-delivery-limit': queue.deliveryLimit }),
    ...(queue.singleActiveConsumer === true && { 'x-single-active-consumer': true }),
    ...(queue.deadLetter !== undefined && {
      'x-dead-letter-exchange': prefix + queue.deadLetter.exchange,
      ...(queue.deadLetter.routingKey !== undefined && {
        'x-dead-letter-routing-key': queue.deadLetter.routingKey,
      }),
      // At-least-once dead lettering requires `reject-publish`. A full target queue then rejects messages instead of
      // dropping them.
      'x-dead-letter-strategy': 'at-least-once',
      'x-overflow': 'reject-publish',
    }),
  }
}
