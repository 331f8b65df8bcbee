/**
 * The message bus over RabbitMQ (3.10 to 4.x) with amqplib.
 *
 * I1  There is only one way of recovery: any failure of the connection, a channel or a consumer ends the connection. On
 *     the next connection, `setUp` creates the publishing channel, the topology and the consumers again.
 * I2  Every publish settles: when the broker confirms it, when its channel is lost, or at a deadline of this bus.
 * I3  A delivery is settled only on the channel on which it arrived. If the channel is closed first, the broker
 *     redelivers the message.
 */
import type { Channel, ChannelModel, ConfirmChannel, ConsumeMessage } from 'amqplib'
import { afterWritesOfThisTurn, coalesceWrites } from '../../batching.ts'
import { IntegrationError } from '../../errors.ts'
import { throwOnProblem, checkVersion } from '../../observability/checks.ts'
import { type Dependency, reasonOf } from '../../observability/health.ts'
import type { Logger } from '../../observability/logger.ts'
import {
  type ConsumeOptions,
  type Consumer,
  contentOf,
  type Delivery,
  type MessageBus,
  type QueueDepth,
  type QueueSpec,
  type Settlement,
  type Topology,
} from '../message-bus.ts'
import { LinkedList, createPendingWork, type PendingWork } from '../../process/pending-work.ts'
import type { Secret } from '../../secrets/secret.ts'
import type { TlsFiles } from '../../tls/tls-files.ts'
import { CLOSE_TIMEOUT_MS, closeConnection, keepConnected, streamOf, within } from './connection.ts'
import { deliveryOf, publishOptions, queueArguments } from './messages.ts'
import { createSettlements, type Settlements } from './settlements.ts'
import { brokerReason, versionOf, inequivalenceOf } from './broker-errors.ts'

export interface RabbitMqOptions {
  /** The connection's name on RabbitMQ's management page. */
  readonly name: string
  readonly dependency: Dependency
  readonly logger: Logger
  /** The files of `AMQP_CA_FILE`, `AMQP_CERT_FILE` and `AMQP_KEY_FILE`. */
  readonly tls?: TlsFiles | undefined
  /** Prepended to every exchange and queue name (`AMQP_PREFIX`), so that installations can share a vhost. */
  readonly prefix?: string
  /** The milliseconds after which a publish or request without a reply fails; amqplib itself waits forever. */
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
  readonly inFlight: PendingWork
  channel: Channel | null
  isCancelled: boolean
}

/**
 * Connects in the background; `ready()` resolves once the broker is available. `url` has one of the forms of `AMQP_URL`
 * (see address.ts).
 */
