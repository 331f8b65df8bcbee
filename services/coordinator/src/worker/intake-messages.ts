/** What the queues `start.<Process>` and `on.<Process>` share. */
import type { Delivery } from '@integration-host/shared/messaging/message-bus'
import type { SpanDescription } from '@integration-host/shared/observability/telemetry'
import type { IntakeMessage } from './message-intake.ts'

/** The header with the number of times that a coordinator has published the message again. */
export const RENEWALS_HEADER = 'renewals'

export function intakeMessageOf({
  exchange,
  routingKey,
  messageId,
  content,
  headers,
  deliveryCount,
}: Delivery): IntakeMessage {
  const { traceparent, [RENEWALS_HEADER]: renewals } = headers
  return {
    address: { exchange, routingKey, headers },
    messageId,
    content,
    traceparent: typeof traceparent === 'string' ? traceparent.slice(0, 200) : null,
    deliveryCount,
    renewals: Number.isSafeInteger(renewals) ? Math.max(0, Number(renewals)) : 0,
  }
}

export const intakeSpan = (queue: string, { headers }: Delivery): SpanDescription => ({
  name: `process ${queue}`,
  kind: 'consumer',
  attributes: {
    'messaging.system': 'rabbitmq',
    'messaging.operation.name': 'process',
    'messaging.destination.name': queue,
  },
  from: headers,
})
