import {
  START_EXCHANGE,
  startQueue,
  startTopology,
} from '@integration-host/shared/contracts/topology'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { tracing } from '@integration-host/shared/observability/telemetry'
import { outgoingDeadLetter } from '../worker/dead-letter-queue.ts'
import { intakeMessageOf, intakeSpan, RENEWALS_HEADER } from '../worker/intake-messages.ts'
import type { IntakeMessage, IntakeQueue } from '../worker/message-intake.ts'

export interface StartMessage extends IntakeMessage {
  /** The broker user that published the message, verified by the broker; empty if the message names none. */
  readonly userId: string
}

/** The queues `start.<Process>`. Other programs publish messages to them, and the messages become runs. */
export interface StartQueue extends IntakeQueue<StartMessage> {
  /** Declares the queue of a process, and declares it again after every reconnect. */
  declare(process: string): Promise<void>
}

/**
 * The maximum number of unacknowledged start messages of a process. It exceeds the size of a batch, so that a complete
 * next batch is already available when a batch is committed.
 */
const PREFETCH = 250

/** @param keyOf returns the routing key of the messages of a process; their queue is `start.` with this key */
export const createStartQueue = (
  bus: MessageBus,
  owner: string,
  keyOf: (process: string) => string = (process) => process,
): StartQueue => ({
  declare: (process) => bus.declare(startTopology(process, keyOf(process))),

  consume: (process, { handle, onRejected }) =>
    bus.consume(
      startQueue(keyOf(process)),
      { prefetch: PREFETCH, tag: `${owner} ${startQueue(keyOf(process))}`, onRejected },
      (delivery) => {
        const message = { ...intakeMessageOf(delivery), userId: delivery.userId }
        if (tracing === undefined) return handle(message)
        return tracing.span(intakeSpan(startQueue(keyOf(process)), delivery), () => handle(message))
      },
    ),

  publishAgain: (process, { messageId, content, traceparent, renewals }) =>
    bus.publish({
      exchange: START_EXCHANGE,
      routingKey: keyOf(process),
      messageId,
      type: 'start',
      headers: { [RENEWALS_HEADER]: renewals, ...(traceparent !== null && { traceparent }) },
      body: content,
      mandatory: true,
    }),

  deadLetter: (process, { messageId, content }, reason) =>
    bus.publish(
      outgoingDeadLetter(process, {
        messageId,
        reason,
        content,
        contentBytes: content.length,
        queue: startQueue(keyOf(process)),
      }),
    ),
})
