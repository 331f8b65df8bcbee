import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { eventually } from '../../test-support/eventually.ts'
import type { Delivery, MessageBus, OutgoingMessage, Settlement, Topology } from './message-bus.ts'

const topology: Topology = {
  exchanges: [
    { name: 'work', type: 'direct' },
    { name: 'later', type: 'fanout' },
    { name: 'news', type: 'topic' },
    { name: 'dead', type: 'direct' },
  ],
  queues: [
    {
      name: 'orders',
      bindings: [{ exchange: 'work', routingKey: 'order' }],
      deadLetter: { exchange: 'dead', routingKey: 'orders' },
      deliveryLimit: 3,
    },
    {
      name: 'waiting',
      bindings: [{ exchange: 'later', routingKey: '' }],
      messageTtlMs: 50,
      deadLetter: { exchange: 'work' },
    },
    { name: 'graveyard', bindings: [{ exchange: 'dead', routingKey: 'orders' }] },
    { name: 'all-news', bindings: [{ exchange: 'news', routingKey: 'news.#' }] },
    { name: 'one-word', bindings: [{ exchange: 'news', routingKey: 'news.*' }] },
  ],
}

const order = (id: string, overrides: Partial<OutgoingMessage> = {}): OutgoingMessage => ({
  exchange: 'work',
  routingKey: 'order',
  messageId: id,
  type: 'order',
  body: { id },
  mandatory: true,
  ...overrides,
})

/**
 * Tests the behaviour that every message bus must have. Both implementations are tested: in process, and over RabbitMQ.
 */
