/**
 * Queues a run for each message of the queues of one kind: `start.<Process>` or `on.<Process>`.
 *
 * M1  A message is acknowledged after its run is committed, or after the broker has confirmed its dead letter. A
 *     message that is delivered again finds its run by the primary key, and starts no second run.
 * M2  While the store or token-service is unavailable, no message is consumed, and the messages in flight stay
 *     unacknowledged instead of being returned. RabbitMQ counts how often a message is returned, and dead-letters it
 *     beyond the delivery limit.
 * M3  RabbitMQ returns a message to its queue if a coordinator dies or a connection breaks. A message that was returned
 *     `RENEW_AFTER` times is published again before it is acknowledged. RabbitMQ counts the new message from 0. After
 *     `MAX_RENEWALS` such publishes, the message is dead-lettered, because possibly the message itself makes the
 *     coordinators crash.
 * M4  The messages of a paused process stay in their queue, if the queue outlives the coordinator. Otherwise they
 *     become runs, which wait like all runs of a paused process.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { batched } from '@integration-host/shared/batching'
import type { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { hasCode, IntegrationError } from '@integration-host/shared/errors'
import type { Actor } from '../run/action.ts'
import type { PauseStore } from '../run/pause.ts'
import type { PausedNames } from './gate.ts'
import type { RunActions, QueueOutcome } from './run-actions.ts'
import { type Periodic, startPolling } from './polling.ts'
import type { IntakeMessage, IntakeQueue } from './intake-queue.ts'
import { createIntakeConsumers } from './intake-consumers.ts'
import { ABORTED, type StoreRetry } from './store-retry.ts'

/** How a message was handled. */
export type IntakeResult =
  | 'queued'
  /** A waiting run with the same debounce key has absorbed the transaction. */
  | 'absorbed'
  /** The transaction exists already, with the same data. */
  | 'exists'
  /** The transaction exists already, with other data. */
  | 'conflict'
  | 'invalid'
  /** The store rejected the transaction with an unexpected error. */
  | 'failed'
  /** The message was returned to the queue too many times. */
  | 'delivery_limit'

/**
 * The result of reading a message: the transaction to queue, the result with which the message is ignored (`ignored`),
 * or the reason why no run can be queued (`reason`).
 */
export type ReadMessage<Ignored extends string> =
  | StartRequest
  /** The message is acknowledged and counted as this result, and starts no run. */
  | { readonly ignored: Ignored }
  /** The message is dead-lettered. The reason begins with a stable code, and contains no data of the message. */
  | { readonly reason: string }

export interface MessageIntakeDeps<Ignored extends string> extends Periodic {
  /** The kind of message for log entries, for example `start message`. */
  readonly kind: string
  /** The pattern of the queue names for log entries, for example `start.*`. */
  readonly queues: string
  readonly pauses: Pick<PauseStore, 'paused'>
  readonly queue: IntakeQueue
  readonly runActions: Pick<RunActions, 'queue'>
  /**
   * Reads a message.
   *
   * @throws {IntegrationError} `store_unavailable` or `token_service_unavailable`: the message then stays
   *   unacknowledged, and is read again later.
   */
  readonly read: (
    process: string,
    message: IntakeMessage,
  ) => ReadMessage<Ignored> | Promise<ReadMessage<Ignored>>
  /** Returns why the message does not belong to the queue of the process; `null` if it does. */
  readonly misaddressed?: (process: string, message: IntakeMessage) => string | null
  /** Whether a transaction that already exists with other data is acknowledged as a duplicate. */
  readonly ignoresConflicts?: boolean
  /** Called before each check of which queues are to be consumed. If the call fails, no further queue is consumed. */
  readonly prepare?: () => Promise<void>
  /** Returns the names of the processes whose queues are consumed. */
  readonly processes: () => readonly string[]
  /** Whether the queues outlive this OS process. */
  readonly isDurable: boolean
  /**
   * Whether transactions are queued in batches. While tracing is on, the value is false, because a batch cannot belong
   * to the trace of a single message.
   */
  readonly isBatched: boolean
  readonly retryStore: StoreRetry
  readonly count: (process: string, result: IntakeResult | Ignored) => void
  /** Milliseconds for which messages in flight stay unacknowledged while the store is unavailable. */
  readonly holdMs?: number
}

export interface MessageIntake extends AsyncDisposable {
  setPaused(paused: PausedNames): void
  /** Consumes the queues of the processes that are loaded now. Called after definitions were added. */
  followDefinitions(): void
}

