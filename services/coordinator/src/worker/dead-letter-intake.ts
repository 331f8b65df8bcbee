/**
 * Moves the messages of the queues `dead.<Process>` to the store, where operators read, requeue and delete them.
 *
 * L1  A message is acknowledged after its row is committed. A message that is delivered again is stored once.
 * L2  No message is consumed while the store is unavailable, and the messages in flight are held instead of returned.
 *     RabbitMQ counts how often a message is returned, and deletes a dead letter beyond the limit (20 since RabbitMQ 4).
 * L3  A message that was returned `RENEW_AFTER` times, because coordinators died or connections broke, is published
 *     again before it is acknowledged. The count of the new message begins at 0.
 * L4  If the store has as many dead letters of a process as it should, further ones stay in the queue.
 */
import { hash } from 'node:crypto'
import { StepMessage } from '@integration-host/shared/contracts/step-message'
import { hasCode } from '@integration-host/shared/errors'
import { parseJsonAs } from '@integration-host/shared/json'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { NewDeadLetter } from '../transaction/dead-letter.ts'
import type { TransactionSource } from '../transaction/transaction-source.ts'
import type { DeadLetterQueue, DeadMessage } from './dead-letter-queue.ts'
import { startPolling } from './polling.ts'
import type { StepConsumer } from './step-queue.ts'
import { ABORTED, type StoreRetry } from './store-retry.ts'

export interface DeadLetterIntakeDeps {
  readonly store: Pick<
    TransactionSource,
    'addDeadLetter' | 'deadLetterCounts' | 'deadLetterCapacity' | 'storedProcesses'
  >
  readonly queue: DeadLetterQueue
  /** The names of the processes that are loaded, whose queues this coordinator declares. */
  readonly processes: readonly string[]
  readonly retryStore: StoreRetry
  readonly log: Logger
  /** Returns epoch ms. */
  readonly now: () => number
  readonly random: () => number
  /** Milliseconds between the checks whether each queue should be consumed. */
  readonly intervalMs: number
  /** Milliseconds that messages in flight are held while the store is unavailable. */
  readonly holdMs?: number
}

/** Far below the smallest limit that a broker has by default. */
const RENEW_AFTER = 8
/** RabbitMQ closes the channel of a consumer that has not acknowledged a message for 30 minutes. */
const HOLD_MS = 600_000
/** The queue of a process that is not loaded rarely exists, and the broker logs each check of a missing queue. */
const RECHECK_MS = 300_000

interface Intake {
  readonly consumer: StepConsumer
  /** How many more dead letters of the process the store should have. */
  room: number
}

