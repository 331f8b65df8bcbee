import type { QueueSpec } from '../message-bus.ts'

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