/** The number of returns after which a message is published again. It is far below the delivery limit of the queue. */
export const RENEW_AFTER = 8
const MAX_RENEWALS = 50
/**
 * Must be less than 30 minutes: RabbitMQ closes the channel of a consumer that does not acknowledge a message for so
 * long.
 */
export const HOLD_MS = 600_000
/**
 * The pause before a message that could not be dead-lettered is returned. Without the pause, its redeliveries would be
 * a busy loop.
 */
const RETURN_PAUSE_MS = 1_000
/**
 * The pause before a republished message is handled. Without the pause, the message might be handled before its
 * original is acknowledged. If the message then crashed the coordinator, the original would be returned once more, and
 * could reach the delivery limit.
 */
const RENEWED_PAUSE_MS = 200

export function startMessageIntake<Ignored extends string = never>(
  deps: MessageIntakeDeps<Ignored>,
): MessageIntake {
  const { kind, pauses, queue, runActions, retryStore, log, count, holdMs = HOLD_MS } = deps
  const shutdown = new AbortController()
  const consumers = createIntakeConsumers({ queue, kind, queues: deps.queues, log })
  /** The number of messages of each process that stay unacknowledged until the store is available. */
  const held = new Map<string, number>()

  const pause = (ms: number): Promise<void> =>
    sleep(ms, undefined, { signal: shutdown.signal }).catch(() => {})

  function start(process: string): void {
    const enqueue = deps.isBatched
      ? createStartBatches(process, runActions.queue)
      : async ({ transaction, by }: StartRequest): Promise<QueueOutcome> => {
          const [outcome] = await runActions.queue(process, [transaction], by)
          return outcome as QueueOutcome // the batch has one outcome for each transaction
        }
    consumers.start(process, (message) => handle(process, message, enqueue))
  }

  async function handle(
    process: string,
    message: IntakeMessage,
    enqueue: (request: StartRequest) => Promise<QueueOutcome>,
  ): Promise<'ack' | 'requeue'> {
    // This check comes first, because a message that is published again gets the routing key of the process.
    const misaddressed = deps.misaddressed?.(process, message) ?? null
    if (misaddressed !== null) return deadLetter(process, message, 'invalid', misaddressed)
    if (deps.isDurable && message.deliveryCount >= RENEW_AFTER) {
      if (message.renewals >= MAX_RENEWALS)
        return deadLetter(process, message, 'delivery_limit', 'delivery_limit')
      if (await isPublishedAgain(process, message)) return 'ack'
    }
    if (message.renewals > 0 && message.deliveryCount === 0) await pause(RENEWED_PAUSE_MS)
    let handled: Handled<Ignored> | typeof ABORTED
    try {
      handled = await retried(process, async () => {
        const read = await deps.read(process, message)
        return 'transaction' in read ? enqueue(read) : read
      })
    } catch (error) {
      log.error({ err: error, process }, `the transaction of a ${kind} could not be queued`)
      const code = error instanceof IntegrationError ? error.code : 'unexpected error'
      return deadLetter(process, message, 'failed', `failed: ${code}`)
    }
    if (handled === ABORTED) return 'requeue'
    if ('reason' in handled) return deadLetter(process, message, 'invalid', handled.reason)
    if ('ignored' in handled) {
      count(process, handled.ignored)
      return 'ack'
    }
    switch (handled.outcome) {
      case 'invalid': {
        const reason = `input_invalid: ${handled.errors.join('; ')}`
        return deadLetter(process, message, 'invalid', reason)
      }
      case 'limited': // only a key has a share, and the sender of a message has none
        return deadLetter(process, message, 'failed', 'failed: quota_exceeded')
      case 'conflict':
        if (deps.ignoresConflicts !== true)
          return deadLetter(process, message, 'conflict', 'transaction_conflict')
        count(process, 'exists')
        return 'ack'
      case 'queued':
      case 'absorbed':
      case 'exists':
        count(process, handled.outcome)
        return 'ack'
    }
  }

  /** Returns ABORTED if the time limit has passed or a shutdown has begun before the run is committed. */
  async function retried<Result>(
    process: string,
    attempt: () => Promise<Result>,
  ): Promise<Result | typeof ABORTED> {
    try {
      return await attempt()
    } catch (error) {
      if (!TRANSIENT.some((code) => hasCode(error, code))) throw error
    }
    // The consumer is started again only when no further message of the process waits for the store. Otherwise, if the
    // store can be read but not written, each new consumer would receive more messages that cannot be stored.
    held.set(process, (held.get(process) ?? 0) + 1)
    consumers.stop(process)
    const signal = AbortSignal.any([shutdown.signal, AbortSignal.timeout(holdMs)])
    return retryStore(attempt, signal, TRANSIENT).finally(() => {
      const left = (held.get(process) ?? 1) - 1
      held.set(process, left)
      if (left === 0) polling.pollSoon()
    })
  }

  const isPublishedAgain = (process: string, message: IntakeMessage): Promise<boolean> =>
    queue.publishAgain(process, { ...message, renewals: message.renewals + 1 }).then(
      () => true,
      () => false,
    )

  /**
   * Rejects if the coordinator shuts down before the dead letter is confirmed. On a bus that is not durable, the
   * confirm may have to wait until operators delete dead letters, because the consumer of dead letters shuts down
   * first.
   */
  function untilShutdown(confirmed: Promise<void>): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const abort = (): void => reject(shutdown.signal.reason as Error)
    if (shutdown.signal.aborted) abort()
    shutdown.signal.addEventListener('abort', abort, { once: true })
    confirmed.then(resolve, reject).finally(() => {
      shutdown.signal.removeEventListener('abort', abort)
    })
    return promise
  }

  async function deadLetter(
    process: string,
    message: IntakeMessage,
    result: IntakeResult,
    reason: string,
  ): Promise<'ack' | 'requeue'> {
    try {
      await untilShutdown(queue.deadLetter(process, message, reason))
    } catch {
      await pause(RETURN_PAUSE_MS)
      return 'requeue'
    }
    count(process, result)
    log.warn(
      { process, reason, messageId: message.messageId.slice(0, 200) },
      `${kind} cannot be queued and is dead-lettered`,
    )
    return 'ack'
  }

  function follow(paused: PausedNames): void {
    if (shutdown.signal.aborted) return
    const wanted = deps.processes()
    for (const process of consumers.names()) if (!wanted.includes(process)) consumers.stop(process)
    for (const process of wanted)
      if (deps.isDurable && paused.has(process)) consumers.stop(process)
      else if (!consumers.has(process) && (held.get(process) ?? 0) === 0) start(process)
  }

  const polling = startPolling({
    ...deps,
    task: `${kind} intake`,
    async poll() {
      await deps.prepare?.()
      follow(await pauses.paused())
      return true
    },
  })
  return {
    setPaused(paused) {
      // No queue is consumed before the first check, because `prepare` must run first.
      if (deps.prepare === undefined || consumers.names().length > 0) follow(paused)
      else polling.pollSoon()
    },
    followDefinitions: () => polling.pollSoon(),
    async [Symbol.asyncDispose]() {
      shutdown.abort()
      await polling[Symbol.asyncDispose]()
      await consumers[Symbol.asyncDispose]()
    },
  }
}

