/**
 * Transitions, told to other systems and between replicas. All of it may be lost with a connection: the rows are
 * the truth, and an event says nothing that they do not.
 */
import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  COORDINATORS_EXCHANGE,
  TransactionEvent,
  transactionRoutingKey,
  TRANSACTIONS_EXCHANGE,
} from '@integration-host/shared/contracts/transaction-event'
import type { MessageBus } from '@integration-host/shared/message-bus'
import { z } from 'zod'
import { eventId } from '../../worker/transition-feed.ts'
import { parsed } from './parsed.ts'

export interface TransactionEvents extends AsyncDisposable {
  readonly tell: (event: TransactionEvent) => void
}

/** A queue for each replica: every one shows every transition. */
const REPLICA_QUEUE = 'coordinator.transactions'
/** Transitions between replicas travel together: a message each is a fifth of what a short run costs. */
const SHARE_MS = 20
const MAX_SHARED = 1_000
const Shared = z.object({ Events: z.array(TransactionEvent) })

/** @param heard - called for the transitions of the other replicas, not for those told here */
export async function joinTransactionEvents(
  bus: MessageBus,
  owner: string,
  heard: (event: TransactionEvent) => void,
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
    // Before it is parsed: with one replica all of them are our own.
    const shared = headers['replica'] === owner ? null : parsed(Shared, content)
    for (const event of shared?.Events ?? []) heard(event)
    return 'ack'
  })
  const outlet = openOutlet(bus)
  let batch: TransactionEvent[] = []
  let timer: NodeJS.Timeout | undefined

  async function share(): Promise<void> {
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
      body: { Events: events } satisfies z.input<typeof Shared>,
      mandatory: false,
    }
    await bus.publish(message).catch(() => {})
  }

  return {
    tell(event) {
      outlet.tell(event)
      batch.push(event)
      if (batch.length === 1) timer = setTimeout(() => void share(), SHARE_MS)
      if (batch.length === MAX_SHARED) void share()
    },
    async [Symbol.asyncDispose]() {
      await share()
      await outlet[Symbol.asyncDispose]()
      await consumer.cancel()
    },
  }
}

/** How long nobody is offered an event after one came back because no queue takes it. */
const UNHEARD_MS = 250

/** The events of one routing key. */
interface Lane {
  /** Whether a queue took the last one. */
  isHeard: boolean
  /** What came while the broker is asked, and until it is asked again. */
  readonly kept: TransactionEvent[]
  isAsking: boolean
}

/**
 * Publishes to other systems, of which there are mostly none: what the broker returns as unroutable costs as much
 * as a step's message. So a routing key that no queue takes is tried only now and then, with one event, and what
 * came meanwhile goes out, in order, as soon as there is one.
 */
function openOutlet(bus: MessageBus): TransactionEvents {
  const lanes = new Map<string, Lane>()
  const underway = new Set<Promise<void>>()
  const leaving = new AbortController()

  const publish = (event: TransactionEvent): Promise<void> => {
    const work = bus
      .publish({
        exchange: TRANSACTIONS_EXCHANGE,
        routingKey: transactionRoutingKey(event),
        messageId: messageId(eventId(event)),
        type: `transaction.${event.Status.toLowerCase()}`,
        body: event,
        mandatory: true,
      })
      .finally(() => underway.delete(work))
    underway.add(work)
    return work
  }

  function tell(event: TransactionEvent): void {
    const key = transactionRoutingKey(event)
    const lane = lanes.get(key) ?? { isHeard: false, kept: [], isAsking: false }
    lanes.set(key, lane)
    if (lane.isHeard)
      return void publish(event).catch(() => {
        lane.isHeard = false
      })
    lane.kept.push(event)
    if (!lane.isAsking) void ask(lane)
  }

  async function ask(lane: Lane): Promise<void> {
    lane.isAsking = true
    while (lane.kept.length > 0 && !leaving.signal.aborted) {
      const { length, 0: first } = lane.kept
      try {
        if (first !== undefined) await publish(first)
        lane.isHeard = true
        for (const event of lane.kept.splice(0).slice(1)) tell(event)
      } catch {
        lane.kept.splice(0, length) // when these came, nobody listened
        await sleep(UNHEARD_MS, null, { signal: leaving.signal }).catch(() => {})
      }
    }
    lane.isAsking = false
  }

  return {
    tell,
    async [Symbol.asyncDispose]() {
      leaving.abort()
      // Somebody may have come since the last try.
      for (const { kept } of lanes.values())
        for (const event of kept.splice(0)) publish(event).catch(() => {})
      while (underway.size > 0) await Promise.allSettled(underway)
    },
  }
}

// AMQP takes 255 bytes; an encoded id can be longer.
const messageId = (id: string): string =>
  id.length <= 255 ? id : createHash('sha256').update(id).digest('hex')
