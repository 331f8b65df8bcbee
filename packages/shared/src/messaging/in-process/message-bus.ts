/**
 * The message broker of the embedded host. It implements exchanges, queues, prefetch, delivery limit, message TTL and
 * dead lettering in memory, with the behaviour of RabbitMQ. Messages are lost at a restart. Unfinished steps are then
 * re-published from the transaction source, and credential events from their outbox. A message that is the only copy of
 * its data is confirmed only after every consumer has acknowledged the message.
 */
import { IntegrationError } from '../../errors.ts'
import type { Logger } from '../../observability/logger.ts'
import { type Clock, systemClock, type Timer } from '../../process/clock.ts'
import { createPendingWork, type PendingWork } from '../../process/pending-work.ts'
import {
  type Binding,
  type ConsumeOptions,
  contentOf,
  type Delivery,
  type ExchangeSpec,
  type MessageBus,
  type OutgoingMessage,
  type QueueSpec,
  type Settlement,
} from '../message-bus.ts'

interface QueuedDelivery extends Delivery {
  readonly expiry: Timer | null
  /** Counts the queues that still have the message; `null` if the publish does not wait for acknowledgements. */
  readonly copies: Copies | null
}

/** The queues with copies of a message that its publisher cannot publish again. */
interface Copies {
  count: number
  readonly settle: (error: IntegrationError | null) => void
}

interface Subscriber {
  readonly options: ConsumeOptions
  readonly handle: (delivery: Delivery) => Promise<Settlement>
  readonly inFlight: PendingWork
}

interface Queue {
  spec: QueueSpec
  readonly ready: QueuedDelivery[]
  readonly subscribers: Subscriber[]
}

