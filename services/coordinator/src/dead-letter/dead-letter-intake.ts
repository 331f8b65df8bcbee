/**
 * Moves the messages of the queues `dead.<Process>` to the store, where operators read, requeue and delete them.
 *
 * L1  A message is acknowledged after its row is committed. A redelivered message is not stored a second time.
 * L2  While the store is unavailable, no message is consumed, and the messages in flight stay unacknowledged instead of
 *     being returned. RabbitMQ counts how often a message is returned, and deletes a dead letter beyond a limit (20
 *     since RabbitMQ 4).
 * L3  RabbitMQ returns a message to its queue if a coordinator dies or a connection breaks. A message that was returned
 *     `RENEW_AFTER` times is published again before it is acknowledged. RabbitMQ counts the new message from 0.
 * L4  When the store has as many dead letters of a process as it should hold (`capacity`), further dead letters stay in the queue.
 */
import { hash } from 'node:crypto'
import { signalKey, startQueue, StepMessage } from '@integration-host/shared/contracts/topology'
import { hasCode } from '@integration-host/shared/errors'
import { parseMessageAs } from '@integration-host/shared/json'
import type { TransactionSource } from '../run/transaction-source.ts'
import type { DeadLetterQueue, DeadMessage } from '../worker/dead-letter-queue.ts'
import { readSignal } from '../signal/read-signal.ts'
import type { DeadLetterStore, NewDeadLetter } from './dead-letter-store.ts'
import { HOLD_MS, RENEW_AFTER } from '../worker/message-intake.ts'
import { type Periodic, startPolling } from '../worker/polling.ts'
import { createIntakeConsumers } from '../worker/intake-consumers.ts'
import { ABORTED, type StoreRetry } from '../worker/store-retry.ts'

export interface DeadLetterIntakeDeps extends Periodic {
  readonly source: Pick<TransactionSource, 'storedProcesses'>
  readonly deadLetterStore: Pick<DeadLetterStore, 'add' | 'counts' | 'capacity'>
  readonly queue: DeadLetterQueue
  /** The names of the loaded processes. This coordinator declares their queues. */
  readonly processes: readonly string[]
  readonly retryStore: StoreRetry
  /** Milliseconds for which messages in flight stay unacknowledged while the store is unavailable. */
  readonly holdMs?: number
}

/** How often the rare queue of an unloaded process is looked for: the broker logs each check. */
const RECHECK_MS = 300_000

export function startDeadLetterIntake(deps: DeadLetterIntakeDeps): AsyncDisposable {
  const { source, queue, processes, retryStore, log, clock, holdMs = HOLD_MS } = deps
  const store = deps.deadLetterStore
  const { now } = clock
  const shutdown = new AbortController()
  const consumers = createIntakeConsumers({ queue, kind: 'dead letter', queues: 'dead.*', log })
  /** For each process whose queue is consumed: how many more dead letters the store may hold. */
  const rooms = new Map<string, number>()
  const recheckAt = new Map<string, number>()
  const full = new Set<string>()

  async function handle(process: string, message: DeadMessage): Promise<'ack' | 'requeue'> {
    if (message.deliveryCount >= RENEW_AFTER && (await isPublishedAgain(process, message)))
      return 'ack'
    const letter = deadLetterOf(process, message)
    if (!(await add(process, letter))) return 'requeue'
    const room = (rooms.get(process) ?? 0) - 1
    rooms.set(process, room)
    if (room <= 0) consumers.stop(process)
    return 'ack'
  }

  const isPublishedAgain = (process: string, message: DeadMessage): Promise<boolean> =>
    queue.publishAgain(process, message).then(
      () => true,
      () => false,
    )

  /** Resolves with false if the time limit has passed or a shutdown has begun before the dead letter is stored. */
  async function add(process: string, letter: NewDeadLetter): Promise<boolean> {
    try {
      await store.add(letter)
      return true
    } catch (error) {
      // The consumer is cancelled here. The next check of the queues starts a consumer again.
      consumers.stop(process)
      if (!hasCode(error, 'store_unavailable')) return reported(process, error)
    }
    const held = AbortSignal.any([shutdown.signal, AbortSignal.timeout(holdMs)])
    return retryStore(() => store.add(letter), held).then(
      (result) => result !== ABORTED,
      (error: unknown) => reported(process, error),
    )
  }

  function reported(process: string, error: unknown): false {
    log.error(
      { err: error, process },
      'dead letter could not be stored; the message stays in its queue',
    )
    return false
  }

  async function poll(): Promise<boolean> {
    try {
      const counts = await store.counts()
      for (const process of [...processes, ...(await unloadedWithQueue())]) {
        const room = store.capacity - (counts.get(process) ?? 0)
        if (room <= 0) {
          consumers.stop(process)
          reportFull(process)
          continue
        }
        full.delete(process)
        rooms.set(process, room)
        if (!consumers.has(process)) consumers.start(process, (message) => handle(process, message))
      }
      return true
    } catch (error) {
      for (const process of consumers.names()) consumers.stop(process)
      throw error
    }
  }

  function reportFull(process: string): void {
    if (full.has(process)) return
    full.add(process)
    log.warn(
      {
        process,
        count: store.capacity,
        remedy: 'delete dead letters (docs/runbook.md, DeadMessages)',
      },
      'the table of dead letters is full; further dead letters stay in the queue',
    )
  }

  /** Returns the processes that have runs and a queue of dead letters, but are not loaded. */
  async function unloadedWithQueue(): Promise<readonly string[]> {
    const unloaded = [...(await source.storedProcesses()).keys()].filter(
      (name) => !processes.includes(name),
    )
    const found = unloaded.filter((name) => consumers.has(name))
    const due = unloaded.filter(
      (name) => !consumers.has(name) && (recheckAt.get(name) ?? 0) <= now(),
    )
    const [first] = processes
    // `null` means that the queue does not exist, or that the broker is unavailable. The queue of a loaded process
    // always exists, so its count distinguishes the two cases.
    if (due.length === 0 || first === undefined || (await queue.waiting(first)) === null)
      return found
    for (const name of due)
      if ((await queue.waiting(name)) !== null) found.push(name)
      else recheckAt.set(name, now() + RECHECK_MS)
    return found
  }

  const polling = startPolling({ ...deps, task: 'dead letter intake', poll })
  return {
    async [Symbol.asyncDispose]() {
      shutdown.abort()
      await polling[Symbol.asyncDispose]()
      await consumers[Symbol.asyncDispose]()
    },
  }
}

