import type { IntakeMessage, IntakeQueue } from './message-intake.ts'

/**
 * The port to the queues `start.<Process>`. Other programs publish messages to these queues, and the messages become
 * runs.
 */
export interface StartQueue extends IntakeQueue<StartMessage> {
  /** Declares the queue of a process, and declares it again after every reconnect. */
  declare(process: string): Promise<void>
}

export interface StartMessage extends IntakeMessage {
  /** The broker user that published the message, verified by the broker; empty if the message names none. */
  readonly userId: string
}