/** @param clock - decides when messages with a time to live expire */
export function createInProcessBus(logger: Logger, clock: Clock = systemClock): MessageBus {
  const exchanges = new Map<string, ExchangeSpec>()
  const queues = new Map<string, Queue>()
  let isClosed = false

  const route = (exchange: string, routingKey: string): Queue[] => {
    const type = exchanges.get(exchange)?.type
    return [...queues.values()].filter((queue) =>
      queue.spec.bindings.some(
        (binding) =>
          binding.exchange === exchange &&
          type !== undefined &&
          matches(type, binding.routingKey, routingKey),
      ),
    )
  }

  function enqueue(
    queue: Queue,
    delivery: Delivery,
    copies: Copies | null,
    position: 'front' | 'back',
  ): void {
    if (isClosed) return copies?.settle(closed())
    const { messageTtlMs } = queue.spec
    const queued: QueuedDelivery = {
      ...delivery,
      copies,
      expiry:
        messageTtlMs === undefined
          ? null
          : clock.setTimeout(() => expire(queue, queued), messageTtlMs),
    }
    if (position === 'front') queue.ready.unshift(queued)
    else queue.ready.push(queued)
    // A message is delivered in a later turn of the event loop than the one in which it was published, as with
    // RabbitMQ. Callers may depend on this.
    setImmediate(() => dispatch(queue))
  }

  function expire(queue: Queue, queued: QueuedDelivery): void {
    const index = queue.ready.indexOf(queued)
    if (index === -1) return
    queue.ready.splice(index, 1)
    deadLetter(queue, queued, 'expired')
  }

  function deadLetter({ spec }: Queue, queued: QueuedDelivery, reason: string): void {
    const { expiry: _, copies, ...delivery } = queued
    if (spec.deadLetter === undefined) return acknowledge(copies)
    const routingKey = spec.deadLetter.routingKey ?? delivery.routingKey
    const headers = {
      ...delivery.headers,
      'x-first-death-queue': spec.name,
      'x-first-death-reason': reason,
    }
    const targets = route(spec.deadLetter.exchange, routingKey)
    if (copies !== null) copies.count += targets.length
    for (const target of targets) {
      enqueue(
        target,
        {
          ...delivery,
          exchange: spec.deadLetter.exchange,
          routingKey,
          headers,
          redelivered: false,
          deliveryCount: 0,
        },
        copies,
        'back',
      )
    }
    acknowledge(copies)
  }

  function acknowledge(copies: Copies | null): void {
    if (copies === null) return
    copies.count -= 1
    if (copies.count === 0) copies.settle(null)
  }

  function dispatch(queue: Queue): void {
    while (queue.ready.length > 0 && !isClosed) {
      const subscriber = queue.subscribers.find(
        ({ inFlight, options }) => inFlight.count < options.prefetch,
      )
      if (subscriber === undefined) return
      // The consumers of a queue receive deliveries in turn (round robin), as with RabbitMQ.
      queue.subscribers.push(...queue.subscribers.splice(queue.subscribers.indexOf(subscriber), 1))
      const queued = queue.ready.shift() as QueuedDelivery
      queued.expiry?.[Symbol.dispose]()
      void subscriber.inFlight.add(settle(queue, subscriber, queued)).finally(() => dispatch(queue))
    }
  }

  async function settle(
    queue: Queue,
    subscriber: Subscriber,
    queued: QueuedDelivery,
  ): Promise<void> {
    const settlement = await subscriber.handle(queued).catch((error: unknown): Settlement => {
      logger.error({ err: error, queue: queue.spec.name }, 'message handler failed')
      return 'reject'
    })
    if (settlement === 'ack') return acknowledge(queued.copies)
    if (settlement === 'reject') return deadLetter(queue, queued, 'rejected')
    const deliveryCount = queued.deliveryCount + 1
    // The delivery limit does not apply to a message that is the only copy. The consumer of such a message stores a run
    // for it, and requeues the message only while the run cannot be stored.
    const hasLimit = queued.copies === null && queue.spec.deliveryLimit !== undefined
    if (hasLimit && deliveryCount > (queue.spec.deliveryLimit ?? 0))
      return deadLetter(queue, queued, 'delivery_limit')
    enqueue(queue, { ...queued, redelivered: true, deliveryCount }, queued.copies, 'front')
  }

  return {
    isDurable: false,

    async declare(topology) {
      for (const exchange of topology.exchanges) exchanges.set(exchange.name, exchange)
      for (const spec of topology.queues) {
        const queue = queues.get(spec.name)
        if (queue === undefined) queues.set(spec.name, { spec, ready: [], subscribers: [] })
        else queue.spec = { ...spec, bindings: union(queue.spec.bindings, spec.bindings) }
      }
    },

    async unbind(name, bindings) {
      const queue = queues.get(name)
      if (queue === undefined) return
      const { spec } = queue
      const isRemoved = (bound: Binding) => bindings.some((binding) => isSame(binding, bound))
      queue.spec = { ...spec, bindings: spec.bindings.filter((bound) => !isRemoved(bound)) }
    },

    written: () => Promise.resolve(),
    async publish(message: OutgoingMessage) {
      if (isClosed) throw closed()
      const targets = route(message.exchange, message.routingKey)
      if (targets.length === 0 && message.mandatory) {
        throw new IntegrationError('broker_unavailable', 'no queue is bound for the message')
      }
      const delivery: Delivery = {
        exchange: message.exchange,
        routingKey: message.routingKey,
        messageId: message.messageId,
        type: message.type,
        userId: '',
        headers: { ...message.headers },
        content: contentOf(message.body),
        redelivered: false,
        deliveryCount: 0,
      }
      if (message.isOnlyCopy !== true || targets.length === 0) {
        for (const queue of targets) enqueue(queue, delivery, null, 'back')
        return
      }
      await new Promise<void>((resolve, reject) => {
        const copies: Copies = {
          count: targets.length,
          settle: (error) => (error === null ? resolve() : reject(error)),
        }
        for (const queue of targets) enqueue(queue, delivery, copies, 'back')
      })
    },

    consume(name, options, handle) {
      const queue = queues.get(name)
      if (queue === undefined) throw new TypeError(`the queue ${name} is not declared`)
      const subscriber: Subscriber = { options, handle, inFlight: createPendingWork() }
      queue.subscribers.push(subscriber)
      setImmediate(() => dispatch(queue))
      return {
        async cancel() {
          const index = queue.subscribers.indexOf(subscriber)
          if (index !== -1) queue.subscribers.splice(index, 1)
          await subscriber.inFlight.ended()
        },
      }
    },

    async depth(name) {
      const queue = queues.get(name)
      return queue === undefined
        ? null
        : { ready: queue.ready.length, consumers: queue.subscribers.length }
    },

    async ready(signal) {
      signal?.throwIfAborted()
    },

    async [Symbol.asyncDispose]() {
      isClosed = true
      for (const { ready, subscribers } of queues.values()) {
        for (const { expiry, copies } of ready) {
          expiry?.[Symbol.dispose]()
          copies?.settle(closed())
        }
        for (const { inFlight } of subscribers) await inFlight.ended()
      }
    },
  }
}

const closed = (): IntegrationError =>
  new IntegrationError('broker_unavailable', 'the broker did not accept the message: it is closed')

const isSame = (one: Binding, other: Binding): boolean =>
  one.exchange === other.exchange && one.routingKey === other.routingKey

const union = (known: readonly Binding[], added: readonly Binding[]): readonly Binding[] => [
  ...known,
  ...added.filter((binding) => !known.some((bound) => isSame(bound, binding))),
]

/** Returns whether a binding matches a routing key (AMQP 0-9-1 §3.1.3). */
function matches(type: ExchangeSpec['type'], pattern: string, routingKey: string): boolean {
  if (type === 'fanout') return true
  return type === 'direct'
    ? pattern === routingKey
    : topicMatches(pattern.split('.'), routingKey.split('.'))
}

/** Returns whether a topic pattern matches: `*` stands for exactly one word, `#` for any number of words. */
function topicMatches([head, ...rest]: readonly string[], words: readonly string[]): boolean {
  if (head === undefined) return words.length === 0
  if (head === '#')
    return (
      topicMatches(rest, words) ||
      (words.length > 0 && topicMatches(['#', ...rest], words.slice(1)))
    )
  return (
    words.length > 0 && (head === '*' || head === words[0]) && topicMatches(rest, words.slice(1))
  )
}
