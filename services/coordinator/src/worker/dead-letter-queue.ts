import type { ProcessQueue } from './process-consumers.ts'

/** The port to the queues `dead.<Process>`, which contain the messages that could not be processed. */
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

export interface DeadMessage {
  /** The id of the message that could not be processed; empty if the message has no id. */
  readonly messageId: string
  readonly reason: string
  /** The first `MAX_CONTENT_BYTES` of the content, or the whole content if it is shorter. */
  readonly content: Buffer
  /** The length of the whole content. */
  readonly contentBytes: number
  /** How often the broker has returned the message to the queue. */
  readonly deliveryCount: number
}
