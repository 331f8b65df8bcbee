import type { Actor } from '../transaction/action.ts'
import type { IntakeResult } from './message-intake.ts'
import { type MessageIntake, type MessageIntakeDeps, startMessageIntake } from './message-intake.ts'
import { readStartMessage } from './read-start-message.ts'
import type { StartMessage } from './start-queue.ts'

/** How a start message was handled. */
export type StartResult = IntakeResult

export type StartIntakeDeps = Omit<
  MessageIntakeDeps<StartMessage, never>,
  'kind' | 'queues' | 'read' | 'ignoresConflicts' | 'prepare'
>

/** Queues a run for each message of the queues `start.<Process>`. */
export const startStartIntake = (deps: StartIntakeDeps): MessageIntake =>
  startMessageIntake({
    ...deps,
    kind: 'start message',
    queues: 'start.*',
    read(_, message) {
      const read = readStartMessage(message)
      if ('reason' in read) return read
      const { transaction } = read
      return { transaction, by: queuerOf(message, transaction.Reason !== undefined) }
    },
  })

/**
 * Returns the actor in the action log: the user of the broker that published the message. Most messages name no user,
 * because the broker does not add one by itself; these are recorded only if the transaction has a reason. The id of a
 * service key contains no colon, so it differs from that of every user.
 */
const queuerOf = ({ userId }: StartMessage, hasReason: boolean): Actor | undefined =>
  userId !== '' || hasReason
    ? { keyId: userId === '' ? 'rabbitmq' : `rabbitmq:${userId}`, person: null }
    : undefined
