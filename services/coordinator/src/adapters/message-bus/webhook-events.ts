import { parseMessageAs } from '@integration-host/shared/json'
import {
  CredentialEvent,
  credentialEventKind,
  type CredentialEventKind,
} from '@integration-host/shared/contracts/credential-event'
import { WEBHOOKS_QUEUE, webhooksTopology } from '@integration-host/shared/contracts/topology'
import { misaddressed } from '@integration-host/shared/messaging/misaddressed'
import type { Consumer, MessageBus } from '@integration-host/shared/messaging/message-bus'

/**
 * Calls `onEvent` for each credential event to which receivers can subscribe, one event after another. Only one replica
 * consumes these events at a time, so the events of a company stay in order. If `onEvent` resolves with false, the
 * event is delivered again.
 */
export async function onCredentialEvent(
  bus: MessageBus,
  tag: string,
  onEvent: (kind: CredentialEventKind, event: CredentialEvent) => Promise<boolean>,
): Promise<Consumer> {
  await bus.declare(webhooksTopology)
  return bus.consume(WEBHOOKS_QUEUE, { prefetch: 1, tag }, async (delivery) => {
    const { routingKey } = delivery
    const event = parseMessageAs(CredentialEvent, delivery.content)
    const kind = credentialEventKind(routingKey)
    if (event === null || kind === null || misaddressed(delivery, routingKey) !== null)
      return 'reject'
    return (await onEvent(kind, event)) ? 'ack' : 'requeue'
  })
}
