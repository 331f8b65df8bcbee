import {
  type EntryEvent,
  entryRoutingKey,
  PROVIDER_EXCHANGE,
  type ProviderEvent,
  providerRoutingKey,
} from '../contracts/provider-event.ts'
import type { MessageBus } from './message-bus.ts'

/**
 * Declares the exchange of provider events, and returns the function that publishes an event to it. The promise of this
 * function resolves when the broker has confirmed the event.
 *
 * @throws {IntegrationError} `broker_unavailable` from the returned function.
 */
export const createEventPublisher = (bus: MessageBus): ((event: ProviderEvent) => Promise<void>) =>
  publisherOf<ProviderEvent>(bus, providerRoutingKey)

/** The same for the events of objects that runs have written and that were changed from outside. */
export const createEntryEventPublisher = (
  bus: MessageBus,
): ((event: EntryEvent) => Promise<void>) => publisherOf<EntryEvent>(bus, entryRoutingKey)

function publisherOf<Event extends { readonly Id: string }>(
  bus: MessageBus,
  routingKeyOf: (event: Event) => string,
): (event: Event) => Promise<void> {
  void bus.declare({ exchanges: [{ name: PROVIDER_EXCHANGE, type: 'topic' }], queues: [] })
  return (event) => {
    const routingKey = routingKeyOf(event)
    return bus.publish({
      exchange: PROVIDER_EXCHANGE,
      routingKey,
      messageId: event.Id,
      type: routingKey,
      body: event,
      // If no business process needs an event, the event is routed to no queue. Publishing the event must succeed
      // nevertheless, because the provider would otherwise deliver the event again.
      mandatory: false,
      isOnlyCopy: true,
    })
  }
}
