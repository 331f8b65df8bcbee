import { setTimeout as delay } from 'node:timers/promises'
import { connect } from 'amqplib'
import { afterAll, describe, expect, it, vi } from 'vitest'
import { createHealth } from '../health.ts'
import { createLogger } from '../logger.ts'
import { messageBusContract } from '../message-bus.contract.ts'
import type { MessageBus } from '../message-bus.ts'
import { Secret } from '../secret.ts'
import { startRelay } from '../../test-support/relay.ts'
import { connectRabbitMq } from './message-bus.ts'

const url = process.env['TEST_AMQP_URL'] ?? ''
const logger = createLogger('test', 'silent')
const prefixes: string[] = []

/** A bus with exchange and queue names of its own. */
async function open(address = url, confirmDeadlineMs = 5_000): Promise<MessageBus> {
  const prefix = `test-${crypto.randomUUID().slice(0, 8)}.`
  prefixes.push(prefix)
  const dependency = createHealth(logger).dependency('rabbitmq')
  const bus = await connectRabbitMq(new Secret(address), {
    name: 'test',
    dependency,
    logger,
    prefix,
    confirmDeadlineMs,
  })
  if (address === url) await bus.ready(AbortSignal.timeout(10_000))
  return bus
}

afterAll(async () => {
  const connection = await connect(url)
  const channel = await connection.createChannel()
  for (const prefix of prefixes) {
    for (const queue of ['orders', 'waiting', 'graveyard', 'all-news', 'one-word'])
      await channel.deleteQueue(prefix + queue)
    for (const exchange of ['work', 'later', 'news', 'dead'])
      await channel.deleteExchange(prefix + exchange)
  }
  await connection.close()
})

messageBusContract('RabbitMQ', () => open())

describe('the RabbitMQ bus on a bad line', () => {
  const message = {
    exchange: 'work',
    routingKey: 'order',
    messageId: '1',
    type: 'order',
    body: {},
    mandatory: true,
  }
  const topology = {
    exchanges: [{ name: 'work', type: 'direct' as const }],
    queues: [{ name: 'orders', bindings: [{ exchange: 'work', routingKey: 'order' }] }],
  }

  it('declares and consumes again by itself after the connection was cut', async () => {
    const line = await startRelay(url, 5672)
    const bus = await open(line.url)
    await bus.ready(AbortSignal.timeout(10_000))
    await bus.declare(topology)
    const ids: string[] = []
    bus.consume('orders', { prefetch: 5, tag: 'test' }, async ({ messageId }) => {
      ids.push(messageId)
      return 'ack'
    })
    await bus.publish(message)
    line.cut()
    await vi.waitFor(() => bus.publish({ ...message, messageId: '2' }), {
      timeout: 15_000,
      interval: 50,
    })
    await vi.waitFor(() => expect(ids).toContain('2'), { timeout: 10_000 })
    await bus[Symbol.asyncDispose]()
    await line[Symbol.asyncDispose]()
  })

  it('comes back when the line breaks again and again, also in the middle of coming back', async () => {
    await using line = await startRelay(url, 5672)
    const bus = await open(line.url)
    await bus.ready(AbortSignal.timeout(10_000))
    await bus.declare(topology)
    // Cut at ever other moments of connecting: in the handshake, while declaring, while consuming.
    for (let afterMs = 0; afterMs < 60; afterMs += 2) {
      line.cut()
      await delay(100 + afterMs)
    }
    await vi.waitFor(() => bus.publish(message), { timeout: 15_000, interval: 50 })
    await bus[Symbol.asyncDispose]()
  })

  it('answers every question about a queue, also those whose channel was closing at the cut', async () => {
    await using line = await startRelay(url, 5672)
    const bus = await open(line.url)
    await bus.ready(AbortSignal.timeout(10_000))
    await bus.declare(topology)
    const asked = Array.from({ length: 100 }, () => bus.depth('orders'))
    await asked[0]
    line.cut()
    await expect(Promise.all(asked)).resolves.toHaveLength(100)
    await bus[Symbol.asyncDispose]()
  })

  it('lets a consumer go whose line fell silent', async () => {
    await using line = await startRelay(url, 5672)
    const bus = await open(line.url)
    await bus.ready(AbortSignal.timeout(10_000))
    await bus.declare(topology)
    const consumer = bus.consume('orders', { prefetch: 1, tag: 'test' }, async () => 'ack')
    await vi.waitFor(async () => expect(await bus.depth('orders')).toMatchObject({ consumers: 1 }))
    line.stall()
    await consumer.cancel()
    await bus[Symbol.asyncDispose]()
  })

  it('fails a publish whose confirm does not come within the deadline', async () => {
    const line = await startRelay(url, 5672)
    const bus = await open(line.url, 300)
    await bus.ready(AbortSignal.timeout(10_000))
    await bus.declare(topology)
    line.stall()
    await expect(bus.publish(message)).rejects.toMatchObject({ code: 'broker_unavailable' })
    line.cut()
    await bus[Symbol.asyncDispose]()
    await line[Symbol.asyncDispose]()
  })

  it('fails a publish at once while the broker is away, and says so in the health report', async () => {
    const health = createHealth(logger)
    const bus = await connectRabbitMq(new Secret('amqp://127.0.0.1:1'), {
      name: 'test',
      dependency: health.dependency('rabbitmq'),
      logger,
    })
    await expect(bus.publish(message)).rejects.toMatchObject({ code: 'broker_unavailable' })
    await vi.waitFor(() =>
      expect(health.report().dependencies['rabbitmq']).toMatchObject({
        status: 'down',
        reason: 'ECONNREFUSED',
      }),
    )
    await bus[Symbol.asyncDispose]()
  })
})
