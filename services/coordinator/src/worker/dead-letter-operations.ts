import { IntegrationError } from '@integration-host/shared/errors'
import type { Act } from '../transaction/action.ts'
import { type DeadLetter, namedBy } from '../transaction/dead-letter.ts'
import { notActive } from '../transaction/errors.ts'
import type { Run } from '../transaction/run.ts'
import { isOver } from '../transaction/status.ts'
import type { TransactionSource } from '../transaction/transaction-source.ts'
import type { Operations } from './operations.ts'
import type { TransitionPublisher } from './transition-publisher.ts'

/** The operations that the HTTP API offers on dead letters. Each is recorded in the action log. */
export interface DeadLetterOperations {
  /**
   * Publishes the due step of the run to which a dead letter belongs, as the sweeper does, and removes the dead letter.
   *
   * @throws {IntegrationError} `process_not_found`, `dead_letter_without_run`, `transaction_not_active`, or
   * `dead_letter_not_found` if the dead letter was removed meanwhile.
   */
  requeue(letter: DeadLetter, act: Act): Promise<Run>
  /** @throws {IntegrationError} `dead_letter_not_found` if the dead letter was removed meanwhile. */
  delete(letter: DeadLetter, act: Act): Promise<void>
  /** Removes all dead letters of a process. Returns their number. */
  deleteAll(process: string, act: Act): Promise<number>
}

export function createDeadLetterOperations({
  source,
  operations,
  publisher,
}: {
  readonly source: Pick<
    TransactionSource,
    'get' | 'recordRejected' | 'removeDeadLetter' | 'removeDeadLetters'
  >
  readonly operations: Pick<Operations, 'process'>
  readonly publisher: Pick<TransitionPublisher, 'republishStep'>
}): DeadLetterOperations {
  /** @throws {IntegrationError} if the run has no step that can be published. */
  async function activeRunOf({ Process, TransactionID, ReplayID }: DeadLetter): Promise<Run> {
    operations.process(Process)
    const found = TransactionID === null ? null : await source.get(Process, TransactionID, ReplayID)
    if (found === null)
      throw new IntegrationError(
        'dead_letter_without_run',
        'the message names no run of this process that exists',
      )
    if (isOver(found.run.Status)) throw notActive()
    return found.run
  }

  async function remove(
    { Process, ID }: DeadLetter,
    kind: 'requeue_dead_letter' | 'delete_dead_letter',
    act: Act,
  ): Promise<void> {
    if (!(await source.removeDeadLetter(Process, ID, kind, act))) throw deadLetterNotFound()
  }

  return {
    async requeue(letter, act) {
      let run: Run
      try {
        run = await activeRunOf(letter)
      } catch (error) {
        if (error instanceof IntegrationError && error.code !== 'store_unavailable') {
          const what = { ...namedBy(letter), Outcome: error.code }
          await source.recordRejected({ kind: 'requeue_dead_letter', act, ...what })
        }
        throw error
      }
      // If the message is lost, the sweeper publishes the step again, because the row of the run is the outbox.
      await publisher.republishStep(run)
      await remove(letter, 'requeue_dead_letter', act)
      return run
    },
    delete: (letter, act) => remove(letter, 'delete_dead_letter', act),
    deleteAll: (process, act) => source.removeDeadLetters(process, act),
  }
}

export const deadLetterNotFound = (): IntegrationError =>
  new IntegrationError('dead_letter_not_found', 'the process has no dead letter with this ID')
