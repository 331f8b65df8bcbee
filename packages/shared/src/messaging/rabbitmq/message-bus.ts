/**
 * The message bus over RabbitMQ (3.10 to 4.x) with amqplib.
 *
 * I1  One way back: whatever breaks (connection, channel, a cancelled consumer) ends the connection, and
 *     `build` makes all of it anew on the next one: publishing channel, topology, consumers.
 * I2  A publish settles: by the broker's confirm, by the loss of its channel, or by our own deadline.
 * I3  A delivery is settled on the channel that brought it or not at all; the broker redelivers the rest.
 */
import type { Channel, ChannelModel, ConfirmChannel, ConsumeMessage } from 'amqplib'
import { coalesceWrites } from '../../batching/coalesce-writes.ts'
import { IntegrationError } from '../../errors.ts'
import { throwOnProblem, checkVersion } from '../../observability/checks/check-result.ts'
import { type Dependency, reasonOf } from '../../observability/health.ts'
import type { Logger } from '../../observability/logger.ts'
import type {
  ConsumeOptions,
  Consumer,
  Delivery,
  MessageBus,
  QueueDepth,
  QueueSpec,
  Settlement,
  Topology,
} from '../message-bus.ts'
import type { Secret } from '../../secrets/secret.ts'
import {
  CLOSE_PATIENCE_MS,
  closeConnection,
  keepConnected,
  streamOf,
  within,
} from './connection.ts'
import { deliveryOf, publishOptions } from './messages.ts'
import { createSettlements, type Settlements } from './settlements.ts'
import { queueArguments } from './queue-arguments.ts'
import { brokerReason, inequivalenceOf, versionOf } from './broker-errors.ts'

export interface RabbitMqOptions {
  /** The connection's name in the console. */
  readonly name: string
  readonly dependency: Dependency
  readonly logger: Logger
  /** Prepended to every exchange and queue name (`AMQP_PREFIX`), so that installations can share a vhost. */
  readonly prefix?: string
  /** Milliseconds until a publish or question without answer fails; amqplib itself waits for ever. */
  readonly confirmDeadlineMs?: number
}

interface Publishing {
  readonly messageId: string
  readonly startedAt: number
  readonly settle: (error: IntegrationError | null) => void
}

interface RunningConsumer {
  readonly queue: string
  readonly options: ConsumeOptions
  readonly handle: (delivery: Delivery) => Promise<Settlement>
  readonly inHand: Set<Promise<void>>
  channel: Channel | null
  isCancelled: boolean
}

