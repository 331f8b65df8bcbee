/**
 * Publishes the transitions of runs to other systems and to other coordinator replicas, and keeps the latest ones for
 * the clients of `GET /events`. Events may be lost when a connection breaks. The rows in the store are authoritative,
 * and an event contains only data that the rows contain as well.
 */
import { afterWritesOfThisTurn } from '@integration-host/shared/batching'
import { parseMessageAs } from '@integration-host/shared/json'
import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  COORDINATORS_EXCHANGE,
  TransactionEvent,
  transactionRoutingKey,
  TRANSACTIONS_EXCHANGE,
} from '@integration-host/shared/contracts/events'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { createPendingWork } from '@integration-host/shared/process/pending-work'
import { z } from 'zod'
import { isOver } from '../run/status.ts'

export interface TransactionEvents extends AsyncDisposable {
  readonly publishEvent: (event: TransactionEvent) => void
}

/**
 * The name of the exclusive queue that each replica declares. Through this queue, a replica receives the transitions
 * that all other replicas make.
 */
const REPLICA_QUEUE = 'coordinator.transactions'
/**
 * The milliseconds for which a replica collects transitions before it sends them to the other replicas as one batch.
 * One message per transition would add a fifth to the cost of a short run. Clients wait for the last transition of a
 * run, so this transition causes the batch to be sent immediately, but not more often than every `BATCH_MS`.
 */
const BATCH_MS = 20
const MAX_BATCH = 1_000
const Batch = z.object({ Events: z.array(TransactionEvent) })

/** @param onForeign - called for the transitions of other replicas, not for those that this replica publishes */
export async function joinTransactionEvents(
  bus: MessageBus,
  owner: string,
  onForeign: (event: TransactionEvent) => void,
): Promise<TransactionEvents> {
  await bus.declare({
    exchanges: [
      { name: TRANSACTIONS_EXCHANGE, type: 'topic' },
      { name: COORDINATORS_EXCHANGE, type: 'fanout' },
    ],
    queues: [
      {
        name: REPLICA_QUEUE,
        bindings: [{ exchange: COORDINATORS_EXCHANGE, routingKey: '' }],
        exclusive: true,
      },
    ],
  })
  const options = { prefetch: 500, tag: `${owner} events` }
  const consumer = bus.consume(REPLICA_QUEUE, options, async ({ content, headers }) => {
    // Batches that this replica has published itself are skipped before they are parsed. With a single replica, parsing
    // would be wasted work for every batch.
    const batch = headers['replica'] === owner ? null : parseMessageAs(Batch, content)
    for (const event of batch?.Events ?? []) onForeign(event)
    return 'ack'
  })
  const external = createExternalPublisher(bus)
  let batch: TransactionEvent[] = []
  let timer: NodeJS.Timeout | undefined
  let mayPublishAt = 0

  async function publishBatch(): Promise<void> {
    clearTimeout(timer)
    const events = batch
    batch = []
    if (events.length === 0) return
    const message = {
      exchange: COORDINATORS_EXCHANGE,
      routingKey: '',
      messageId: crypto.randomUUID(),
      type: 'transitions',
      headers: { replica: owner },
      body: { Events: events } satisfies z.input<typeof Batch>,
      mandatory: false,
    }
    await bus.publish(message).catch(() => {})
  }

  return {
    publishEvent(event) {
      external.publishEvent(event)
      batch.push(event)
      if (batch.length === 1) timer = setTimeout(() => void publishBatch(), BATCH_MS)
      const isDue = isOver(event.Status) && performance.now() >= mayPublishAt
      if (isDue) mayPublishAt = performance.now() + BATCH_MS
      if (batch.length === MAX_BATCH) void publishBatch()
      // The clients of this replica wait for the same transition, so they receive it first.
      else if (isDue) afterWritesOfThisTurn(() => void publishBatch())
    },
    async [Symbol.asyncDispose]() {
      await publishBatch()
      await external[Symbol.asyncDispose]()
      await consumer.cancel()
    },
  }
}

/**
 * The time in milliseconds for which events of a routing key are buffered after the broker has returned an event of
 * this key.
 */
const UNBOUND_MS = 250

/** The events of one routing key. */
interface RoutingKeyBuffer {
  /** Whether the last published event reached a queue. */
  isBound: boolean
  /** The events that are buffered until a probe has shown whether a queue is bound. */
  readonly events: TransactionEvent[]
  isProbing: boolean
}

