import type { RunKey } from '../transaction/run.ts'
import type { ProcessOutline } from '../transaction/transaction-source.ts'

/** The port to the messages that start due steps. A message contains only the key and version of a run, no data. */
export interface StepQueue {
  /** Declares the queues of a process, and declares them again after every reconnect. */
  declare(process: ProcessOutline): Promise<void>
  /**
   * Publishes that a step is due now or in about `delayMs`. The message may arrive earlier; the claim then returns
   * `early` with the time that remains.
   *
   * @throws {IntegrationError} `broker_unavailable` if the broker has not confirmed the message. The sweeper publishes
   * the message again.
   */
  publish(step: DueStep, delayMs: number): Promise<void>
  /** Dead-letters a message that can never be processed, with the reason. */
  deadLetter(process: string, delivery: StepDelivery, reason: string): Promise<void>
  consume(
    process: string,
    step: string,
    prefetch: number,
    handle: (delivery: StepDelivery) => Promise<'ack' | 'requeue'>,
  ): StepConsumer
  /** The number of messages that are ready in a step's queue; `null` while the broker is unavailable. */
  waiting(process: string, step: string): Promise<number | null>
  /** The number of consumers of a step's queue; `null` if the queue does not exist or the broker is unavailable. */
  consumers(process: string, step: string): Promise<number | null>
}

export interface DueStep extends RunKey {
  readonly step: string
  readonly version: number
}

export interface StepDelivery {
  /** The parsed message; `null` if it is not a step message. */
  readonly due: DueStep | null
  readonly content: Buffer
  readonly messageId: string
}

export interface StepConsumer {
  /** Stops accepting deliveries; resolves when the deliveries in flight are settled. */
  cancel(): Promise<void>
}