type Handled<Ignored extends string> = QueueOutcome | Exclude<ReadMessage<Ignored>, StartRequest>

const TRANSIENT = ['store_unavailable', 'token_service_unavailable'] as const

interface StartRequest {
  readonly transaction: QueueTransaction
  /** The actor in the action log; `undefined` if the queued transaction is not recorded as an action. */
  readonly by: Actor | undefined
}

/** The maximum number of transactions in a statement. 100 transactions of the maximum size have 25 MiB. */
const MAX_BATCH = 100

/**
 * Returns a function that queues one transaction of a process. Transactions that wait at the same time and have the
 * same actor are queued by one statement, because a statement for each transaction would be several times slower.
 *
 * If the store is unavailable, all transactions of the batch fail. After any other error, each transaction is queued
 * separately, so that only the transaction that caused the error fails.
 */
function createStartBatches(
  process: string,
  queue: RunActions['queue'],
): (request: StartRequest) => Promise<QueueOutcome> {
  const inBatch = batched<StartRequest, QueueOutcome>(
    async (requests) => {
      const results = new Map<StartRequest, QueueOutcome>()
      for (const [, ofActor] of Map.groupBy(requests, ({ by }) => by?.keyId)) {
        const transactions = ofActor.map(({ transaction }) => transaction)
        const outcomes = await queue(process, transactions, ofActor[0]?.by)
        for (const [index, request] of ofActor.entries())
          results.set(request, outcomes[index] as QueueOutcome) // the batch has one outcome for each transaction
      }
      return requests.map((request) => results.get(request) as QueueOutcome)
    },
    { maxSize: MAX_BATCH, retries: false },
  )
  return async (request) => {
    try {
      return await inBatch(request)
    } catch (error) {
      if (hasCode(error, 'store_unavailable')) throw error
      const [outcome] = await queue(process, [request.transaction], request.by)
      return outcome as QueueOutcome
    }
  }
}
