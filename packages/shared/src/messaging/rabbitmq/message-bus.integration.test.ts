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

/** Opens a message bus that adds a unique prefix to the names of its exchanges and queues. */
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
  if (address === url) await bus.ready(AbortSignal.timeout(60_000))
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

  it('the RabbitMQ bus reports that the broker is down while its version is too old, and uses the broker after an upgrade', async () => {
    await using relay = await startRelay(url, 5_672)
    relay.edit = (reply) =>
      edited(reply, /(version\S{5})\d\.\d+/, (text) => text.replace(/\d(?=\.\d+$)/, '2'))
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
    await bus.ready(AbortSignal.timeout(60_000))
    expect(health.report().status).toBe('ready')
  })

  it('the RabbitMQ bus continues to publish and consume after its connection was cut', async () => {
    await using line = await startRelay(url, 5672)
    await using bus = await open(line.url)
    await bus.ready(AbortSignal.timeout(60_000))
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
  })

  it('the RabbitMQ bus reconnects if the connection breaks repeatedly, even during a reconnect', async () => {
    await using line = await startRelay(url, 5672)
    await using bus = await open(line.url)
    await bus.ready(AbortSignal.timeout(60_000))
    await bus.declare(topology)
    // The delays cut the connection in different phases: during the handshake, during the declarations, and while
    // consuming.
    for (let afterMs = 0; afterMs < 60; afterMs += 2) {
      line.cut()
      await delay(100 + afterMs)
    }
    await eventually(() => bus.publish(message))
  })

  it('the RabbitMQ bus keeps its connection if the broker rejects or cancels a consumer that has the callback onRejected', async () => {
    await using bus = await open()
    await bus.declare(topology)
    const connection = await connect(url)
    const admin = await connection.createChannel()
    const queue = `${prefixes.at(-1)}orders`
    const reasons: string[] = []
    const ids: string[] = []
    const consume = (name: string, tag: string) =>
      bus.consume(
        name,
        { prefetch: 1, tag, onRejected: (reason) => void reasons.push(reason) },
        async ({ messageId }) => {
          ids.push(messageId)
          return 'ack'
        },
      )
    consume('no-such-queue', 'missing')
    await eventually(() => expect(reasons).toEqual(['NOT-FOUND']))
    consume('orders', 'deleted')
    await bus.publish({ ...message, messageId: 'first' })
    await eventually(() => expect(ids).toEqual(['first']))
    await admin.deleteQueue(queue)
    await eventually(() =>
      expect(reasons).toEqual(['NOT-FOUND', 'consumer cancelled by the broker']),
    )
    // The queue still does not exist, so the bus has not reconnected. After a reconnect the bus would have declared the
    // queue again.
    expect(await bus.depth('orders')).toBeNull()
    await connection.close()
  })

  it('the RabbitMQ bus reconnects if the broker closes the connection immediately after establishing it', async () => {
    await using line = await startRelay(url, 5672)
    await using bus = await open(line.url)
    await bus.ready(AbortSignal.timeout(60_000))
    await bus.declare(topology)
    const ids: string[] = []
    const consumer = bus.consume('orders', { prefetch: 1, tag: 'test' }, async ({ messageId }) => {
      ids.push(messageId)
      return 'ack'
    })
    await eventually(async () => expect(await bus.depth('orders')).toMatchObject({ consumers: 1 }))
    let isEnded = false
    line.edit = (reply) => {
      if (isEnded || !reply.includes(CONSUME_OK)) return reply
      isEnded = true
      return Buffer.concat([reply, CONNECTION_CLOSE])
    }
    line.cut()
    await eventually(() => expect(isEnded).toBe(true))
    await eventually(() => bus.publish(message))
    await eventually(() => expect(ids).toContain(message.messageId))
    await consumer.cancel()
  })

  it.each([
    ['connection.start', 10, 10],
    ['connection.tune', 10, 30],
    ['connection.open-ok', 10, 41],
    ['channel.open-ok', 20, 11],
    ['confirm.select-ok', 85, 11],
  ])(
    'the RabbitMQ bus shuts down without an error if the connection breaks just after the broker has sent %s',
    async (_, classId, methodId) => {
      await using line = await startRelay(url, 5672)
      const left = Promise.withResolvers<void>()
      line.edit = (reply) => {
        if (!reply.includes(method(classId, methodId))) return reply
        line.edit = null
        bus[Symbol.asyncDispose]().then(left.resolve, left.reject)
        setImmediate(() => line.cut())
        return reply
      }
      const bus = await open(line.url)
      await left.promise
      expect(line.connections).toBe(1)
    },
  )

  it('the RabbitMQ bus declares a queue that a caller declares while a new connection declares the others', async () => {
    await using relay = await startRelay(url, 5_672)
    await using bus = await open(relay.url)
    const others = {
      // The connection reads this member when it declares the topology.
      get exchanges() {
        void bus.declare(topology)
        return []
      },
      queues: [],
    }
    await bus.declare(others)
    await bus.ready(AbortSignal.timeout(60_000))
    await bus.publish(message)
    expect(await bus.depth('orders')).toMatchObject({ ready: 1 })
  })

  it('the RabbitMQ bus reconnects immediately even if the broker has not noticed that the connection ended', async () => {
    await using line = await startRelay(url, 5672)
    await using bus = await open(line.url)
    await bus.ready(AbortSignal.timeout(60_000))
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
  })

  it('if the RabbitMQ connection is cut, all requests in flight for the depth of a queue settle', async () => {
    await using line = await startRelay(url, 5672)
    await using bus = await open(line.url)
    await bus.ready(AbortSignal.timeout(60_000))
    await bus.declare(topology)
    const asked = Array.from({ length: 100 }, () => bus.depth('orders'))
    await asked[0]
    line.cut()
    await expect(Promise.all(asked)).resolves.toHaveLength(100)
  })

  it('cancelling a RabbitMQ consumer completes even if the connection is unresponsive', async () => {
    await using line = await startRelay(url, 5672)
    await using bus = await open(line.url)
    await bus.ready(AbortSignal.timeout(60_000))
    await bus.declare(topology)
    const consumer = bus.consume('orders', { prefetch: 1, tag: 'test' }, async () => 'ack')
    await eventually(async () => expect(await bus.depth('orders')).toMatchObject({ consumers: 1 }))
    line.stall()
    await consumer.cancel()
  })

  it('a publish to RabbitMQ fails if no publisher confirm arrives before the deadline', async () => {
    await using line = await startRelay(url, 5672)
    await using bus = await open(line.url, 300)
    await bus.ready(AbortSignal.timeout(60_000))
    await bus.declare(topology)
    line.stall()
    await expect(bus.publish(message)).rejects.toMatchObject({ code: 'broker_unavailable' })
    line.cut()
  })

  it('publishing to RabbitMQ fails immediately while the broker is unavailable, and the bus reports the broker as down', async () => {
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

// The methods of AMQP 0-9-1 frames, each encoded as a class id and a method id. `CONNECTION_CLOSE` is a complete frame.
const method = (classId: number, methodId: number) => Buffer.from([0, classId, 0, methodId])
const CONSUME_OK = method(60, 21)
const CONNECTION_CLOSE = (() => {
  const text = 'CONNECTION_FORCED - shutdown'
  const [code, cause] = [Buffer.from([1, 64]), Buffer.alloc(4)] // reply code 320; class 0 and method 0, because no method caused the close
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

  /** Opens a bus over an existing queue, and declares the topology before or after its connection is established. */
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
    if (isConnectedFirst) await bus.ready(AbortSignal.timeout(60_000))
    await bus.declare(declared)
    return {
      bus,
      line,
      prefix,
      report: () => health.report(),
      errors: () =>
        lines.map((text) => JSON.parse(text) as Record<string, unknown>).filter(isError),
      deleteQueue: () => channel.deleteQueue(`${prefix}orders`),
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
    ['after the connection was established', true],
    ['before the connection is established', false],
  ])(
    'the message bus reports RabbitMQ as down, with the incompatible argument, if an incompatible queue is declared %s',
    async (_, isConnectedFirst) => {
      await using over = await openOver(ours, isConnectedFirst)
      await eventually(() =>
        expect(over.report().dependencies['rabbitmq']).toMatchObject({
          status: 'down',
          reason: `queue ${over.prefix}orders exists with another x-message-ttl (1000) than it needs (5000)`,
        }),
      )
    },
  )

  it('the RabbitMQ bus logs an incompatible queue once, with the remedy, although it retries the declaration', async () => {
    await using over = await openOver(ours, false)
    await eventually(() => expect(over.line.connections).toBeGreaterThan(3))
    expect(over.errors()).toMatchObject([
      {
        kind: 'queue',
        name: `${over.prefix}orders`,
        setting: 'x-message-ttl',
        wanted: '5000',
        found: '1000',
        remedy: expect.stringContaining('delete this queue'),
      },
    ])
  })

  it('the RabbitMQ bus declares and uses a queue as soon as the incompatible queue of the same name has been deleted', async () => {
    await using over = await openOver(ours, true)
    await eventually(() => expect(over.errors()).toHaveLength(1))
    await over.deleteQueue()
    await eventually(() => expect(over.report().status).toBe('ready'))
    const message = { messageId: '1', type: 'order', body: {}, mandatory: true }
    await over.bus.publish({ exchange: 'work', routingKey: 'order', ...message })
  })

  it('the RabbitMQ bus reconnects if the broker stops responding while the connection is being closed', async () => {
    await using over = await openOver(ours, true)
    const { line } = over
    let isSilent = false
    line.edit = (reply) => {
      if (isSilent || !reply.includes('PRECONDITION_FAILED')) return reply
      isSilent = true
      // The relay stops forwarding after the broker has rejected the declaration. When the client closes the
      // connection, the broker therefore does not respond.
      queueMicrotask(() => line.silence())
      return reply
    }
    await eventually(() => expect(isSilent).toBe(true))
    await over.deleteQueue()
    await eventually(() => expect(over.report().status).toBe('ready'))
  })
})