/**
 * Returns the dead letter to store for a message. The dead letter contains the key of a run if the message is a step
 * message of the same process, or an event of its queue of events. Only the queue tells that a message is an event: an
 * account that may start runs could send the same content to another queue.
 */
export function deadLetterOf(process: string, message: DeadMessage): NewDeadLetter {
  const { content, contentBytes } = message
  const run = isSignal(process, message)
    ? signalledRun(content)
    : parseMessageAs(StepMessage, content)
  const named = run?.Process === undefined || run.Process === process ? run : null
  return {
    Process: process,
    MessageID: stableIdOf(message),
    Reason: withoutControls(message.reason),
    TransactionID: named?.TransactionID ?? null,
    ReplayID: named?.ReplayID ?? null,
    StepName: named?.Step ?? null,
    Content: content,
    ContentBytes: contentBytes,
  }
}

const isSignal = (process: string, { queue }: Pick<DeadMessage, 'queue'>): boolean =>
  queue?.endsWith(startQueue(signalKey(process))) === true

/** Returns the run that an event names; `null` if the content is no event. */
function signalledRun(content: Buffer): {
  readonly Process?: undefined
  readonly TransactionID: string
  readonly ReplayID: number | null
  readonly Step: string
} | null {
  const read = readSignal(content)
  if ('reason' in read) return null
  const { TransactionID, ReplayID = null, Event } = read.signal
  return { TransactionID, ReplayID, Step: Event }
}

/**
 * Returns the id of a dead letter. The id is the same at each redelivery. It contains a digest of the content, because
 * messages of other programs may have no id or share one.
 */
function stableIdOf({ messageId, content, contentBytes }: DeadMessage): string {
  const digest = hash('sha256', Buffer.concat([content, Buffer.from(` ${contentBytes}`)]), 'hex')
  return messageId === ''
    ? `sha256:${digest}`
    : `${withoutControls(messageId)}#${digest.slice(0, 16)}`
}

/** Returns the message id from which `stableIdOf` has built the id of a dead letter; empty if the message has no id. */
export const messageIdOf = ({ MessageID }: Pick<NewDeadLetter, 'MessageID'>): string =>
  MessageID.startsWith('sha256:') ? '' : MessageID.replace(/#[0-9a-f]{16}$/, '')

/**
 * Replaces characters with U+FFFD: U+0000 and unpaired surrogates, which PostgreSQL cannot store, and control
 * characters, which could manipulate a terminal.
 */
const withoutControls = (text: string): string => text.replace(/[\p{Cc}\p{Cs}]/gu, '\ufffd')