/** Connects in the background; `ready()` tells when the broker is there. */
export function connectRabbitMq(url: Secret, options: RabbitMqOptions): MessageBus {
  const { dependency, logger, prefix = '', confirmDeadlineMs = 5_000 } = options
  const topologies: Topology[] = []
  const consumers = new Set<RunningConsumer>()
  const publishings = new Set<Publishing>()
  const waiting = new Set<() => void>()
  let model: ChannelModel | null = null
  let publisher: ConfirmChannel | null = null
  let isClosing = false
  let isBlocked = false
  let toldInequivalence: string | null = null

  const named = (name: string): string => prefix + name
  // A queue of this replica alone needs a name that no other replica has.
  let ownSuffix = ''
  const exclusiveQueues = new Set<string>()
  const queueName = (name: string): string =>
    exclusiveQueues.has(name) ? `${named(name)}.${ownSuffix}` : named(name)

  // The queue goes with the connection, so nothing of it could ever be delivered again.
  const isUnacknowledged = (queue: string): boolean => exclusiveQueues.has(queue)

  // I1: whoever finds the connection broken ends it; the next one follows by itself.
  const restart = (current: ChannelModel, reason: string): void => {
    if (current !== model || isClosing) return
    logger.warn({ reason }, 'restarting the broker connection')
    void closeConnection(current)
  }

  async function build(current: ChannelModel): Promise<void> {
    throwOnProblem([checkVersion('rabbitmq', versionOf(current))])
    coalesceWrites(streamOf(current))
    // The broker may not have seen the end of the connection before, and keep its queues.
    ownSuffix = crypto.randomUUID().slice(0, 8)
    isBlocked = false
    current.on('blocked', () => {
      isBlocked = true
      dependency.down(BLOCKED)
    })
    current.on('unblocked', () => {
      isBlocked = false
      if (current === model) dependency.up()
    })
    const channel = await current.createConfirmChannel()
    channel.on('return', (message) => {
      for (const publishing of publishings) {
        if (publishing.messageId !== message.properties.messageId) continue
        publishing.settle(new IntegrationError('broker_unavailable', 'no queue takes the message'))
      }
    })
    channel.on('error', () => {})
    try {
      for (const topology of topologies) await assertTopology(channel, topology)
    } catch (error) {
      tellInequivalence(error)
      throw error
    }
    toldInequivalence = null
    model = current
    publisher = channel
    channel.on('close', () => restart(current, 'publishing channel closed'))
    // As they are now: one that is added from here on starts by itself, and must not be started twice.
    const known = [...consumers]
    for (const consumer of known) await startConsumer(current, consumer)
  }

  async function assertTopology(channel: Channel, topology: Topology): Promise<void> {
    for (const { name, type } of topology.exchanges) {
      await channel.assertExchange(named(name), type, { durable: true })
    }
    for (const queue of topology.queues) {
      if (queue.exclusive) exclusiveQueues.add(queue.name)
      await channel.assertQueue(queueName(queue.name), queueOptions(queue))
      for (const { exchange, routingKey } of queue.bindings) {
        await channel.bindQueue(queueName(queue.name), named(exchange), routingKey)
      }
    }
  }

  const queueOptions = (queue: QueueSpec) =>
    queue.exclusive
      ? { durable: false, exclusive: true, autoDelete: true }
      : { durable: true, arguments: queueArguments(queue, prefix) }

  /** One clear line for each thing that has to be mended, however often the broker is asked. */
  function tellInequivalence(error: unknown): void {
    const differs = inequivalenceOf(error)
    const text = JSON.stringify(differs)
    if (differs === null || text === toldInequivalence) return
    toldInequivalence = text
    logger.error(
      {
        ...differs,
        remediation: `delete this ${differs.kind}: it is declared again (docs/rabbitmq.md)`,
      },
      'exchange or queue exists with incompatible arguments; messaging is disabled until it is deleted',
    )
  }

  async function startConsumer(current: ChannelModel, consumer: RunningConsumer): Promise<void> {
    const channel = await current.createChannel()
    channel.on('error', () => {})
    channel.on('close', () => {
      const wasCurrent = consumer.channel === channel
      if (wasCurrent) consumer.channel = null
      if (wasCurrent && !consumer.isCancelled) restart(current, 'consuming channel closed')
    })
    await channel.prefetch(consumer.options.prefetch)
    if (consumer.isCancelled || isClosing) return void (await closeChannel(channel))
    consumer.channel = channel
    const settlements = createSettlements(channel)
    const onMessage = (message: ConsumeMessage | null): void => {
      if (message === null) return restart(current, 'consumer cancelled by the broker')
      const settling = settle(settlements, consumer, message).finally(() =>
        consumer.inHand.delete(settling),
      )
      consumer.inHand.add(settling)
    }
    await channel.consume(queueName(consumer.queue), onMessage, {
      consumerTag: consumer.options.tag,
      noAck: isUnacknowledged(consumer.queue),
    })
  }

  async function settle(
    settlements: Settlements,
    consumer: RunningConsumer,
    message: ConsumeMessage,
  ): Promise<void> {
    const isOpen = !isUnacknowledged(consumer.queue)
    if (isOpen) settlements.open(message)
    let settlement: Settlement
    try {
      settlement = await consumer.handle(deliveryOf(message))
    } catch (error) {
      logger.error({ err: error, queue: consumer.queue }, 'delivery handler failed')
      settlement = 'reject'
    }
    if (isOpen) await settlements.settle(message, settlement)
  }

  const lost = (error: unknown): void => {
    if (!isClosing) dependency.down(brokerReason(error))
    model = null
    publisher = null
    for (const { settle: fail } of publishings) fail(unavailable('the connection was lost'))
  }
  const connection = keepConnected(url, {
    name: options.name,
    build,
    stands() {
      if (isBlocked) dependency.down(BLOCKED)
      else dependency.up()
      for (const resolve of waiting) resolve()
      waiting.clear()
    },
    lost,
  })

  // I2, one timer for all: one for each publish costs more than the publish.
  const overdue = setInterval(() => {
    const startedBefore = performance.now() - confirmDeadlineMs
    for (const publishing of publishings) {
      if (publishing.startedAt > startedBefore) break // they stand in the order they came
      publishing.settle(unavailable('no confirm in time'))
    }
  }, confirmDeadlineMs / 10)

  const bus: MessageBus = {
    async declare(topology) {
      topologies.push(topology)
      for (const { name, exclusive } of topology.queues) if (exclusive) exclusiveQueues.add(name)
      const [current, channel] = [model, publisher]
      if (current === null || channel === null) return
      try {
        await assertTopology(channel, topology)
      } catch (error) {
        // I1: declared again with the next connection, whose failure says what is wrong.
        restart(current, brokerReason(error))
      }
    },

    publish(message) {
      const channel = publisher
      if (channel === null) return Promise.reject(unavailable('not connected'))
      return new Promise<void>((resolve, reject) => {
        const publishing: Publishing = {
          messageId: message.messageId,
          startedAt: performance.now(),
          settle(error) {
            if (!publishings.delete(publishing)) return
            if (error === null) resolve()
            else reject(error)
          },
        }
        publishings.add(publishing)
        try {
          channel.publish(
            named(message.exchange),
            message.routingKey,
            Buffer.from(JSON.stringify(message.body)),
            publishOptions(message),
            (error: unknown) =>
              publishing.settle(error ? unavailable('refused by the broker') : null),
          )
        } catch {
          publishing.settle(unavailable('the channel is closed'))
        }
      })
    },

    consume(queue, consumeOptions, handle) {
      const consumer: RunningConsumer = {
        queue,
        options: consumeOptions,
        handle,
        inHand: new Set(),
        channel: null,
        isCancelled: false,
      }
      consumers.add(consumer)
      const current = model
      if (current !== null)
        startConsumer(current, consumer).catch((error: unknown) =>
          restart(current, reasonOf(error)),
        )
      return {
        async cancel() {
          consumer.isCancelled = true
          consumers.delete(consumer)
          const { channel } = consumer
          if (channel !== null) await within(CLOSE_PATIENCE_MS, channel.cancel(consumeOptions.tag))
          while (consumer.inHand.size > 0) await Promise.allSettled(consumer.inHand)
          if (channel !== null) await closeChannel(channel)
        },
      } satisfies Consumer
    },

    async depth(queue): Promise<QueueDepth | null> {
      const current = model
      if (current === null) return null
      const ask = async (): Promise<QueueDepth> => {
        // A channel of its own: asking for an unknown queue closes the channel.
        const channel = await current.createChannel()
        channel.on('error', () => {})
        const { messageCount, consumerCount } = await channel.checkQueue(queueName(queue))
        await closeChannel(channel)
        return { ready: messageCount, consumers: consumerCount }
      }
      return within(confirmDeadlineMs, ask())
    },

    ready(signal) {
      if (publisher !== null) return Promise.resolve()
      signal?.throwIfAborted()
      return new Promise<void>((resolve, reject) => {
        const done = (): void => {
          signal?.removeEventListener('abort', aborted)
          resolve()
        }
        const aborted = (): void => {
          waiting.delete(done)
          reject(signal?.reason as Error)
        }
        waiting.add(done)
        signal?.addEventListener('abort', aborted, { once: true })
      })
    },

    async [Symbol.asyncDispose]() {
      isClosing = true
      const handled = () =>
        Promise.all([...consumers].map(({ inHand }) => Promise.allSettled(inHand)))
      await handled()
      await connection[Symbol.asyncDispose]()
      // What was delivered until it had ended.
      await handled()
      clearInterval(overdue)
      lost(new Error('closed'))
    },
  }
  return bus
}

const BLOCKED = 'blocked by a resource alarm'

// amqplib's own promise never settles when the connection is lost before the broker's close-ok.
const closeChannel = (channel: Channel): Promise<unknown> =>
  within(CLOSE_PATIENCE_MS, channel.close())

const unavailable = (why: string): IntegrationError =>
  new IntegrationError('broker_unavailable', `the broker did not take the message: ${why}`)
