import { misaddressed } from '@integration-host/shared/messaging/message-bus'
import type { Actor } from '../run/action.ts'
import {
  type IntakeResult,
  type MessageIntake,
  type MessageIntakeDeps,
  startMessageIntake,
} from '../worker/message-intake.ts'
import { readStartMessage } from './read-start-message.ts'
import type { IntakeMessage } from '../worker/intake-queue.ts'

/** How a start message was handled. */
export type StartResult = IntakeResult

export type StartIntakeDeps = Omit<
  MessageIntakeDeps<never>,
  'kind' | 'queues' | 'misaddressed' | 'read' | 'ignoresConflicts' | 'prepare'
>

/** Queues a run for each message of the queues `start.<Process>`. */
export const startStartIntake = (deps: StartIntakeDeps): MessageIntake =>
  startMessageIntake({
    ...deps,
    kind: 'start message',
    queues: 'start.*',
    misaddressed: (process, { address }) => misaddressed(address, process),
    read(_, message) {
      const read = readStartMessage(message)
      if ('reason' in read) return read
      const { transaction } = read
      return { transaction, by: queuerOf(message) }
    },
  })

/**
 * Returns the actor for the action log: the broker user that published the message, or `rabbitmq` if the message names
 * none, because the broker does not add one by itself. Every run has an actor, so that a publisher cannot leave no
 * trace. The actor of a user, `rabbitmq:<user>`, cannot equal the id of a service key, because the id of a service key
 * contains no colon.
 */
export const queuerOf = ({ userId }: IntakeMessage): Actor => ({
  keyId: userId === '' ? 'rabbitmq' : `rabbitmq:${userId}`,
  person: null,
})
