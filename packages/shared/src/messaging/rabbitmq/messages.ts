/** Converts messages of the message bus to AMQP properties, and AMQP deliveries to deliveries of the message bus. */
import type { ConsumeMessage, Options } from 'amqplib'
import type { Delivery, OutgoingMessage } from '../message-bus.ts'

export const publishOptions = (message: OutgoingMessage): Options.Publish => ({
  persistent: true,
  mandatory: message.mandatory,
  contentType: Buffer.isBuffer(message.body) ? 'application/octet-stream' : 'application/json',
  messageId: message.messageId,
  type: message.type,
  timestamp: Math.floor(Date.now() / 1_000),
  // Only the headers that the publisher has set are sent. If a delivery is published again, the headers that the broker
  // has added to it are not copied. With a copied header `x-death`, the broker would detect a dead-letter cycle and
  // drop the message.
  headers: { ...message.headers },
  ...(message.correlationId !== undefined && { correlationId: message.correlationId }),
})

export function deliveryOf(message: ConsumeMessage): Delivery {
  const headers = (message.properties.headers ?? {}) as Record<string, unknown>
  const count = headers['x-delivery-count']
  return {
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
