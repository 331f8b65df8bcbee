import type { Logger } from '@integration-host/shared/observability/logger'
import type { ProcessDefinition } from '../process/definition.ts'
import type { Claim, TransactionSource } from '../transaction/transaction-source.ts'
import type { Gate } from './gate.ts'
import type { StepDelivery, StepQueue } from './step-queue.ts'
import { ABORTED, type StoreRetry } from './store-retry.ts'

export interface DeliveryDeps {
  readonly source: Pick<TransactionSource, 'claim'>
  readonly queue: Pick<StepQueue, 'publish' | 'deadLetter'>
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly gate: Pick<Gate, 'isOpen' | 'rampUp'>
  readonly retryStore: StoreRetry
  readonly shutdown: AbortSignal
  readonly log: Logger
  readonly owner: string
  /** Counts a delivery that was not claimed because another worker has the run or the message is outdated. */
  readonly countStale: (process: string, step: string) => void
  /** Runs the claimed step. Resolves when the outcome is recorded and publishing the next message was tried. */
  readonly runClaimed: (process: ProcessDefinition, claim: Claim) => Promise<void>
}

/**
 * Builds the handler of deliveries, which claims the run that a message refers to and runs the due step of that
 * run.
 */
export function createDeliveryHandler(deps: DeliveryDeps) {
  const { source, queue, processes, gate, log, owner } = deps

  async function handle(
    process: string,
    step: string,
    delivery: StepDelivery,
  ): Promise<'ack' | 'requeue'> {
    const { due } = delivery
    const isOurs = due?.Process === process && due.step === step
    if (due === null || !isOurs) return deadLetter(process, delivery, faultOf(delivery))
    await gate.rampUp()
    const definition = processes.get(process)
    if (definition === undefined) return deadLetter(process, delivery, faultOf(delivery))
    // The message is published again instead of requeued, because the broker counts redeliveries and would dead-letter
    // a message that has only waited for the internet.
    if (!gate.isOpen(definition)) return publishAgain(delivery)

    const isFirst = step === definition.stepNames[0]
    const claim = () => source.claim({ ...due, isFirst, owner })
    const result = await deps.retryStore(claim, deps.shutdown)
    if (result === ABORTED) return publishAgain(delivery)
    switch (result.kind) {
      case 'unknown':
        return deadLetter(process, delivery, 'unknown_transaction')
      case 'stale':
        deps.countStale(process, step)
        return 'ack'
      case 'early':
        await queue.publish({ ...due, version: result.version }, result.delayMs).catch(() => {})
        return 'ack'
      case 'claimed':
        await deps.runClaimed(definition, result.claim)
        return 'ack'
    }
  }

  /** Publishes the step message again as a new message, so that it is delivered later. */
  async function publishAgain({ due }: StepDelivery): Promise<'ack' | 'requeue'> {
    if (due === null) return 'ack'
    try {
      await queue.publish(due, 0)
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

  function faultOf({ due }: StepDelivery): string {
    if (due === null) return 'malformed'
    const named = processes.get(due.Process)
    if (named === undefined) return 'unknown_process'
    return named.steps.has(due.step) ? 'wrong_queue' : 'unknown_step'
  }

  return handle
}
