import type { IntakeMessage, IntakeQueue } from './message-intake.ts'

/** The port to the queues `start.<Process>`, whose messages become runs. Other programs publish the messages. */
export interface StartQueue extends IntakeQueue<StartMessage> {
  /** Declares the queue of a process, and declares it again after every reconnect. */
  declare(process: string): Promise<void>
}

export interface StartMessage extends IntakeMessage {
  /** The user of the broker that published the message, verified by the broker; empty if the message names none. */
  readonly userId: string
}
