import { acceptedKey } from '../run/concurrency.ts'
import type { ProcessDefinition } from '../step/definition.ts'
import { WHOLE_PROCESS } from '../run/slots.ts'
import type {
  Claim,
  ClaimRequest,
  TransactionSource,
  UnkeyedRun,
} from '../run/transaction-source.ts'
import type { Gate } from './gate.ts'
import type { StepDelivery, StepQueue } from './step-queue.ts'
import { ABORTED } from './store-retry.ts'
import type { WorkerDeps } from './worker.ts'

export interface DeliveryDeps extends Pick<
  WorkerDeps,
  'processes' | 'lanes' | 'retryStore' | 'log' | 'owner' | 'count' | 'publisher'
> {
  readonly source: Pick<TransactionSource, 'claim' | 'failRun'>
  readonly queue: Pick<StepQueue, 'publish' | 'deadLetter'>
  readonly gate: Pick<Gate, 'isOpen' | 'rampUp'>
  readonly shutdown: AbortSignal
  /**
   * Runs the claimed step. Resolves when the outcome is recorded and an attempt to publish the next message has ended, or
   * when the outcome cannot be recorded.
   */
  readonly runClaimed: (process: ProcessDefinition, claim: Claim) => Promise<void>
}

export type DeliveryHandler = ReturnType<typeof createDeliveryHandler>

/**
 * Builds the handler of deliveries. The handler claims the run that a message names, and runs the due step of the run.
 */
export function createDeliveryHandler(deps: DeliveryDeps) {
  const { source, queue, processes, gate, publisher, log, owner } = deps

  async function handle(
    process: string,
    queueName: string,
    delivery: StepDelivery,
  ): Promise<'ack' | 'requeue'> {
    const { due, lane } = delivery
    const isOurs =
      due?.Process === process &&
      (lane !== null || due.step === queueName) &&
      delivery.misaddressed === null
    if (due === null || !isOurs) return deadLetter(process, delivery, faultOf(delivery))
    deps.lanes.left(due)
    await gate.rampUp()
    const definition = processes.get(process)
    if (definition === undefined) return deadLetter(process, delivery, faultOf(delivery))
    const { step } = due
    // During a rolling deployment, another replica may have a definition with this step, and consumes its queue. If the
    // message cannot be published, the sweeper of that replica publishes it again.
    if (lane !== null && !definition.steps.has(step)) {
      await queue.publish(due, 0).catch(() => {})
      return 'ack'
    }
    // The message is published again instead of requeued, because the broker counts redeliveries and would dead-letter
    // a message that has only waited for the internet.
    if (!gate.isOpen(definition)) return publishAgain(delivery)

    const isFirst = step === definition.stepNames[0]
    const request = { ...due, isFirst, owner, ...slotOf(definition, null) }
    const result = await claimOf(definition, request)
    if (result === ABORTED) return publishAgain(delivery)
    switch (result.kind) {
      case 'unknown':
        return deadLetter(process, delivery, 'unknown_transaction')
      case 'stale':
        deps.count(process, step, 'stale')
        return 'ack'
      case 'early':
        await queue
          .publish({ ...due, version: result.version }, result.delayMs, lane)
          .catch(() => {})
        return 'ack'
      case 'no_slot':
        publisher.publishEvent(result.run)
        return 'ack'
      case 'claimed':
        await deps.runClaimed(definition, result.claim)
        return 'ack'
      case 'unkeyed': // the run has failed
        return 'ack'
    }
  }

  /**
   * Claims a run. If another program has inserted its row, no concurrency key is stored. In this case the key is
   * computed from the initial data and the claim is repeated with the key. If the data results in no key, the run
   * fails.
   */
  async function claimOf(definition: ProcessDefinition, request: ClaimRequest) {
    const claim = (wanted: ClaimRequest) =>
      deps.retryStore(() => source.claim(wanted), deps.shutdown)
    const result = await claim(request)
    if (result === ABORTED || result.kind !== 'unkeyed') return result
    const accepted = keyOrFailure(result, definition)
    if ('key' in accepted) return claim({ ...request, ...slotOf(definition, accepted.key) })
    const { errorClass, error } = accepted
    const undoAt = definition.undoesFailure ? request.step : undefined
    const fail = () => source.failRun(request, result.version, errorClass, error, undoAt)
    const failed = await deps.retryStore(fail, deps.shutdown)
    if (failed === ABORTED) return ABORTED
    if (failed !== null) {
      log.warn(
        { process: definition.name, errorClass },
        'failed a run because it has no concurrency key',
      )
      await publisher.publishStep(failed)
    }
    return result
  }

  /** Publishes the step message again as a new message, so that it is delivered later. */
  async function publishAgain({ due, lane }: StepDelivery): Promise<'ack' | 'requeue'> {
    if (due === null) return 'ack'
    try {
      await queue.publish(due, 0, lane)
      return 'ack'
    } catch {
      return 'requeue'
    }
  }

  async function deadLetter(
    process: string,
    delivery: StepDelivery,
    reason: string,
  ): Promise<'ack' | 'requeue'> {
    log.warn(
      { process, reason, messageId: delivery.messageId.slice(0, 200) },
      'step message cannot be processed and is dead-lettered',
    )
    try {
      await queue.deadLetter(process, delivery, reason)
      return 'ack'
    } catch {
      return 'requeue'
    }
  }

  function faultOf({ due, misaddressed }: StepDelivery): string {
    if (misaddressed !== null) return misaddressed
    if (due === null) return 'malformed'
    const named = processes.get(due.Process)
    if (named === undefined) return 'unknown_process'
    return named.steps.has(due.step) ? 'wrong_queue' : 'unknown_step'
  }

  return handle
}

/** Returns what a claim needs to know about the limit of the process. `key` is `null` if the run has a stored key. */
const slotOf = (
  { concurrency }: ProcessDefinition,
  key: string | null,
): Pick<ClaimRequest, 'slot'> =>
  concurrency === null
    ? {}
    : {
        slot: {
          limit: concurrency.limit,
          ...(concurrency.total !== undefined && { total: concurrency.total }),
          key: concurrency.keyOf === null ? WHOLE_PROCESS : key,
        },
      }

/** Returns the concurrency key that is computed for the run, or the reason why there is no key. */
function keyOrFailure(
  { initialData, realm, isUnreadable }: UnkeyedRun,
  definition: ProcessDefinition,
): { readonly key: string | null } | { readonly errorClass: string; readonly error: string } {
  if (isUnreadable === true)
    return {
      errorClass: 'payload_unreadable',
      error: 'the initial data cannot be decrypted; correct PAYLOAD_KEYS, then resume',
    }
  const accepted = acceptedKey(definition, initialData, realm ?? null)
  if ('key' in accepted) return accepted
  return {
    errorClass: 'input_invalid',
    error: `the initial data is not valid: ${accepted.problems.join('; ')}`,
  }
}