export function connectRabbitMq(url: Secret, options: RabbitMqOptions): MessageBus {
  const { dependency, logger, prefix = '', confirmDeadlineMs = 5_000 } = options
  let topologies: readonly Topology[] = []
  const consumers = new Set<RunningConsumer>()
  /** Publishes that the broker has not confirmed yet, oldest first. */
  const publishings = new LinkedList<Publishing>()
  const waiting = new Set<() => void>()
  let model: ChannelModel | null = null
  let publisher: ConfirmChannel | null = null
  let isClosing = false
  let isBlocked = false
  /** The incompatible declaration that was logged last. Each new connection repeats it, but it is logged once. */
  let loggedDeclaration: string | null = null

  const named = (name: string): string => prefix + name
  // An exclusive queue needs a name that no other replica of the service uses.
  let ownSuffix = ''
  const exclusiveQueues = new Set<string>()
  const queueName = (name: string): string =>
    exclusiveQueues.has(name) ? `${named(name)}.${ownSuffix}` : named(name)

  // The broker deletes an exclusive queue at the end of its connection and never redelivers its messages. Therefore its
  // messages need no ack.
  const isUnacknowledged = (queue: string): boolean => exclusiveQueues.has(queue)

  // Closes the current connection. `keepConnected` then opens the next one.
  const restart = (current: ChannelModel, reason: string): void => {
    if (current !== model || isClosing) return
    logger.warn(
      { reason },
      'broker connection was closed after a failure; a new connection is opened',
    )
    void closeConnection(current)
  }

  async function setUp(current: ChannelModel): Promise<void> {
    throwOnProblem([checkVersion('rabbitmq', versionOf(current))])
    // amqplib itself collects the frames of a turn of the event loop, and then writes all of them in one callback.
    coalesceWrites(streamOf(current), queueMicrotask)
    // Each connection has a new suffix for the names of its exclusive queues. The broker may not have noticed the end
    // of the previous connection, and the queues with the previous suffix then still exist.
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
      for (const { value: publishing } of publishings) {
        if (publishing.messageId !== message.properties.messageId) continue
        publishing.settle(
          new IntegrationError('broker_unavailable', 'no queue is bound for the message'),
        )
      }
    })
    channel.on('error', () => {})
    try {
      // A topology that is declared meanwhile is only stored, because the channel is not used before the end of the loop.
      const asserted = new Set<Topology>()
      for (;;) {
        const next = topologies.find((topology) => !asserted.has(topology))
        if (next === undefined) break
        asserted.add(next)
        await assertTopology(channel, next)
      }
    } catch (error) {
      logInequivalence(error)
      throw error
    }
    loggedDeclaration = null
    model = current
    publisher = channel
    channel.on('close', () => restart(current, 'publishing channel closed'))
    // The loop iterates over a copy of the consumers. A consumer that is added during the loop is started by `consume`,
    // and must not be started a second time here.
    const known = [...consumers]
    for (const consumer of known)
      await startConsumer(current, consumer).catch((error: unknown) => {
        if (!consumer.isCancelled) throw error
      })
  }

  function logInequivalence(error: unknown): void {
    const differs = inequivalenceOf(error)
    const text = JSON.stringify(differs)
    if (differs === null || text === loggedDeclaration) return
    loggedDeclaration = text
    logger.error(
      {
        ...differs,
        remedy: `delete this ${differs.kind}: it is declared again (docs/rabbitmq.md)`,
      },
      'exchange or queue exists with incompatible arguments; messaging is disabled until that exchange or queue is deleted',
    )
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

  async function startConsumer(current: ChannelModel, consumer: RunningConsumer): Promise<void> {
    const channel = await current.createChannel()
    channel.on('error', (error: unknown) => endConsumer(consumer, brokerReason(error)))
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
      // The broker redelivers the message when the connection ends, unless the queue is exclusive.
      if (isClosing) return
      if (message === null) {
        const reason = 'consumer cancelled by the broker'
        return endConsumer(consumer, reason) ? void closeChannel(channel) : restart(current, reason)
      }
      void consumer.inFlight.add(settle(settlements, consumer, message))
    }
    await channel.consume(queueName(consumer.queue), onMessage, {
      consumerTag: consumer.options.tag,
      noAck: isUnacknowledged(consumer.queue),
    })
  }

  /**
   * Ends a consumer that has `onRejected`, because the service can work without such a consumer. Returns false for any
   * other consumer.
   */
  function endConsumer(consumer: RunningConsumer, reason: string): boolean {
    const { onRejected } = consumer.options
    if (onRejected === undefined || consumer.isCancelled) return false
    consumer.isCancelled = true
    consumers.delete(consumer)
    onRejected(reason)
    return true
  }

  async function settle(
    settlements: Settlements,
    consumer: RunningConsumer,
    message: ConsumeMessage,
  ): Promise<void> {
    const delivery = isUnacknowledged(consumer.queue) ? null : settlements.open(message)
    let settlement: Settlement
    try {
      settlement = await consumer.handle(deliveryOf(message, prefix))
    } catch (error) {
      logger.error({ err: error, queue: consumer.queue }, 'message handler failed')
      settlement = 'reject'
    }
    if (delivery !== null) await settlements.settle(delivery, settlement)
  }

  const lost = (reason: string | null): void => {
    if (reason !== null && !isClosing) dependency.down(reason)
    model = null
    publisher = null
    for (const { value } of publishings) value.settle(unavailable('the connection was lost'))
  }
  const connection = keepConnected(url, {
    name: options.name,
    tls: options.tls,
    setUp,
    established() {
      if (isBlocked) dependency.down(BLOCKED)
      else dependency.up()
      for (const resolve of waiting) resolve()
      waiting.clear()
    },
    lost,
  })

  // One timer ends all overdue publishes (I2). A timer for each publish would cost more than the publish itself.
  const overdue = setInterval(() => {
    const startedBefore = performance.now() - confirmDeadlineMs
    for (const { value: publishing } of publishings) {
      if (publishing.startedAt > startedBefore) break
      publishing.settle(unavailable('no confirm in time'))
    }
  }, confirmDeadlineMs / 10)

  const bus: MessageBus = {
    isDurable: true,

    async declare(topology) {
      const declared = new Set(topology.queues.map(({ name }) => name))
      const without = (known: Topology): Topology =>
        known.queues.some(({ name }) => declared.has(name))
          ? { ...known, queues: known.queues.filter(({ name }) => !declared.has(name)) }
          : known
      topologies = [...topologies.map(without), topology]
      for (const { name, exclusive } of topology.queues) if (exclusive) exclusiveQueues.add(name)
      const [current, channel] = [model, publisher]
      if (current === null || channel === null) return
      try {
        await assertTopology(channel, topology)
      } catch (error) {
        // The next connection declares the topology again, and logs the reason if that declaration fails too (I1).
        restart(current, brokerReason(error))
      }
    },

    async unbind(queue, bindings) {
      const [current, channel] = [model, publisher]
      if (current === null || channel === null) throw unavailable('not connected')
      const removed = Promise.all(
        bindings.map(({ exchange, routingKey }) =>
          channel.unbindQueue(queueName(queue), named(exchange), routingKey),
        ),
      )
      if ((await within(confirmDeadlineMs, removed)) === null)
        throw unavailable('a binding could not be removed')
    },

    written: () => new Promise<void>(afterWritesOfThisTurn),

    publish(message) {
      const channel = publisher
      if (channel === null) return Promise.reject(unavailable('not connected'))
      return new Promise<void>((resolve, reject) => {
        const publishing: Publishing = {
          messageId: message.messageId,
          startedAt: performance.now(),
          settle(error) {
            if (!link.remove()) return
            if (error === null) resolve()
            else reject(error)
          },
        }
        const link = publishings.add(publishing)
        try {
          channel.publish(
            named(message.exchange),
            message.routingKey,
            contentOf(message.body),
            publishOptions(message),
            (error: unknown) =>
              publishing.settle(error ? unavailable('rejected by the broker') : null),
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
        inFlight: createPendingWork(),
        channel: null,
        isCancelled: false,
      }
      consumers.add(consumer)
      const current = model
      if (current !== null)
        startConsumer(current, consumer).catch((error: unknown) => {
          if (!consumer.isCancelled) restart(current, reasonOf(error))
        })
      return {
        async cancel() {
          consumer.isCancelled = true
          consumers.delete(consumer)
          const { channel } = consumer
          if (channel !== null) await within(CLOSE_TIMEOUT_MS, channel.cancel(consumeOptions.tag))
          await consumer.inFlight.ended()
          if (channel !== null) await closeChannel(channel)
        },
      } satisfies Consumer
    },

    async depth(queue): Promise<QueueDepth | null> {
      const current = model
      if (current === null) return null
      const query = async (): Promise<QueueDepth> => {
        // The query has its own channel, because the broker closes the channel if the queue does not exist.
        const channel = await current.createChannel()
        channel.on('error', () => {})
        const { messageCount, consumerCount } = await channel.checkQueue(queueName(queue))
        await closeChannel(channel)
        return { ready: messageCount, consumers: consumerCount }
      }
      return within(confirmDeadlineMs, query())
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
      await Promise.all([...consumers].map(({ inFlight }) => inFlight.ended()))
      await connection[Symbol.asyncDispose]()
      clearInterval(overdue)
      lost(null)
    },
  }
  return bus
}

const BLOCKED = 'blocked by a resource alarm'

// amqplib's promise never settles if the connection is lost before the broker's close-ok.
const closeChannel = (channel: Channel): Promise<unknown> =>
  within(CLOSE_TIMEOUT_MS, channel.close())

const unavailable = (why: string): IntegrationError =>
  new IntegrationError('broker_unavailable', `the broker did not accept the message: ${why}`)
