import type { ProcessOutline } from '../transaction/transaction-source.ts'
import type { RunKey } from '../transaction/run.ts'

/** The port to the messages that say a step is due. They carry no data: the row is the truth. */
export interface StepQueue {
  /** Makes the queues of a process; they stand again after every reconnect. */
  declare(process: ProcessOutline): Promise<void>
  /**
   * Says that a step is due, at once or after about `delayMs`: at most that, the rest on arrival.
   *
   * @throws {IntegrationError} `broker_unavailable`; the pull makes up for it.
   */
  publish(step: DueStep, delayMs: number): Promise<void>
  /** Puts a message aside that can never be worked on, with the reason. */
  bury(process: string, arrival: StepArrival, reason: string): Promise<void>
  consume(
    process: string,
    step: string,
    prefetch: number,
    handle: (arrival: StepArrival) => Promise<'ack' | 'requeue'>,
  ): StepConsumer
  /** Messages that wait in a step's queue; null while the broker is away. */
  waiting(process: string, step: string): Promise<number | null>
  /** Workers that take from a step's queue; null when there is no such queue, or the broker is away. */
  consumers(process: string, step: string): Promise<number | null>
  /** Messages that were put aside; null while the broker is away. */
  buried(process: string): Promise<number | null>
}

export interface DueStep extends RunKey {
  readonly step: string
  readonly version: number
}

export interface StepArrival {
  /** What the message says; null when it says nothing we understand. */
  readonly due: DueStep | null
  readonly content: Buffer
  readonly messageId: string
}

export interface StepConsumer {
  /** Takes nothing more and resolves when what is in hand is settled. */
  cancel(): Promise<void>
}
