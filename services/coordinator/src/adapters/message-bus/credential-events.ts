import {
  CredentialEvent,
  credentialEventKind,
} from '@integration-host/shared/contracts/credential-event'
import { CREDENTIALS_QUEUE, credentialsTopology } from '@integration-host/shared/contracts/topology'
import type { Consumer, MessageBus } from '@integration-host/shared/message-bus'
import { parsed } from './parsed.ts'

/** Calls `usable` for each credential that was stored or refreshed, until it resolved once. */
export async function onCredentialUsable(
  bus: MessageBus,
  tag: string,
  usable: (name: string) => Promise<void>,
): Promise<Consumer> {
  await bus.declare(credentialsTopology)
  return bus.consume(CREDENTIALS_QUEUE, { prefetch: 8, tag }, async ({ routingKey, content }) => {
    const event = parsed(CredentialEvent, content)
    if (event === null || credentialEventKind(routingKey) === null) return 'ack'
    await usable(event.Name)
    return 'ack'
  })
}
