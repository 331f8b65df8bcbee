import { START_EXCHANGE, startQueue } from '@integration-host/shared/contracts/start-message'
import { startTopology } from '@integration-host/shared/contracts/topology'
import type { Delivery, MessageBus } from '@integration-host/shared/messaging/message-bus'
import { tracing } from '@integration-host/shared/observability/telemetry'
import type { StartMessage, StartQueue } from '../../worker/start-queue.ts'
import { outgoingDeadLetter } from './dead-letter-queue.ts'

/**
 * The maximum number of unacknowledged start messages of a process. There are more than one batch has, so that the next
 * batch is complete when the previous one is committed.
 */
const PREFETCH = 250
const RENEWALS_HEADER = 'renewals'

export const createStartQueue = (bus: MessageBus, owner: string): StartQueue => ({
  declare: (process) => bus.declare(startTopology(process)),

  consume: (process, { handle, onRejected }) =>
    bus.consume(
      startQueue(process),
      { prefetch: PREFETCH, tag: `${owner} ${startQueue(process)}`, onRejected },
      (delivery) => {
        const message = startMessageOf(delivery)
        if (tracing === undefined) return handle(message)
        return tracing.span(spanOf(process, delivery), () => handle(message))
      },
    ),

  publishAgain: (process, { messageId, content, traceparent, renewals }) =>
    bus.publish({
      exchange: START_EXCHANGE,
      routingKey: process,
      messageId,
      type: 'start',
      headers: { [RENEWALS_HEADER]: renewals, ...(traceparent !== null && { traceparent }) },
      body: content,
      mandatory: true,
    }),

  deadLetter: (process, { messageId, content }, reason) =>
    bus.publish(
      outgoingDeadLetter(process, { messageId, reason, content, contentBytes: content.length }),
    ),
})

function startMessageOf({
  messageId,
  userId,
  content,
  headers,
  deliveryCount,
}: Delivery): StartMessage {
  const { traceparent, [RENEWALS_HEADER]: renewals } = headers
  return {
    messageId,
    userId,
    content,
    traceparent: typeof traceparent === 'string' ? traceparent.slice(0, 200) : null,
    deliveryCount,
    renewals: Number.isSafeInteger(renewals) ? Math.max(0, Number(renewals)) : 0,
  }
}

const spanOf = (process: string, { headers }: Delivery) => ({
  name: `process ${startQueue(process)}`,
  kind: 'consumer' as const,
  attributes: {
    'messaging.system': 'rabbitmq',
    'messaging.operation.name': 'process',
    'messaging.destination.name': startQueue(process),
  },
  from: headers,
})
