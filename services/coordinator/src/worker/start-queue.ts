import type { StepConsumer } from './step-queue.ts'

/** The port to the queues `start.<Process>`, whose messages become runs. Other programs publish the messages. */
export interface StartQueue {
  /** Declares the queue of a process, and declares it again after every reconnect. */
  declare(process: string): Promise<void>
  /** Consumes the queue until the consumer is cancelled or rejected by the broker. */
  consume(
    process: string,
    handlers: {
      readonly handle: (message: StartMessage) => Promise<'ack' | 'requeue'>
      /** Called if the broker rejects or ends the consumer. The consumer is then cancelled. */
      readonly onRejected: (reason: string) => void
    },
  ): StepConsumer
  /**
   * Publishes a copy of the message as a new message, which the broker has returned 0 times.
   *
   * @throws {IntegrationError} `broker_unavailable` if the broker has not confirmed the new message.
   */
  publishAgain(process: string, message: StartMessage): Promise<void>
  /**
   * Publishes the message to the dead letters of the process.
   *
   * @throws {IntegrationError} `broker_unavailable` if the broker has not confirmed the dead letter.
   */
  deadLetter(process: string, message: StartMessage, reason: string): Promise<void>
}

export interface StartMessage {
  /** The message id; empty if the message has none. */
  readonly messageId: string
  /** The user of the broker that published the message, verified by the broker; empty if the message names none. */
  readonly userId: string
  readonly content: Buffer
  /** The header `traceparent`; `null` if the message has none. */
  readonly traceparent: string | null
  /** How often the broker has returned the message to the queue. */
  readonly deliveryCount: number
  /** How often a coordinator has published the message again. */
  readonly renewals: number
}
