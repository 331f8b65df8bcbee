import { providerRoutingKey } from '@integration-host/shared/contracts/provider-event'
import { StepMessage } from '@integration-host/shared/contracts/topology'
import { IntegrationError } from '@integration-host/shared/errors'
import { parseMessageAs } from '@integration-host/shared/json'
import { MISADDRESSED } from '@integration-host/shared/messaging/message-bus'
import { type Act, recordWithoutChange } from '../run/action.ts'
import { notActive } from '../run/errors.ts'
import type { Run } from '../run/run.ts'
import { isOver } from '../run/status.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import { messageIdOf } from './dead-letter-intake.ts'
import { type DeadLetter, type DeadLetterStore, namedBy } from './dead-letter-store.ts'
import { inputInvalid, type RunActions, tooManyDelayedRuns } from '../worker/run-actions.ts'
import type { Looks } from '../change/look.ts'
import { changeOfLetter, startedByChange } from '../change/change-intake.ts'
import { startedByEntryLetter } from '../entry/entry-intake.ts'
import { readSignal } from '../signal/read-signal.ts'
import { watchedKeysOf } from '../step/change-place.ts'
import { routingKeysOf } from '../step/change-trigger.ts'
import { readStartMessage } from '../start/read-start-message.ts'
import type { TransitionPublisher } from '../worker/transition-publisher.ts'
import type { DeadLetterQueue } from '../worker/dead-letter-queue.ts'

export type DeadLetterOperations = ReturnType<typeof createDeadLetterOperations>

