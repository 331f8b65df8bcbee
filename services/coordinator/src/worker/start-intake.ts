/**
 * Queues a run for each message of the queues `start.<Process>`.
 *
 * M1  A message is acknowledged after its run is committed, or after the broker has confirmed its dead letter. A message
 *     that is delivered again finds its run by the primary key, and starts no second run.
 * M2  While the store is unavailable, no message is consumed, and the messages in flight are held instead of returned.
 *     RabbitMQ counts how often a message is returned, and dead-letters it beyond the delivery limit.
 * M3  A message may be returned because a coordinator dies or a connection breaks. A message that was returned
 *     `RENEW_AFTER` times is published again before it is acknowledged. RabbitMQ counts the new message from 0. After
 *     `MAX_RENEWALS` of these, the message is dead-lettered, because it may be the cause.
 * M4  The messages of a paused process stay in their queue.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { hasCode, IntegrationError } from '@integration-host/shared/errors'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Clock } from '@integration-host/shared/process/clock'
import type { Actor } from '../transaction/action.ts'
import type { TransactionSource } from '../transaction/transaction-source.ts'
import type { PausedNames } from './gate.ts'
import type { Operations, QueueOutcome } from './operations.ts'
import { startPolling } from './polling.ts'
import { readStartMessage } from './read-start-message.ts'
import { createStartBatches, type StartRequest } from './start-batches.ts'
import type { StartMessage, StartQueue } from './start-queue.ts'
import type { StepConsumer } from './step-queue.ts'
import { ABORTED, type StoreRetry } from './store-retry.ts'

/** What became of a start message. */
export type StartResult =
  | 'queued'
  /** The transaction exists already, with the same data. */
  | 'exists'
  /** The transaction exists already, with other data. */
  | 'conflict'
  | 'invalid'
  /** The store rejected the transaction with an unexpected error. */
  | 'failed'
  /** The message was returned to the queue too often. */
  | 'delivery_limit'

export interface StartIntakeDeps {
  readonly store: Pick<TransactionSource, 'paused'>
  readonly queue: StartQueue
  readonly operations: Pick<Operations, 'queue'>
  /** Returns the names of the loaded processes that clients can start. */
  readonly processes: () => readonly string[]
  /** Whether transactions are queued in batches. A batch belongs to no trace, so it is false while tracing is on. */
  readonly isBatched: boolean
  readonly retryStore: StoreRetry
  readonly log: Logger
  readonly clock: Clock
  readonly random: () => number
  /** Milliseconds between two checks of which queues must be consumed. */
  readonly intervalMs: number
  readonly count: (process: string, result: StartResult) => void
  /** Milliseconds that messages in flight are held while the store is unavailable. */
  readonly holdMs?: number
}

export interface StartIntake extends AsyncDisposable {
  setPaused(paused: PausedNames): void
  /** Consumes the queues of the processes that are loaded now. Called after definitions were added. */
  followDefinitions(): void
}

/** This number is far below the delivery limit of the queue. */
const RENEW_AFTER = 8
const MAX_RENEWALS = 50
/** RabbitMQ closes the channel of a consumer that has not acknowledged a message for 30 minutes. */
const HOLD_MS = 600_000
/**
 * The pause before a message is handled that was published again. It is often delivered before its original is
 * acknowledged. If it ended the coordinator then, the original would be returned once more, up to the delivery limit.
 */
const RENEWED_PAUSE_MS = 200
/** The pause before a message is returned that could not be dead-lettered, so that it is not redelivered in a loop. */
const RETURN_PAUSE_MS = 1_000

