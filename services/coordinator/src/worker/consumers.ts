import type { ProcessDefinition } from '../process/definition.ts'
import type { Gate } from './gate.ts'
import type { StepConsumer, StepDelivery, StepQueue } from './step-queue.ts'

/** The consumers of the step queues. A business process has consumers only while its gate is open. */
export interface Consumers {
  /**
   * Starts the consumers of processes whose gate is open and cancels the others; resolves when the cancelled
   * consumers have settled their deliveries. New consumers start at once, without waiting for the calls of
   * cancelled ones to finish.
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
    process: ProcessDefinition,
    step: string,
    delivery: StepDelivery,
  ) => Promise<'ack' | 'requeue'>
}

export function createConsumers(deps: ConsumersDeps): Consumers {
  const { processes, queue, gate, prefetch, handle } = deps
  const consumers = new Map<string, readonly StepConsumer[]>()
  const cancelling = new Set<Promise<unknown>>()
  const start = (process: ProcessDefinition): StepConsumer[] =>
    process.stepNames.map((step) =>
      queue.consume(process.name, step, prefetch, (delivery) => handle(process, step, delivery)),
    )
  return {
    reconcile() {
      for (const process of processes.values()) {
        const { name } = process
        const current = consumers.get(name)
        const isOpen = gate.isOpen(process)
        if (isOpen && current === undefined) consumers.set(name, start(process))
        if (isOpen || current === undefined) continue
        consumers.delete(name)
        const cancelled = Promise.all(current.map((consumer) => consumer.cancel()))
        cancelling.add(cancelled)
        void cancelled.finally(() => cancelling.delete(cancelled))
      }
      return Promise.allSettled(cancelling)
    },
    isConsuming: (process) => consumers.has(process),
  }
}
