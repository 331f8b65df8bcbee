import type { RunKey } from '../transaction/run.ts'
import type { ProcessOutline } from '../transaction/transaction-source.ts'

/**
 * The port to the queues of step messages. A step message starts a due step: it contains the key and the version of a
 * run, but no data.
 */
export interface StepQueue {
  /** Declares the queues of a process, and declares them again after every reconnect. */
  declare(process: ProcessOutline): Promise<void>
  /**
   * Publishes a message that starts a step now or in about `delayMs`. If the message arrives too early, its claim
   * returns `early` with the remaining time.
   *
   * @throws {IntegrationError} `broker_unavailable` if the broker has not confirmed the message. The sweeper publishes
   *   such a message again.
   */
  publish(step: DueStep, delayMs: number): Promise<void>
  /** Resolves when the messages of this turn of the event loop are on their way to the broker. */
  written(): Promise<void>
  /** Dead-letters a message that can never be processed, with the reason. */
  deadLetter(process: string, delivery: StepDelivery, reason: string): Promise<void>
  consume(
    process: string,
    step: string,
    prefetch: number,
    handle: (delivery: StepDelivery) => Promise<'ack' | 'requeue'>,
  ): StepConsumer
  /** The number of ready messages in the queue of a step; `null` while the broker is unavailable. */
  waiting(process: string, step: string): Promise<number | null>
  /**
   * The number of consumers of the queue of a step; `null` if the queue does not exist or the broker is unavailable.
   */
  consumers(process: string, step: string): Promise<number | null>
}

export interface DueStep extends RunKey {
  readonly step: string
  readonly version: number
}

export interface StepDelivery {
  /** Why the message does not belong to the queue of the step; `null` if it does. */
  readonly misaddressed: string | null
  /** The parsed message; `null` if the message is not a step message. */
  readonly due: DueStep | null
  readonly content: Buffer
  readonly messageId: string
}

export interface StepConsumer {
  /** Stops accepting deliveries. Resolves when all deliveries in flight are settled. */
  cancel(): Promise<void>
}
