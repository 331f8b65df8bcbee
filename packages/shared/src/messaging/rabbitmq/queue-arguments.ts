import type { QueueSpec } from '../message-bus.ts'

/**
 * Returns the arguments of a durable queue that correctness depends on. They are arguments and not a policy, so that no
 * operator can change them by mistake.
 */
export function queueArguments(
  queue: QueueSpec,
  prefix: string,
): Readonly<Record<string, string | number>> {
  return {
    'x-queue-type': 'quorum',
    ...(queue.messageTtlMs !== undefined && { 'x-message-ttl': queue.messageTtlMs }),
    ...(queue.deliveryLimit !== undefined && { 'x-delivery-limit': queue.deliveryLimit }),
    ...(queue.deadLetter !== undefined && {
      'x-dead-letter-exchange': prefix + queue.deadLetter.exchange,
      ...(queue.deadLetter.routingKey !== undefined && {
        'x-dead-letter-routing-key': queue.deadLetter.routingKey,
      }),
      // At-least-once dead lettering needs reject-publish: a full target queue must push back, not drop messages.
      'x-dead-letter-strategy': 'at-least-once',
      'x-overflow': 'reject-publish',
    }),
  }
}
