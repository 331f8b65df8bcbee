import type { Consumer } from '@integration-host/shared/messaging/message-bus'
import { HIGH_LANE, hasHighLane, lanesOf } from '@integration-host/shared/contracts/topology'
import type { ProcessDefinition } from '../step/definition.ts'
import { HIGH_SHARE } from './lanes.ts'
import type { Gate } from './gate.ts'
import type { StepDelivery, StepQueue } from './step-queue.ts'

/**
 * The consumers of the step queues and lanes. A business process has consumers only while its gate is open. The map `processes`
 * can change at any time: each delivery is handled with the current definition of its process.
 */
export interface Consumers {
  /**
   * Starts the consumers of processes whose gate is open, and cancels all other consumers. New consumers start at once,
   * even while cancelled consumers still have calls in flight. Resolves when the cancelled consumers have settled their
   * deliveries.
   */
  reconcile(): Promise<unknown>
  readonly isConsuming: (process: string) => boolean
}

export interface ConsumersDeps {
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly queue: Pick<StepQueue, 'consume'>
  readonly gate: Pick<Gate, 'isOpen'>
  readonly prefetch: number
  readonly handle: (
    process: string,
    step: string,
    delivery: StepDelivery,
  ) => Promise<'ack' | 'requeue'>
}

export function createConsumers(deps: ConsumersDeps): Consumers {
  const { processes, queue, gate, prefetch, handle } = deps
  /** For each process that has consumers, the consumers of its steps and lanes by their names. */
  const consumers = new Map<string, ReadonlyMap<string, Consumer>>()
  const cancelling = new Set<Promise<unknown>>()

  function start({ name, stepNames }: ProcessDefinition): ReadonlyMap<string, Consumer> {
    const current = consumers.get(name)
    return new Map(
      [...stepNames, ...lanesOf(stepNames)].map((step) => [
        step,
        current?.get(step) ??
          queue.consume(name, step, prefetchOf(stepNames, step), (delivery) =>
            handle(name, step, delivery),
          ),
      ]),
    )
  }

  const prefetchOf = (stepNames: readonly string[], queueName: string): number =>
    queueName === HIGH_LANE && hasHighLane(stepNames) ? HIGH_SHARE * prefetch : prefetch

  function cancel(stopped: readonly Consumer[]): void {
    const cancelled = Promise.all(stopped.map((consumer) => consumer.cancel()))
    cancelling.add(cancelled)
    void cancelled.finally(() => cancelling.delete(cancelled))
  }

  return {
    reconcile() {
      for (const process of processes.values()) {
        const { name } = process
        const before = consumers.get(name)
        const after = gate.isOpen(process) ? start(process) : new Map<string, Consumer>()
        if (after.size > 0) consumers.set(name, after)
        else consumers.delete(name)
        const stopped = [...(before ?? [])].filter(([step]) => !after.has(step))
        if (stopped.length > 0) cancel(stopped.map(([, consumer]) => consumer))
      }
      return Promise.allSettled(cancelling)
    },
    isConsuming: (process) => consumers.has(process),
  }
}
