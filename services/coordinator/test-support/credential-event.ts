import {
  type CredentialEvent,
  type CredentialEventKind,
  credentialMessageId,
  credentialRoutingKey,
  CREDENTIALS_EXCHANGE,
} from '@integration-host/shared/contracts/credential'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'

/** Publishes an event of a credential, as token-service does. */
export function publishCredentialEvent(
  bus: MessageBus,
  kind: CredentialEventKind,
  event: Pick<CredentialEvent, 'Name' | 'Version'> & Partial<CredentialEvent>,
): Promise<void> {
  const body: CredentialEvent = {
    Environment: event.Name.slice(4),
    Expiry: '2027-01-01T00:00:00.000Z',
    At: new Date().toISOString(),
    ...event,
  }
  return bus.publish({
    exchange: CREDENTIALS_EXCHANGE,
    routingKey: credentialRoutingKey(kind),
    messageId: credentialMessageId(body, kind),
    type: credentialRoutingKey(kind),
    body,
    mandatory: true,
  })
}
