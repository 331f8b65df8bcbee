import { parseJsonAs } from '@integration-host/shared/json'
import {
  CredentialEvent,
  credentialEventKind,
} from '@integration-host/shared/contracts/credential-event'
import {
  CREDENTIALS_QUEUE,
  credentialsTopology,
  ERASURES_QUEUE,
} from '@integration-host/shared/contracts/topology'
import type { Consumer, MessageBus } from '@integration-host/shared/messaging/message-bus'

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
  return bus.consume(CREDENTIALS_QUEUE, { prefetch: 8, tag }, async ({ routingKey, content }) => {
    const event = parseJsonAs(CredentialEvent, content.toString('utf8'))
    if (event === null || credentialEventKind(routingKey) === null) return 'ack'
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
  return bus.consume(ERASURES_QUEUE, { prefetch: 1, tag }, async ({ content }) => {
    const event = parseJsonAs(CredentialEvent, content.toString('utf8'))
    if (event?.erase !== true) return 'ack'
    return (await erase(event.Name)) ? 'ack' : 'requeue'
  })
}
