import {
  CredentialEvent,
  credentialEventKind,
  CREDENTIALS_EXCHANGE,
  credentialRoutingKey,
} from '@integration-host/shared/contracts/credential-event'
import type { Consumer, MessageBus } from '@integration-host/shared/message-bus'
import { parsed } from './parsed.ts'

/** One queue for all replicas: a credential's return is one job. */
const CREDENTIALS_QUEUE = 'coordinator.credentials'

/** Calls `usable` for each credential that was stored or refreshed, until it resolved once. */
export async function onCredentialUsable(
  bus: MessageBus,
  tag: string,
  usable: (name: string) => Promise<void>,
): Promise<Consumer> {
  await bus.declare({
    exchanges: [{ name: CREDENTIALS_EXCHANGE, type: 'topic' }],
    queues: [
      {
        name: CREDENTIALS_QUEUE,
        bindings: (['stored', 'refreshed'] as const).map((kind) => ({
          exchange: CREDENTIALS_EXCHANGE,
          routingKey: credentialRoutingKey(kind),
        })),
      },
    ],
  })
  return bus.consume(CREDENTIALS_QUEUE, { prefetch: 8, tag }, async ({ routingKey, content }) => {
    const event = parsed(CredentialEvent, content)
    if (event === null || credentialEventKind(routingKey) === null) return 'ack'
    await usable(event.Name)
    return 'ack'
  })
}
