import {
  PROVIDER_EXCHANGE,
  type ProviderEvent,
  providerRoutingKey,
} from '@integration-host/shared/contracts/provider-event'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'

/** Declares the exchange of provider events, and returns the function that publishes an event to it. */
export function createEventPublisher(bus: MessageBus): (event: ProviderEvent) => Promise<void> {
  void bus.declare({ exchanges: [{ name: PROVIDER_EXCHANGE, type: 'topic' }], queues: [] })
  return (event) => {
    const routingKey = providerRoutingKey(event)
    return bus.publish({
      exchange: PROVIDER_EXCHANGE,
      routingKey,
      messageId: event.Id,
      type: routingKey,
      body: event,
      // An event that no queue is bound for concerns no process. The provider must not send it again.
      mandatory: false,
    })
  }
}