/** The operations that the HTTP API offers on dead letters. Each is recorded in the action log. */
export function createDeadLetterOperations({
  source,
  deadLetterStore,
  runActions,
  looks,
  publisher,
}: {
  readonly source: Pick<TransactionSource, 'get' | 'records' | 'runsOf'>
  readonly deadLetterStore: Pick<DeadLetterStore, 'remove' | 'removeAll'>
  readonly runActions: Pick<RunActions, 'process' | 'queue' | 'signal'>
  readonly looks: Pick<Looks, 'changed'>
  readonly publisher: Pick<TransitionPublisher, 'republishStep'>
}) {
  /** Returns the run of a dead letter. @throws {IntegrationError} if it has no step that can be published. */
  async function activeRunOf(letter: DeadLetter): Promise<Run> {
    runActions.process(letter.Process)
    const { run } = await activeOrEnded(letter)
    if (isOver(run.Status)) throw notActive()
    return run
  }

  /**
   * Queues the transaction of a start message or of a provider event. If the same transaction already exists with the
   * same data, returns its run.
   *
   * @throws {IntegrationError} if the message has no transaction that can be queued now.
   */
  async function startedRunOf(letter: DeadLetter, { by }: Act): Promise<Run> {
    const definition = runActions.process(letter.Process)
    const { Content: content, ContentBytes } = letter
    // Its publisher may not be permitted to start runs of this process.
    if (letter.Reason.startsWith(MISADDRESSED)) throw withoutRun(letter.Reason)
    if (content.length < ContentBytes)
      throw withoutRun(
        `the message names no run, and only the first ${content.length} of its ${ContentBytes} bytes are stored`,
      )
    const changed = changeOfLetter(content)
    if (changed !== null) {
      // The event may come from either queue of the process. To handle it as an event of both is harmless: each has got it.
      const key = providerRoutingKey(changed)
      const isWatched = watchedKeysOf(definition).includes(key)
      const look = isWatched ? await looks.changed(letter.Process, changed) : null
      const starts = isWatched
        ? routingKeysOf(definition.on).includes(key)
        : definition.on.length > 0
      if (!starts && look !== null) return look
      if (!starts)
        throw withoutRun('no change starts a run of this process, and no run waits for the object')
    }
    const byEntry = startedByEntryLetter(content)
    if (byEntry !== null && definition.entryOn.length === 0)
      throw withoutRun('no change of what runs have written starts a run of this process')
    const transaction = changed === null ? byEntry : startedByChange(changed)
    const read =
      transaction === null
        ? readStartMessage({ content, messageId: messageIdOf(letter) })
        : { transaction }
    if ('reason' in read)
      throw withoutRun(
        `the message names no run of this process that exists, and has no transaction (${read.reason})`,
      )
    const [result] = await runActions.queue(letter.Process, [read.transaction], by)
    if (result?.outcome === 'invalid') throw inputInvalid(result.errors)
    if (result?.outcome === 'limited') throw tooManyDelayedRuns()
    if (result === undefined || result.outcome === 'conflict')
      throw new IntegrationError(
        'transaction_conflict',
        'the id exists with other data, realm or tags',
      )
    return result.run
  }

  /**
   * Sends the event of a dead letter to its run.
   * @throws {IntegrationError} `dead_letter_without_run`, or the reason why the run does not accept the event.
   */
  async function signalledRunOf(letter: DeadLetter, act: Act): Promise<Run> {
    const { Process, Content: content, ContentBytes } = letter
    const read = readSignal(content)
    if (letter.Reason.startsWith(MISADDRESSED) || 'reason' in read || content.length < ContentBytes)
      throw withoutRun(letter.Reason)
    const { TransactionID, ReplayID = null, Event, EventID, Data = null, Reason } = read.signal
    const event = { data: Data, eventId: EventID ?? null }
    const sent = { ...act, reason: act.reason ?? Reason ?? null }
    await runActions.signal(Process, TransactionID, ReplayID, Event, event, sent, false)
    return (await activeOrEnded(letter)).run
  }

  async function activeOrEnded({ Process, TransactionID, ReplayID }: DeadLetter) {
    const found = TransactionID === null ? null : await source.get(Process, TransactionID, ReplayID)
    if (found === null) throw withoutRun('the message names no run of this process that exists')
    return found
  }

  async function remove(
    letter: DeadLetter,
    kind: 'requeue_dead_letter' | 'delete_dead_letter',
    act: Act,
  ): Promise<void> {
    if (!(await deadLetterStore.remove(letter, kind, act))) throw deadLetterNotFound()
  }

  return {
    /**
     * Requeues a dead letter: publishes the due step of its run, as the sweeper does, and removes the dead letter. If the
     * message is a start message, a provider event or an entry event, queues its transaction instead and returns the run; if
     * it is an event, sends the event to its run; if it is a provider event for which runs wait, has the object read.
     *
     * @param requireSignal throws unless the caller may send events to runs
     * @throws {IntegrationError} `process_not_found`, `dead_letter_without_run` if the message neither names a run nor
     *   has a transaction, `transaction_not_active`, `input_invalid`, `transaction_conflict`, or `dead_letter_not_found`
     *   if the dead letter was removed meanwhile.
     */
    async requeue(letter: DeadLetter, act: Act, requireSignal: () => void): Promise<Run> {
      const isStart = letter.TransactionID === null
      const isStep = !isStart && parseMessageAs(StepMessage, letter.Content) !== null
      if (!isStart && !isStep) requireSignal()
      let run: Run
      try {
        if (isStart) run = await startedRunOf(letter, act)
        else if (isStep) run = await activeRunOf(letter)
        else run = await signalledRunOf(letter, act)
      } catch (error) {
        if (error instanceof IntegrationError && error.code !== 'store_unavailable') {
          const what = { ...namedBy(letter), Outcome: error.code }
          await recordWithoutChange(source, { kind: 'requeue_dead_letter', act, ...what })
        }
        throw error
      }
      // If the message is a start message or a provider event, `queue` has already published the first step of its run.
      // If that message is lost, the sweeper publishes the step again, because the row of the run is the outbox.
      if (isStep) await publisher.republishStep(run)
      await remove(letter, 'requeue_dead_letter', act)
      return run
    },
    /** Removes a dead letter. @throws {IntegrationError} `dead_letter_not_found` */
    delete: (letter: DeadLetter, act: Act) => remove(letter, 'delete_dead_letter', act),
    /** Removes all dead letters of a process. Returns their number. */
    deleteAll: deadLetterStore.removeAll,
  }
}

const withoutRun = (reason: string): IntegrationError =>
  new IntegrationError('dead_letter_without_run', reason)

export const deadLetterNotFound = (): IntegrationError =>
  new IntegrationError('dead_letter_not_found', 'the process has no dead letter with this ID')

/**
 * Returns the number of dead letters of each process: those in the store and those that are still in the queue. While
 * the broker is unavailable, only those in the store are counted. The result contains each loaded process, and every
 * other process that has dead letters.
 */
export async function countDeadLetters(
  store: Pick<DeadLetterStore, 'counts'>,
  queue: Pick<DeadLetterQueue, 'waiting'>,
  processes: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  const counts = new Map(await store.counts())
  await Promise.all(
    processes.map(async (process) => {
      const waiting = (await queue.waiting(process)) ?? 0
      counts.set(process, (counts.get(process) ?? 0) + waiting)
    }),
  )
  return counts
}
