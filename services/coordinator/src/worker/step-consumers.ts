import type { Consumer } from '@integration-host/shared/messaging/message-bus'
import { hasHighLane, HIGH_LANE, lanesOf } from '@integration-host/shared/contracts/topology'
import type { Logger } from '@integration-host/shared/observability/logger'
import { createPendingWork } from '@integration-host/shared/process/pending-work'
import type { ProcessDefinition } from '../step/definition.ts'
import { HIGH_SHARE } from './lanes.ts'
import type { Gate } from './gate.ts'
import type { StepDelivery, StepQueue } from './step-queue.ts'
import type {
  Claim,
  ClaimRequest,
  Limited,
  QueueResult,
  StartOnArrival,
  TransactionSource,
  UnkeyedRun,
} from '../run/transaction-source.ts'
import { acceptedKey } from '../run/concurrency.ts'
import { WHOLE_PROCESS } from '../run/slots.ts'
import { ABORTED } from './store-retry.ts'
import type { WorkerDeps } from './worker.ts'

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
    queue: (start?: StartOnArrival) => Promise<readonly (QueueResult | Limited)[]>,
  ): Promise<readonly (QueueResult | Limited)[]> {
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