export function startDeadLetterIntake(deps: DeadLetterIntakeDeps): AsyncDisposable {
  const { store, queue, processes, retryStore, log, now, holdMs = HOLD_MS } = deps
  const shutdown = new AbortController()
  const intakes = new Map<string, Intake>()
  const cancelling = new Set<Promise<void>>()
  /** The reason of the broker that was logged last for a process, so that it is not logged at every check. */
  const rejections = new Map<string, string>()
  const recheckAt = new Map<string, number>()
  const full = new Set<string>()

  function stop(process: string): void {
    const intake = intakes.get(process)
    if (intake === undefined) return
    intakes.delete(process)
    const cancelled = intake.consumer.cancel().finally(() => cancelling.delete(cancelled))
    cancelling.add(cancelled)
  }

  function start(process: string, room: number): void {
    const consumer = queue.consume(process, {
      handle: (message) => handle(process, message),
      onRejected(reason) {
        if (intakes.get(process)?.consumer === consumer) intakes.delete(process)
        if (rejections.get(process) === reason) return
        rejections.set(process, reason)
        log.warn(
          {
            process,
            reason,
            remediation:
              'let the account of the coordinator read the queues dead.* (docs/rabbitmq.md)',
          },
          'dead letters cannot be consumed',
        )
      },
    })
    intakes.set(process, { consumer, room })
  }

  async function handle(process: string, message: DeadMessage): Promise<'ack' | 'requeue'> {
    if (message.deliveryCount >= RENEW_AFTER && (await isPublishedAgain(process, message)))
      return 'ack'
    const letter = deadLetterOf(process, message)
    const stored = await add(process, letter)
    if (!stored) return 'requeue'
    const intake = intakes.get(process)
    if (intake !== undefined && (intake.room -= 1) <= 0) stop(process)
    return 'ack'
  }

  const isPublishedAgain = (process: string, message: DeadMessage): Promise<boolean> =>
    queue.publishAgain(process, message).then(
      () => true,
      () => false,
    )

  /** Resolves with false if the dead letter was not stored before the hold or the coordinator ended. */
  async function add(process: string, letter: NewDeadLetter): Promise<boolean> {
    try {
      await store.addDeadLetter(letter)
      return true
    } catch (error) {
      // The next check of the queues starts the consumer again.
      stop(process)
      if (!hasCode(error, 'store_unavailable')) return reported(process, error)
    }
    const held = AbortSignal.any([shutdown.signal, AbortSignal.timeout(holdMs)])
    return retryStore(() => store.addDeadLetter(letter), held).then(
      (result) => result !== ABORTED,
      (error: unknown) => reported(process, error),
    )
  }

  function reported(process: string, error: unknown): false {
    log.error({ err: error, process }, 'dead letter could not be stored; it stays in its queue')
    return false
  }

  async function poll(): Promise<boolean> {
    try {
      const counts = await store.deadLetterCounts()
      for (const process of [...processes, ...(await unloadedWithQueue())]) {
        const room = store.deadLetterCapacity - (counts.get(process) ?? 0)
        if (room <= 0) {
          stop(process)
          reportFull(process)
          continue
        }
        full.delete(process)
        const intake = intakes.get(process)
        if (intake === undefined) start(process, room)
        else intake.room = room
      }
      return true
    } catch (error) {
      for (const process of intakes.keys()) stop(process)
      throw error
    }
  }

  function reportFull(process: string): void {
    if (full.has(process)) return
    full.add(process)
    log.warn(
      {
        process,
        count: store.deadLetterCapacity,
        remediation: 'delete dead letters (docs/runbook.md, DeadMessages)',
      },
      'the table of dead letters is full; further ones stay in the queue',
    )
  }

  /** Returns the processes that have runs and a queue of dead letters, although they are not loaded any more. */
  async function unloadedWithQueue(): Promise<readonly string[]> {
    const [first] = processes
    const isBrokerAvailable = first !== undefined && (await queue.waiting(first)) !== null
    const found: string[] = []
    for (const process of await store.storedProcesses()) {
      if (processes.includes(process)) continue
      if (intakes.has(process)) found.push(process)
      else if (isBrokerAvailable && (recheckAt.get(process) ?? 0) <= now()) {
        if ((await queue.waiting(process)) !== null) found.push(process)
        else recheckAt.set(process, now() + RECHECK_MS)
      }
    }
    return found
  }

  const polling = startPolling({
    task: 'dead letter intake',
    intervalMs: deps.intervalMs,
    log,
    random: deps.random,
    poll,
  })
  return {
    async [Symbol.asyncDispose]() {
      shutdown.abort()
      await polling[Symbol.asyncDispose]()
      for (const process of intakes.keys()) stop(process)
      await Promise.allSettled(cancelling)
    },
  }
}

/** Returns a message as the store keeps it, with the run that it names if that is one of the same process. */
export function deadLetterOf(process: string, message: DeadMessage): NewDeadLetter {
  const { content, contentBytes } = message
  const named = parseJsonAs(StepMessage, content.toString('utf8'))
  const run = named?.Process === process ? named : null
  return {
    Process: process,
    MessageID: stableIdOf(message),
    Reason: withoutControls(message.reason),
    TransactionID: run?.TransactionID ?? null,
    ReplayID: run?.ReplayID ?? null,
    StepName: run?.Step ?? null,
    Content: content,
    ContentBytes: contentBytes,
  }
}

/**
 * Returns the same id for each delivery of a message. The digest of the content is a part of it, because a message of
 * another program may have no id, or the id of another message.
 */
function stableIdOf({ messageId, content, contentBytes }: DeadMessage): string {
  const digest = hash('sha256', Buffer.concat([content, Buffer.from(` ${contentBytes}`)]), 'hex')
  return messageId === ''
    ? `sha256:${digest}`
    : `${withoutControls(messageId)}#${digest.slice(0, 16)}`
}

/** PostgreSQL stores neither U+0000 nor half a surrogate pair, and a control character could control a terminal. */
const withoutControls = (text: string): string => text.replace(/[\p{Cc}\p{Cs}]/gu, '\ufffd')
