import type { Delivery } from './message-bus.ts'

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