/**
 * Publishes events to other systems. Usually no queue is bound, and an event that the broker returns as
 * unroutable costs as much as a step message. Therefore a routing key without a queue is probed with one event
 * every 250 ms. Once a queue is bound, the buffered events are published in order.
 */
function createExternalPublisher(bus: MessageBus): TransactionEvents {
  const buffers = new Map<string, RoutingKeyBuffer>()
  const inFlight = createPendingWork()
  const shutdown = new AbortController()

  const publish = (event: TransactionEvent): Promise<void> =>
    inFlight.add(
      bus.publish({
        exchange: TRANSACTIONS_EXCHANGE,
        routingKey: transactionRoutingKey(event),
        messageId: messageId(eventId(event)),
        type: `transaction.${event.Status.toLowerCase()}`,
        body: event,
        mandatory: true,
      }),
    )

  function publishEvent(event: TransactionEvent): void {
    const key = transactionRoutingKey(event)
    const buffer = buffers.get(key) ?? { isBound: false, events: [], isProbing: false }
    buffers.set(key, buffer)
    if (buffer.isBound)
      return void publish(event).catch(() => {
        buffer.isBound = false
      })
    buffer.events.push(event)
    if (!buffer.isProbing) void probe(buffer)
  }

  async function probe(buffer: RoutingKeyBuffer): Promise<void> {
    buffer.isProbing = true
    while (buffer.events.length > 0 && !shutdown.signal.aborted) {
      const { length, 0: first } = buffer.events
      try {
        if (first !== undefined) await publish(first)
        buffer.isBound = true
        for (const event of buffer.events.splice(0).slice(1)) publishEvent(event)
      } catch {
        buffer.events.splice(0, length) // the broker returned the probe, so no queue is bound for these events
        await sleep(UNBOUND_MS, null, { signal: shutdown.signal }).catch(() => {})
      }
    }
    buffer.isProbing = false
  }

  return {
    publishEvent,
    async [Symbol.asyncDispose]() {
      shutdown.abort()
      // The remaining events are published, because a queue may have been bound since the last probe.
      for (const { events } of buffers.values())
        for (const event of events.splice(0)) publish(event).catch(() => {})
      await inFlight.ended()
    },
  }
}

// An event id may be longer than the 255 bytes that AMQP allows for a message id, because its parts are
// percent-encoded.
const messageId = (id: string): string =>
  id.length <= 255 ? id : createHash('sha256').update(id).digest('hex')

const KEPT = 10_000
/**
 * When a client reconnects, the events of this many milliseconds before the last event of the client are sent again.
 * Transitions reach the other replicas in much less time.
 */
const OVERLAP_MS = 1_000

/** Returns the id of an event. It is the same on every replica, because it is derived from the transition. */
export const eventId = ({ Process, TransactionID, ReplayID, Version }: TransactionEvent): string =>
  `${encodeURIComponent(Process)}/${encodeURIComponent(TransactionID)}/${ReplayID}/${Version}`

export type TransitionFeed = ReturnType<typeof createTransitionFeed>

/**
 * The latest transitions, for the clients of `GET /events`. A client that reconnects continues after its last event.
 *
 * Each replica receives its own transitions at once, and the transitions of other replicas a moment later. Therefore
 * two events may have a different order on two replicas.
 */
export function createTransitionFeed(kept = KEPT) {
  let events: TransactionEvent[] = []
  const listeners = new Set<(event: TransactionEvent) => void>()
  return {
    add(event: TransactionEvent): void {
      events.push(event)
      // The feed is trimmed only occasionally, because this function runs for every transition.
      if (events.length >= 2 * kept) events = events.slice(-kept)
      for (const listener of listeners) listener(event)
    },
    /**
     * Returns the events after the event with this id, preceded by the events of the last 1,000 ms before that event. The
     * earlier events are repeated because the replica that served the client before may have sent them in a different
     * order. Returns `null` if the event with this id has not arrived on this replica yet, or is no longer stored.
     */
    after(id: string): readonly TransactionEvent[] | null {
      const index = events.findLastIndex((event) => eventId(event) === id)
      const last = events[index]
      if (last === undefined) return null
      const since = Date.parse(last.At) - OVERLAP_MS
      return events.filter(
        (event, at) => at > index || (at < index && Date.parse(event.At) >= since),
      )
    },
    /** Calls `listener` for each new event until the returned function is called. */
    watch(listener: (event: TransactionEvent) => void): () => void {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
  }
}