export function startStartIntake(deps: StartIntakeDeps): StartIntake {
  const { store, queue, operations, retryStore, log, count, holdMs = HOLD_MS } = deps
  const shutdown = new AbortController()
  const consumers = new Map<string, StepConsumer>()
  const cancelling = new Set<Promise<void>>()
  /** For each process, the last reason for which the broker rejected the consumer, which is logged only once. */
  const rejections = new Map<string, string>()
  /** The number of messages of each process that are held until the store is available. */
  const held = new Map<string, number>()

  function stop(process: string): void {
    const consumer = consumers.get(process)
    if (consumer === undefined) return
    consumers.delete(process)
    const cancelled = consumer.cancel().finally(() => cancelling.delete(cancelled))
    cancelling.add(cancelled)
  }

  function start(process: string): void {
    const enqueue = deps.isBatched
      ? createStartBatches(process, operations.queue)
      : async ({ transaction, by }: StartRequest): Promise<QueueOutcome> => {
          const [outcome] = await operations.queue(process, [transaction], by)
          return outcome as QueueOutcome // one outcome for each transaction
        }
    const consumer = queue.consume(process, {
      handle: (message) => handle(process, message, enqueue),
      onRejected(reason) {
        if (consumers.get(process) === consumer) consumers.delete(process)
        if (rejections.get(process) === reason) return
        rejections.set(process, reason)
        log.warn(
          {
            process,
            reason,
            remediation:
              'let the account of the coordinator read the queues start.* (docs/rabbitmq.md)',
          },
          'consuming the start messages failed',
        )
      },
    })
    consumers.set(process, consumer)
  }

  const pause = (ms: number): Promise<void> =>
    sleep(ms, undefined, { signal: shutdown.signal }).catch(() => {})

  async function handle(
    process: string,
    message: StartMessage,
    enqueue: (request: StartRequest) => Promise<QueueOutcome>,
  ): Promise<'ack' | 'requeue'> {
    if (message.deliveryCount >= RENEW_AFTER) {
      if (message.renewals >= MAX_RENEWALS)
        return deadLetter(process, message, 'delivery_limit', 'delivery_limit')
      if (await isPublishedAgain(process, message)) return 'ack'
    }
    if (message.renewals > 0 && message.deliveryCount === 0) await pause(RENEWED_PAUSE_MS)
    const read = readStartMessage(message)
    if ('reason' in read) return deadLetter(process, message, 'invalid', read.reason)
    const { transaction } = read
    const request = { transaction, by: queuerOf(message, transaction.Reason !== undefined) }
    let outcome: QueueOutcome | typeof ABORTED
    try {
      outcome = await queued(process, () => enqueue(request))
    } catch (error) {
      log.error({ err: error, process }, 'start message could not be queued')
      const code = error instanceof IntegrationError ? error.code : 'unexpected error'
      return deadLetter(process, message, 'failed', `failed: ${code}`)
    }
    if (outcome === ABORTED) return 'requeue'
    switch (outcome.outcome) {
      case 'invalid':
        return deadLetter(
          process,
          message,
          'invalid',
          `input_invalid: ${outcome.errors.join('; ')}`,
        )
      case 'conflict':
        return deadLetter(process, message, 'conflict', 'transaction_conflict')
      case 'queued':
      case 'exists':
        count(process, outcome.outcome)
        return 'ack'
    }
  }

  /** Returns ABORTED if the run was not committed before the hold timed out or the coordinator shut down. */
  async function queued(
    process: string,
    enqueue: () => Promise<QueueOutcome>,
  ): Promise<QueueOutcome | typeof ABORTED> {
    try {
      return await enqueue()
    } catch (error) {
      if (!hasCode(error, 'store_unavailable')) throw error
    }
    // The consumer is started again when no message is held. Otherwise each new consumer could hold more messages, if
    // the store can be read but not written.
    held.set(process, (held.get(process) ?? 0) + 1)
    stop(process)
    const signal = AbortSignal.any([shutdown.signal, AbortSignal.timeout(holdMs)])
    return retryStore(enqueue, signal).finally(() => {
      const left = (held.get(process) ?? 1) - 1
      held.set(process, left)
      if (left === 0) polling.pollSoon()
    })
  }

  const isPublishedAgain = (process: string, message: StartMessage): Promise<boolean> =>
    queue.publishAgain(process, { ...message, renewals: message.renewals + 1 }).then(
      () => true,
      () => false,
    )

  async function deadLetter(
    process: string,
    message: StartMessage,
    result: StartResult,
    reason: string,
  ): Promise<'ack' | 'requeue'> {
    try {
      await queue.deadLetter(process, message, reason)
    } catch {
      await pause(RETURN_PAUSE_MS)
      return 'requeue'
    }
    count(process, result)
    log.warn(
      { process, reason, messageId: message.messageId.slice(0, 200) },
      'start message cannot be queued and is dead-lettered',
    )
    return 'ack'
  }

  function follow(paused: PausedNames): void {
    if (shutdown.signal.aborted) return
    for (const process of deps.processes())
      if (paused.has(process)) stop(process)
      else if (!consumers.has(process) && (held.get(process) ?? 0) === 0) start(process)
  }

  const polling = startPolling({
    task: 'start message intake',
    intervalMs: deps.intervalMs,
    log,
    clock: deps.clock,
    random: deps.random,
    async poll() {
      follow(await store.paused())
      return true
    },
  })
  return {
    setPaused: follow,
    followDefinitions: () => polling.pollSoon(),
    async [Symbol.asyncDispose]() {
      shutdown.abort()
      await polling[Symbol.asyncDispose]()
      for (const process of consumers.keys()) stop(process)
      await Promise.allSettled(cancelling)
    },
  }
}

/**
 * Returns the actor in the action log: the user of the broker that published the message. Most messages name no user,
 * because the broker does not add one by itself; these are recorded only if the transaction has a reason. The id of a
 * service key contains no colon, so it differs from that of every user.
 */
const queuerOf = ({ userId }: StartMessage, hasReason: boolean): Actor | undefined =>
  userId !== '' || hasReason
    ? { keyId: userId === '' ? 'rabbitmq' : `rabbitmq:${userId}`, person: null }
    : undefined
