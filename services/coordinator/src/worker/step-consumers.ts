import type { Consumer } from '@integration-host/shared/messaging/message-bus'
import { hasHighLane, HIGH_LANE, lanesOf } from '@integration-host/shared/contracts/topology'
import type { Logger } from '@integration-host/shared/observability/logger'
import { createPendingWork } from '@integration-host/shared/process/pending-work'
import type { ProcessDefinition } from '../step/definition.ts'
import { HIGH_SHARE } from './lanes.ts'
import type { Gate } from './gate.ts'
import type { DeliveryHandler } from './handle-delivery.ts'
import type { StepQueue } from './step-queue.ts'
import type { Claim, QueueResult, StartOnArrival } from '../run/transaction-source.ts'

export interface ConsumersDeps extends Pick<ArrivalsDeps, 'gate' | 'prefetch'> {
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly queue: Pick<StepQueue, 'consume'>
  readonly arrivals: Arrivals
  readonly handle: DeliveryHandler
}

/**
 * The consumers of the step queues and lanes. A business process has consumers only while its gate is open. The map `processes`
 * can change at any time: each delivery is handled with the current definition of its process.
 */
export function createConsumers(deps: ConsumersDeps) {
  const { processes, queue, gate, prefetch, arrivals, handle } = deps
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
            arrivals.handleDelivery(name, () => handle(name, step, delivery)),
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
    /**
     * Starts the consumers of processes whose gate is open, and cancels all other consumers. New consumers start at once,
     * even while cancelled consumers still have calls in flight. Resolves when the cancelled consumers have settled their
     * deliveries.
     */
    reconcile(): Promise<unknown> {
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
    isConsuming: (process: string): boolean => consumers.has(process),
  }
}

export interface ArrivalsDeps {
  readonly gate: Pick<Gate, 'isOpen'>
  readonly owner: string
  readonly prefetch: number
  readonly runClaimed: (process: ProcessDefinition, claim: Claim) => Promise<void>
  readonly log: Logger
}

export type Arrivals = ReturnType<typeof createArrivals>

/**
 * Starts runs on arrival: the statement that inserts a run also claims it for this replica, and its first step starts
 * without a step message.
 *
 * Runs start on arrival only if their process has `dispatch: 'inline'` and no concurrency limit, and only while this
 * replica has capacity. Any other run starts when its message is delivered, after the runs that were queued earlier.
 */
export function createArrivals({ gate, owner, prefetch, runClaimed, log }: ArrivalsDeps) {
  /**
   * For each process, the capacity in use: the unsettled deliveries, the runs that started on arrival, and the capacity
   * that is reserved for such runs.
   */
  const inProgress = new Map<string, number>()
  const running = createPendingWork()

  const add = (process: string, count: number): void => {
    const left = (inProgress.get(process) ?? 0) + count
    if (left === 0) inProgress.delete(process)
    else inProgress.set(process, left)
  }

  /**
   * Returns how many runs may start on arrival. A new run must not overtake an older run whose message waits in the
   * queue. While messages wait, the broker keeps about `prefetch` deliveries of this replica in progress. Fewer than
   * `prefetch / 2` deliveries in progress therefore show that no message waits.
   */
  const roomOf = (process: ProcessDefinition): number => {
    if (process.dispatch !== 'inline' || process.concurrency !== null) return 0
    if (!gate.isOpen(process)) return 0
    return Math.max(0, Math.ceil(prefetch / 2) - (inProgress.get(process.name) ?? 0))
  }

  function start(process: ProcessDefinition, claim: Claim): void {
    const run = runClaimed(process, claim)
      .catch((error: unknown) => {
        const { Process, TransactionID: transactionId } = claim.run
        log.error(
          { err: error, process: Process, transactionId },
          'run failed unexpectedly; it continues when its lease has expired',
        )
      })
      .finally(() => add(process.name, -1))
    void running.add(run)
  }

  /**
   * Calls `queue` for `count` transactions, and runs the first steps of the runs that `queue` has claimed. `queue` gets
   * `undefined` if no run may start on arrival.
   */
  async function queueAndStart(
    process: ProcessDefinition,
    count: number,
    queue: (start?: StartOnArrival) => Promise<readonly QueueResult[]>,
  ): Promise<readonly QueueResult[]> {
    const limit = Math.min(count, roomOf(process))
    if (limit === 0) return queue()
    add(process.name, limit)
    let claims: readonly Claim[] = []
    try {
      const results = await queue({ owner, limit })
      claims = results.flatMap(({ claim }) => claim ?? [])
      return results
    } finally {
      add(process.name, claims.length - limit)
      for (const claim of claims) start(process, claim)
    }
  }

  return {
    queueAndStart,
    /** Handles a delivery, which uses capacity until it is settled. */
    async handleDelivery<Settlement>(
      process: string,
      handle: () => Promise<Settlement>,
    ): Promise<Settlement> {
      add(process, 1)
      try {
        return await handle()
      } finally {
        add(process, -1)
      }
    },
    async [Symbol.asyncDispose](): Promise<void> {
      await running.ended()
    },
  }
}