export function messageBusContract(name: string, open: () => Promise<MessageBus>): void {
  describe(`${name} as a message bus`, () => {
    let bus: MessageBus

    beforeEach(async () => {
      bus = await open()
      await bus.declare(topology)
    })
    afterEach(() => bus[Symbol.asyncDispose]())

    /** Consumes a queue, collects its deliveries, and settles each of them with `settlement`. */
    function collect(
      queue: string,
      settlement: (delivery: Delivery) => Settlement = () => 'ack',
      prefetch = 10,
    ) {
      const deliveries: Delivery[] = []
      const consumer = bus.consume(queue, { prefetch, tag: `test ${queue}` }, async (delivery) => {
        deliveries.push(delivery)
        return settlement(delivery)
      })
      const arrived = (count: number) =>
        eventually(() => expect(deliveries.length).toBeGreaterThanOrEqual(count))
      return { deliveries, consumer, arrived }
    }

    it('the message bus delivers a message with its id, type, headers and JSON body', async () => {
      const { deliveries, arrived } = collect('orders')
      await bus.publish(order('1', { headers: { traceparent: '00-a-b-01' } }))
      await arrived(1)
      expect(deliveries[0]).toMatchObject({
        routingKey: 'order',
        messageId: '1',
        type: 'order',
        headers: { traceparent: '00-a-b-01' },
        redelivered: false,
        deliveryCount: 0,
      })
      expect(JSON.parse(String(deliveries[0]?.content))).toEqual({ id: '1' })
    })

    it('the message bus delivers a body of bytes unchanged', async () => {
      const { deliveries, arrived } = collect('orders')
      const bytes = Buffer.from([0, 0xff, 0x7b])
      await bus.publish(order('1', { body: bytes }))
      await arrived(1)
      expect(deliveries[0]?.content).toEqual(bytes)
    })

    it('the message bus delivers messages to a single consumer in the order in which they were published', async () => {
      const ids = Array.from({ length: 50 }, (_, index) => String(index))
      for (const id of ids) await bus.publish(order(id))
      const { deliveries, arrived } = collect('orders')
      await arrived(50)
      expect(deliveries.map(({ messageId }) => messageId)).toEqual(ids)
    })

    it('the message bus rejects an unroutable message that is mandatory, and drops other unroutable messages', async () => {
      await expect(bus.publish(order('1', { routingKey: 'unknown' }))).rejects.toMatchObject({
        code: 'broker_unavailable',
      })
      await expect(
        bus.publish(order('2', { exchange: 'news', routingKey: 'other', mandatory: false })),
      ).resolves.toBeUndefined()
    })

    it('the number of unacknowledged deliveries to a consumer never exceeds its prefetch count', async () => {
      let inHand = 0
      let most = 0
      let done = 0
      const release: (() => void)[] = []
      bus.consume('orders', { prefetch: 2, tag: 'test' }, async () => {
        most = Math.max(most, ++inHand)
        await new Promise<void>((resolve) => release.push(resolve))
        inHand--
        done++
        return 'ack'
      })
      for (const id of ['1', '2', '3', '4', '5']) await bus.publish(order(id))
      await eventually(() => {
        release.splice(0).forEach((resolve) => resolve())
        expect(done).toBe(5)
      })
      expect(most).toBe(2)
    })

    it('the message bus redelivers a requeued message and marks it as redelivered', async () => {
      const { deliveries, arrived } = collect('orders', (delivery) =>
        delivery.redelivered ? 'ack' : 'requeue',
      )
      await bus.publish(order('1'))
      await arrived(2)
      expect(deliveries[1]).toMatchObject({ messageId: '1', redelivered: true, deliveryCount: 1 })
    })

    it('the message bus dead-letters a rejected message, and a message whose handler throws', async () => {
      const graveyard = collect('graveyard')
      collect('orders', ({ messageId }) => {
        if (messageId === 'throws') throw new Error('a bug')
        return 'reject'
      })
      await bus.publish(order('rejected'))
      await bus.publish(order('throws'))
      await graveyard.arrived(2)
      expect(graveyard.deliveries.map(({ messageId }) => messageId).toSorted()).toEqual([
        'rejected',
        'throws',
      ])
    })

    it('the message bus dead-letters a message that is requeued beyond the delivery limit', async () => {
      const graveyard = collect('graveyard')
      const orders = collect('orders', () => 'requeue')
      await bus.publish(order('poison'))
      await graveyard.arrived(1)
      expect(orders.deliveries).toHaveLength(4)
      expect(graveyard.deliveries[0]?.headers).toMatchObject({
        'x-first-death-reason': 'delivery_limit',
      })
    })

    it('the message bus delivers a delayed message after its TTL with its original routing key', async () => {
      const { deliveries, arrived } = collect('orders')
      await bus.publish(order('1', { exchange: 'later' }))
      expect(deliveries).toHaveLength(0)
      await arrived(1)
      expect(deliveries[0]).toMatchObject({ messageId: '1', routingKey: 'order' })
    })

    it('the message bus routes by topic pattern, in which * matches exactly one word and # any number of words', async () => {
      const all = collect('all-news')
      const oneWord = collect('one-word')
      for (const routingKey of ['news', 'news.local', 'news.local.weather', 'other.local']) {
        await bus.publish(order(routingKey, { exchange: 'news', routingKey, mandatory: false }))
      }
      await all.arrived(3)
      await oneWord.arrived(1)
      expect(all.deliveries.map(({ routingKey }) => routingKey)).toEqual([
        'news',
        'news.local',
        'news.local.weather',
      ])
      expect(oneWord.deliveries.map(({ routingKey }) => routingKey)).toEqual(['news.local'])
    })

    it('the message bus adds bindings when a queue is declared again, and removes bindings on request', async () => {
      const queue = `rebound-${crypto.randomUUID()}`
      const bindings = (...keys: readonly string[]) =>
        keys.map((routingKey) => ({ exchange: 'news', routingKey }))
      const declare = (...keys: readonly string[]) =>
        bus.declare({
          exchanges: [],
          queues: [{ name: queue, bindings: bindings(...keys), exclusive: true }],
        })
      const send = (routingKey: string) =>
        bus.publish(order(routingKey, { exchange: 'news', routingKey, mandatory: false }))
      await declare('rebound.a')
      await declare('rebound.b')
      const { deliveries, arrived } = collect(queue)
      await send('rebound.a')
      await send('rebound.b')
      await arrived(2)
      await bus.unbind(queue, bindings('rebound.a', 'rebound.never'))
      await send('rebound.a')
      await send('rebound.b')
      await arrived(3)
      expect(deliveries.map(({ routingKey }) => routingKey)).toEqual([
        'rebound.a',
        'rebound.b',
        'rebound.b',
      ])
    })

    it('cancelling a consumer of the message bus stops deliveries and waits for the deliveries in flight', async () => {
      const started = Promise.withResolvers<void>()
      const finish = Promise.withResolvers<void>()
      const consumer = bus.consume('orders', { prefetch: 1, tag: 'test' }, async () => {
        started.resolve()
        await finish.promise
        return 'ack'
      })
      await bus.publish(order('1'))
      await started.promise
      let isCancelled = false
      const cancelled = consumer.cancel().then(() => (isCancelled = true))
      await bus.publish(order('2'))
      expect(isCancelled).toBe(false)
      finish.resolve()
      await cancelled
      await eventually(async () =>
        expect(await bus.depth('orders')).toEqual({ ready: 1, consumers: 0 }),
      )
    })

    it('the message bus returns the number of messages and consumers of a queue, and null for a queue that does not exist', async () => {
      await bus.publish(order('1'))
      await eventually(async () =>
        expect(await bus.depth('orders')).toEqual({ ready: 1, consumers: 0 }),
      )
      expect(await bus.depth('no-such-queue')).toBeNull()
    })
  })
}
