import {
  credentialEventKind,
  type CredentialEventKind,
  CredentialEvent,
  CREDENTIALS_EXCHANGE,
} from '@integration-host/shared/contracts/credential'
import { realmOf } from '@integration-host/shared/contracts/realm'
import { parseMessageAs } from '@integration-host/shared/json'
import {
  misaddressed,
  type Consumer,
  type Delivery,
  type MessageBus,
  type Settlement,
} from '@integration-host/shared/messaging/message-bus'

// Each gateway replica has its own exclusive queue, because every replica must receive every credential event.
const QUEUE = 'accounting-gateway.credentials'

/** Subscribes this gateway replica to credential events and calls `onChange` for each of them. */
export async function consumeCredentialEvents(
  bus: MessageBus,
  onChange: (realm: string, kind: CredentialEventKind) => void,
): Promise<Consumer> {
  await bus.declare({
    exchanges: [{ name: CREDENTIALS_EXCHANGE, type: 'topic' }],
    queues: [
      {
        name: QUEUE,
        bindings: [{ exchange: CREDENTIALS_EXCHANGE, routingKey: 'credential.*' }],
        exclusive: true,
      },
    ],
  })
  return bus.consume(QUEUE, { prefetch: 100, tag: QUEUE }, async (delivery) => {
    const kind = credentialEventKind(delivery.routingKey)
    const realm = changedRealm(delivery)
    if (kind === null || realm === null || misaddressed(delivery, delivery.routingKey) !== null)
      return 'reject' satisfies Settlement
    onChange(realm, kind)
    return 'ack'
  })
}

/** Returns the realm that a credential event is about; `null` if the message is not a credential event. */
function changedRealm({ content }: Delivery): string | null {
  const event = parseMessageAs(CredentialEvent, content)
  return event === null ? null : realmOf(event.Name)
}
