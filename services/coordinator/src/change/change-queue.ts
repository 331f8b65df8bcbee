import { onQueue, PROVIDER_EXCHANGE } from '@integration-host/shared/contracts/provider-event'
import { changesTopology } from '@integration-host/shared/contracts/topology'
import type { Delivery, MessageBus } from '@integration-host/shared/messaging/message-bus'
import { tracing } from '@integration-host/shared/observability/telemetry'
import { outgoingDeadLetter } from '../worker/dead-letter-queue.ts'
import { intakeMessageOf, intakeSpan, RENEWALS_HEADER } from '../worker/intake-messages.ts'
import type { IntakeMessage, IntakeQueue } from '../worker/message-intake.ts'

/** The routing key of its address is that of the event, for example `intuit.Invoice.update`. */
export type ChangeMessage = IntakeMessage

/** The queues `on.<Process>`, whose provider events become runs, or `changes.<Process>`, whose events end waits. */
export interface ChangeQueue extends IntakeQueue<ChangeMessage> {
  /**
   * Declares the queue of a process and binds it to these routing keys, now and after every reconnect. Does not remove
   * bindings to other routing keys.
   */
  declare(process: string, routingKeys: readonly string[]): Promise<void>
  /**
   * Removes bindings of the queue. Ignores a binding that does not exist.
   *
   * @throws {IntegrationError} `broker_unavailable` if a binding may still exist.
   */
  unbind(process: string, routingKeys: readonly string[]): Promise<void>
}

/** The maximum number of unacknowledged events of a process; see `start-queue.ts`. */
const PREFETCH = 250

/** `queueOf` returns the name of the queue of a process: `on.<Process>` or `changes.<Process>`. */
export const createChangeQueue = (
  bus: MessageBus,
  owner: string,
  queueOf: (process: string) => string = onQueue,
): ChangeQueue => ({
  declare: (process, routingKeys) =>
    bus.declare(changesTopology(queueOf(process), process, routingKeys)),

  unbind: (process, routingKeys) =>
    bus.unbind(
      queueOf(process),
      routingKeys.map((routingKey) => ({ exchange: PROVIDER_EXCHANGE, routingKey })),
    ),

  consume: (process, { handle, onRejected }) =>
    bus.consume(
      queueOf(process),
      { prefetch: PREFETCH, tag: `${owner} ${queueOf(process)}`, onRejected },
      (delivery: Delivery) => {
        const message = intakeMessageOf(delivery)
        if (tracing === undefined) return handle(message)
        return tracing.span(intakeSpan(queueOf(process), delivery), () => handle(message))
      },
    ),

  // The exchange routes the event to the queues of all subscribed processes again. It starts no second run in a process
  // that has already received the event.
  publishAgain: (_, { messageId, content, traceparent, renewals, address }) =>
    bus.publish({
      exchange: PROVIDER_EXCHANGE,
      routingKey: address.routingKey,
      messageId,
      type: address.routingKey,
      headers: { [RENEWALS_HEADER]: renewals, ...(traceparent !== null && { traceparent }) },
      body: content,
      mandatory: true,
      isOnlyCopy: true,
    }),

  deadLetter: (process, { messageId, content }, reason) =>
    bus.publish({
      ...outgoingDeadLetter(process, { messageId, reason, content, contentBytes: content.length }),
      isOnlyCopy: true,
    }),
})
