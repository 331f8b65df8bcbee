import { setTimeout as delay } from 'node:timers/promises'
import { connect } from 'amqplib'
import { afterAll, describe, expect, it } from 'vitest'
import { eventually } from '../../../test-support/eventually.ts'
import { createHealth } from '../../observability/health.ts'
import { createLogger } from '../../observability/logger.ts'
import { messageBusContract } from '../message-bus.contract.ts'
import type { MessageBus } from '../message-bus.ts'
import { Secret } from '../../secrets/secret.ts'
import { edited, startRelay } from '../../../test-support/relay.ts'
import { connectRabbitMq } from './message-bus.ts'

const url = process.env['TEST_AMQP_URL'] ?? ''
const logger = createLogger('test', 'silent')
const prefixes: string[] = []

/** A bus with its own prefix for exchange and queue names. */
async function open(address = url, confirmDeadlineMs = 5_000): Promise<MessageBus> {
  const prefix = `test-${crypto.randomUUID().slice(0, 8)}.`
  prefixes.push(prefix)
  const dependency = createHealth(logger).dependency('rabbitmq')
  const bus = connectRabbitMq(new Secret(address), {
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

describe('the RabbitMQ bus on an unreliable connection', () => {
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

  it('does not use a broker that is too old, and reports it until it is upgraded', async () => {
    await using relay = await startRelay(url, 5_672)
    relay.edit = (answer) =>
      edited(answer, /(version\S{5})\d\.\d+/, (text) => text.replace(/\d(?=\.\d+$)/, '2'))
    const health = createHealth(logger)
    await using bus = connectRabbitMq(new Secret(relay.url), {
      name: 'test',
      dependency: health.dependency('rabbitmq'),
      logger,
    })
    await eventually(() =>
      expect(health.report().dependencies['rabbitmq']).toMatchObject({
        status: 'down',
        reason: expect.stringMatching(/^version: 2\.\d+\.\d+\. Upgrade to 3\.10 or newer\.$/),
      }),
    )
    relay.edit = null
    await bus.ready(AbortSignal.timeout(10_000))
    expect(health.report().status).toBe('ready')
  })

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
    await eventually(() => bus.publish({ ...message, messageId: '2' }))
    await eventually(() => expect(ids).toContain('2'))
    await bus[Symbol.asyncDispose]()
    await line[Symbol.asyncDispose]()
  })

  it('reconnects if the connection breaks repeatedly, also while reconnecting', async () => {
    await using line = await startRelay(url, 5672)
    const bus = await open(line.url)
    await bus.ready(AbortSignal.timeout(10_000))
    await bus.declare(topology)
    // Cut at different moments of connecting: in the handshake, while declaring, while consuming.
    for (let afterMs = 0; afterMs < 60; afterMs += 2) {
      line.cut()
      await delay(100 + afterMs)
    }
    await eventually(() => bus.publish(message))
    await bus[Symbol.asyncDispose]()
  })

  it('reconnects if the broker closes the connection just as it is established', async () => {
    await using line = await startRelay(url, 5672)
    const bus = await open(line.url)
    await bus.ready(AbortSignal.timeout(10_000))
    await bus.declare(topology)
    const ids: string[] = []
    const consumer = bus.consume('orders', { prefetch: 1, tag: 'test' }, async ({ messageId }) => {
      ids.push(messageId)
      return 'ack'
    })
    await eventually(async () => expect(await bus.depth('orders')).toMatchObject({ consumers: 1 }))
    let isEnded = false
    line.edit = (answer) => {
      if (isEnded || !answer.includes(CONSUME_OK)) return answer
      isEnded = true
      return Buffer.concat([answer, CONNECTION_CLOSE])
    }
    line.cut()
    await eventually(() => expect(isEnded).toBe(true))
    await eventually(() => bus.publish(message))
    await eventually(() => expect(ids).toContain(message.messageId))
    await consumer.cancel()
    await bus[Symbol.asyncDispose]()
  })

  it.each([
    ['greeted', 10, 10],
    ['admitted', 10, 30],
    ['opened', 10, 41],
    ['given a channel', 20, 11],
    ['promised confirms', 85, 11],
  ])(
    'shuts down without an error if the connection breaks just as it is %s',
    async (_, classId, methodId) => {
      await using line = await startRelay(url, 5672)
      const left = Promise.withResolvers<void>()
      line.edit = (answer) => {
        if (!answer.includes(method(classId, methodId))) return answer
        line.edit = null
        bus[Symbol.asyncDispose]().then(left.resolve, left.reject)
        setImmediate(() => line.cut())
        return answer
      }
      const bus = await open(line.url)
      await left.promise
      expect(line.connections).toBe(1)
    },
  )

  it('reconnects immediately if the broker has not noticed the end of the connection', async () => {
    await using line = await startRelay(url, 5672)
    const bus = await open(line.url)
    await bus.ready(AbortSignal.timeout(10_000))
    await bus.declare({
      exchanges: [{ name: 'news', type: 'fanout' }],
      queues: [
        { name: 'all-news', exclusive: true, bindings: [{ exchange: 'news', routingKey: '' }] },
      ],
    })
    const ids: string[] = []
    bus.consume('all-news', { prefetch: 1, tag: 'test' }, async ({ messageId }) => {
      ids.push(messageId)
      return 'ack'
    })
    const hears = (messageId: string) =>
      eventually(
        async () => {
          await bus.publish({ ...message, exchange: 'news', messageId, mandatory: false })
          expect(ids).toContain(messageId)
        },
        { seconds: 15, everyMs: 50 },
      )
    await hears('before')
    line.cut('half')
    await hears('after')
    await bus[Symbol.asyncDispose]()
  })

  it('settles every depth request, also if its channel is closing when the connection is cut', async () => {
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

  it('cancels a consumer whose connection is unresponsive', async () => {
    await using line = await startRelay(url, 5672)
    const bus = await open(line.url)
    await bus.ready(AbortSignal.timeout(10_000))
    await bus.declare(topology)
    const consumer = bus.consume('orders', { prefetch: 1, tag: 'test' }, async () => 'ack')
    await eventually(async () => expect(await bus.depth('orders')).toMatchObject({ consumers: 1 }))
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

  it('fails a publish immediately while the broker is unavailable, and reports it in the health report', async () => {
    const health = createHealth(logger)
    const bus = connectRabbitMq(new Secret('amqp://127.0.0.1:1'), {
      name: 'test',
      dependency: health.dependency('rabbitmq'),
      logger,
    })
    await expect(bus.publish(message)).rejects.toMatchObject({ code: 'broker_unavailable' })
    await eventually(() =>
      expect(health.report().dependencies['rabbitmq']).toMatchObject({
        status: 'down',
        reason: 'ECONNREFUSED',
      }),
    )
    await bus[Symbol.asyncDispose]()
  })
})

// AMQP 0-9-1: class and method as encoded in a frame, and a whole frame of the broker.
const method = (classId: number, methodId: number) => Buffer.from([0, classId, 0, methodId])
const CONSUME_OK = method(60, 21)
const CONNECTION_CLOSE = (() => {
  const text = 'CONNECTION_FORCED - shutdown'
  const [code, cause] = [Buffer.from([1, 64]), Buffer.alloc(4)] // 320, by no method
  const close = [method(10, 50), code, Buffer.from([text.length]), Buffer.from(text), cause]
  const payload = Buffer.concat(close)
  const header = Buffer.alloc(7)
  header.writeUInt8(1)
  header.writeUInt32BE(payload.length, 3)
  return Buffer.concat([header, payload, Buffer.from([206])])
})()

describe('a queue that exists with incompatible arguments', () => {
  const declared = {
    exchanges: [{ name: 'work', type: 'direct' as const }],
    queues: [
      {
        name: 'orders',
        bindings: [{ exchange: 'work', routingKey: 'order' }],
        messageTtlMs: 5_000,
      },
    ],
  }

  /** A bus on which the topology was declared, before or after its connection was established. */
  async function openOver(existing: Record<string, unknown>, isConnectedFirst: boolean) {
    const prefix = `test-${crypto.randomUUID().slice(0, 8)}.`
    prefixes.push(prefix)
    const operator = await connect(url)
    const channel = await operator.createChannel()
    await channel.assertQueue(`${prefix}orders`, { durable: true, arguments: existing })
    const lines: string[] = []
    const line = await startRelay(url, 5672)
    const heard = createLogger('test', 'info', { write: (text) => void lines.push(text) })
    const health = createHealth(heard)
    const bus = connectRabbitMq(new Secret(line.url), {
      name: 'test',
      dependency: health.dependency('rabbitmq'),
      logger: heard,
      prefix,
    })
    if (isConnectedFirst) await bus.ready(AbortSignal.timeout(10_000))
    await bus.declare(declared)
    return {
      bus,
      line,
      prefix,
      report: () => health.report(),
      errors: () =>
        lines.map((text) => JSON.parse(text) as Record<string, unknown>).filter(isError),
      mend: () => channel.deleteQueue(`${prefix}orders`),
      async [Symbol.asyncDispose]() {
        await bus[Symbol.asyncDispose]()
        await line[Symbol.asyncDispose]()
        await operator.close()
      },
    }
  }
  const isError = (line: Record<string, unknown>): boolean => line['level'] === 'error'
  const ours = { 'x-queue-type': 'quorum', 'x-message-ttl': 1_000 }

  it.each([
    ['while it is connected', true],
    ['before it is connected', false],
  ])('keeps the bus unready with that reason, declared %s', async (_, isConnectedFirst) => {
    await using over = await openOver(ours, isConnectedFirst)
    await eventually(() =>
      expect(over.report().dependencies['rabbitmq']).toMatchObject({
        status: 'down',
        reason: `queue ${over.prefix}orders exists with another x-message-ttl (1000) than it needs (5000)`,
      }),
    )
  })

  it('is logged once with the difference and the remediation, however often the declaration is retried', async () => {
    await using over = await openOver(ours, false)
    await eventually(() => expect(over.line.connections).toBeGreaterThan(3))
    expect(over.errors()).toMatchObject([
      {
        kind: 'queue',
        name: `${over.prefix}orders`,
        setting: 'x-message-ttl',
        wanted: '5000',
        found: '1000',
        remediation: expect.stringContaining('delete this queue'),
      },
    ])
  })

  it('is declared and used as soon as it was deleted', async () => {
    await using over = await openOver(ours, true)
    await eventually(() => expect(over.errors()).toHaveLength(1))
    await over.mend()
    await eventually(() => expect(over.report().status).toBe('ready'))
    const message = { messageId: '1', type: 'order', body: {}, mandatory: true }
    await over.bus.publish({ exchange: 'work', routingKey: 'order', ...message })
  })

  it('is used then also if the peer stops responding while the connection is being closed', async () => {
    await using over = await openOver(ours, true)
    const { line } = over
    let isSilent = false
    line.edit = (answer) => {
      if (isSilent || !answer.includes('PRECONDITION_FAILED')) return answer
      isSilent = true
      // After this reply, before our reply to it.
      queueMicrotask(() => line.silence())
      return answer
    }
    await eventually(() => expect(isSilent).toBe(true))
    await over.mend()
    await eventually(() => expect(over.report().status).toBe('ready'))
  })
})
