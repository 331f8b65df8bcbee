import { parseMessageAs } from '@integration-host/shared/json'
import {
  CredentialEvent,
  credentialRoutingKey,
} from '@integration-host/shared/contracts/credential'
import {
  CREDENTIALS_QUEUE,
  credentialsTopology,
  ERASURES_QUEUE,
} from '@integration-host/shared/contracts/topology'
import {
  misaddressed,
  type Consumer,
  type MessageBus,
} from '@integration-host/shared/messaging/message-bus'

const usable = [credentialRoutingKey('stored'), credentialRoutingKey('refreshed')]

/**
 * Calls `onUsable` for each credential that was stored or refreshed. If the returned promise rejects, the event is
 * delivered again.
 */
export async function onCredentialUsable(
  bus: MessageBus,
  tag: string,
  onUsable: (name: string) => Promise<void>,
): Promise<Consumer> {
  await bus.declare(credentialsTopology)
  return bus.consume(CREDENTIALS_QUEUE, { prefetch: 8, tag }, async (delivery) => {
    const event = parseMessageAs(CredentialEvent, delivery.content)
    if (event === null || misaddressed(delivery, ...usable) !== null) return 'ack'
    await onUsable(event.Name)
    return 'ack'
  })
}

/**
 * Calls `erase` for each removed credential if its removal event requests the erasure of the company's runs. If `erase`
 * resolves with false, the event is delivered again.
 */
export async function onErasureRequested(
  bus: MessageBus,
  tag: string,
  erase: (name: string) => Promise<boolean>,
): Promise<Consumer> {
  await bus.declare(credentialsTopology)
  return bus.consume(ERASURES_QUEUE, { prefetch: 1, tag }, async (delivery) => {
    const event = parseMessageAs(CredentialEvent, delivery.content)
    if (event?.erase !== true) return 'ack'
    // An account that may publish other events could otherwise have the runs of a company erased.
    if (misaddressed(delivery, credentialRoutingKey('removed')) !== null) return 'ack'
    return (await erase(event.Name)) ? 'ack' : 'requeue'
  })
}
