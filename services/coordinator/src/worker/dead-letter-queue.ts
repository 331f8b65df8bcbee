import { DEAD_EXCHANGE, deadQueue } from '@integration-host/shared/contracts/topology'
import { parseMessageAs } from '@integration-host/shared/json'
import type {
  Delivery,
  MessageBus,
  OutgoingMessage,
} from '@integration-host/shared/messaging/message-bus'
import { z } from 'zod'
import { MAX_CONTENT_BYTES } from '../dead-letter/dead-letter-store.ts'
import type { ProcessQueue } from './intake-consumers.ts'

export interface DeadMessage {
  /** The id of the message that could not be processed; empty if the message has no id. */
  readonly messageId: string
  readonly reason: string
  /** The first `MAX_CONTENT_BYTES` of the content, or the whole content if it is shorter. */
  readonly content: Buffer
  /** The length of the whole content. */
  readonly contentBytes: number
  /** The end of the name of the queue from which the message came; `null` if it is unknown. */
  readonly queue?: string | null
  /** How often the broker has returned the message to the queue. */
  readonly deliveryCount: number
}

/** The queues `dead.<Process>`, which contain the messages that could not be processed. */
export interface DeadLetterQueue extends ProcessQueue<DeadMessage> {
  /** Returns the number of ready messages; `null` if the queue does not exist or the broker is unavailable. */
  waiting(process: string): Promise<number | null>
  /**
   * Publishes a copy of the message, with the same process, reason and content, as a new message.
   *
   * @throws {IntegrationError} `broker_unavailable` if the broker has not confirmed the new message.
   */
  publishAgain(process: string, message: DeadMessage): Promise<void>
}

/** The maximum number of unacknowledged dead letters, which are stored at the same time. */
const PREFETCH = 20
const ID_HEADER = 'original-message-id'
const BYTES_HEADER = 'original-bytes'
const QUEUE_HEADER = 'original-queue'

export const createDeadLetterQueue = (bus: MessageBus, owner: string): DeadLetterQueue => ({
  async waiting(process) {
    return (await bus.depth(deadQueue(process)))?.ready ?? null
  },
  consume: (process, { handle, onRejected }) =>
    bus.consume(
      deadQueue(process),
      { prefetch: PREFETCH, tag: `${owner} ${deadQueue(process)}`, onRejected },
      (delivery) => handle(deadMessageOf(delivery)),
    ),
  publishAgain: (process, message) => bus.publish(outgoingDeadLetter(process, message)),
})

/** Returns the outgoing message that carries an unprocessable message to the queue `dead.<Process>`. */
export const outgoingDeadLetter = (
  process: string,
  {
    messageId,
    reason,
    content,
    contentBytes,
    queue = null,
  }: Pick<DeadMessage, 'messageId' | 'reason' | 'content' | 'contentBytes'> &
    Partial<Pick<DeadMessage, 'queue'>>,
): OutgoingMessage => ({
  exchange: DEAD_EXCHANGE,
  routingKey: process,
  messageId: `dead/${crypto.randomUUID()}`,
  type: 'dead',
  headers: {
    reason: reason.slice(0, 200),
    [ID_HEADER]: messageId.slice(0, 200),
    [BYTES_HEADER]: contentBytes,
    ...(queue !== null && { [QUEUE_HEADER]: queue }),
  },
  body: content.subarray(0, MAX_CONTENT_BYTES),
  mandatory: true,
})

/** The body of a dead letter in the format of an earlier version of the coordinator. */
const Envelope = z.object({ Bytes: z.int().nonnegative(), Content: z.string() })

/** Reads a dead letter that a coordinator published, or a message that the broker itself dead-lettered. */
function deadMessageOf({
  type,
  messageId,
  headers,
  content,
  deliveryCount,
}: Delivery): DeadMessage {
  const text = (header: string): string | undefined => {
    const value = headers[header]
    return typeof value === 'string' ? value : undefined
  }
  const bytes = headers[BYTES_HEADER]
  const isPublished = type === 'dead'
  const envelope = isPublished && bytes === undefined ? parseMessageAs(Envelope, content) : null
  return {
    messageId: (isPublished ? (text(ID_HEADER) ?? '') : messageId).slice(0, 200),
    reason: (text('reason') ?? text('x-first-death-reason') ?? 'unknown').slice(0, 200),
    content: (envelope === null ? content : Buffer.from(envelope.Content)).subarray(
      0,
      MAX_CONTENT_BYTES,
    ),
    contentBytes:
      envelope?.Bytes ??
      (isPublished && typeof bytes === 'number' && Number.isSafeInteger(bytes)
        ? Math.min(Math.max(bytes, content.length), MAX_MESSAGE_BYTES)
        : content.length),
    queue: (isPublished ? text(QUEUE_HEADER) : text('x-first-death-queue')) ?? null,
    deliveryCount,
  }
}

/** The largest message that RabbitMQ accepts (`max_message_size`). */
const MAX_MESSAGE_BYTES = 536_870_912
