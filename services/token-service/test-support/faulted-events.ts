import {
  CredentialEvent,
  CREDENTIALS_EXCHANGE,
} from '@integration-host/shared/contracts/credential'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'

export interface FaultedEvent {
  readonly event: CredentialEvent
  readonly messageId: string
}

/**
 * Subscribes to the events `credential.faulted` of a bus. Returns a list to which each event is
 * appended.
 */
export async function collectFaultedEvents(bus: MessageBus): Promise<readonly FaultedEvent[]> {
  const events: FaultedEvent[] = []
  await bus.declare({
    exchanges: [{ name: CREDENTIALS_EXCHANGE, type: 'topic' }],
    queues: [
      {
        name: 'faults',
        bindings: [{ exchange: CREDENTIALS_EXCHANGE, routingKey: 'credential.faulted' }],
      },
    ],
  })
  bus.consume('faults', { prefetch: 1, tag: 'test' }, async ({ content, messageId }) => {
    events.push({ event: CredentialEvent.parse(JSON.parse(String(content))), messageId })
    return 'ack'
  })
  return events
}
