import type { IntakeMessage, IntakeQueue } from './message-intake.ts'

/** The port to the queues `on.<Process>`, whose provider events become runs. */
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

/** The routing key of its address is that of the event, for example `intuit.Invoice.update`. */
export type ChangeMessage = IntakeMessage
