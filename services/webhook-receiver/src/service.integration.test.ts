import { PROVIDER_EXCHANGE } from '@integration-host/shared/contracts/provider-event'
import { connectRabbitMq } from '@integration-host/shared/messaging/rabbitmq/message-bus'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { type Relay, startRelay } from '@integration-host/shared/test-support/relay'
import { type Channel, connect } from 'amqplib'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { CHANGE_ID, legacyChange, legacyNotification } from '../test-support/notifications.ts'
import { type ReceiverFixture, startReceiver } from '../test-support/receiver-fixture.ts'

const url = process.env['TEST_AMQP_URL'] ?? ''
let cleanup: AsyncDisposableStack
let broker: Relay
let channel: Channel
let queue: string
let receiver: ReceiverFixture

beforeEach(async () => {
  cleanup = new AsyncDisposableStack()
  const prefix = `test-${crypto.randomUUID().slice(0, 8)}.`
  const exchange = prefix + PROVIDER_EXCHANGE
  const connection = await connect(url)
  cleanup.defer(() => connection.close())
  channel = await connection.createChannel()
  await channel.assertExchange(exchange, 'topic', { durable: true })
  cleanup.defer(async () => void (await channel.deleteExchange(exchange)))
  ;({ queue } = await channel.assertQueue('', { exclusive: true }))
  await channel.bindQueue(queue, exchange, 'intuit.Invoice.*')
  broker = cleanup.use(await startRelay(url, 5672))
  const logger = createLogger('webhook-receiver', 'silent')
  const bus = connectRabbitMq(new Secret(broker.url), {
    name: 'webhook-receiver',
    dependency: createHealth(logger).dependency('rabbitmq'),
    logger,
    prefix,
    confirmDeadlineMs: 500,
  })
  receiver = cleanup.use(await startReceiver({ bus, deadlineMs: 1_000 }))
  await bus.ready()
})
afterEach(() => cleanup.disposeAsync())

/** Removes the messages of the queue, and returns their ids. */
async function takeIds(): Promise<readonly string[]> {
  const ids: string[] = []
  for (;;) {
    const message = await channel.get(queue, { noAck: true })
    if (message === false) return ids
    ids.push(String(message.properties.messageId))
  }
}

describe('a receiver with RabbitMQ', () => {
  it('the receiver responds 200 only after the broker has confirmed every event of the delivery', async () => {
    const changes = [...Array(200).keys()].map((id) => legacyChange({ id: String(id) }))
    expect((await receiver.send(legacyNotification(changes))).status).toBe(200)
    const ids = await takeIds()
    expect(ids).toHaveLength(200)
    expect(ids[0]).toBe(CHANGE_ID.replace('129', '0'))
  })

  it('the receiver publishes persistent JSON messages that name the change in their properties', async () => {
    await receiver.send(legacyNotification())
    const message = await channel.get(queue, { noAck: true })
    expect(message).toMatchObject({
      fields: { routingKey: 'intuit.Invoice.update' },
      properties: {
        messageId: CHANGE_ID,
        type: 'intuit.Invoice.update',
        contentType: 'application/json',
        deliveryMode: 2,
      },
    })
  })

  it('the receiver responds 200 to a change for which no queue is bound', async () => {
    const response = await receiver.send(legacyNotification([legacyChange({ name: 'Vendor' })]))
    expect(response.status).toBe(200)
    expect(await takeIds()).toEqual([])
  })

  it('the receiver responds 503 without a delay while the broker is unavailable, and 200 when the broker is available again', async () => {
    broker.away()
    await eventually(async () => {
      const response = await receiver.send(legacyNotification())
      expect(response.status).toBe(503)
      expect(await response.json()).toMatchObject({ code: 'broker_unavailable' })
      expect(response.headers.get('Retry-After')).toBe('10')
    })
    await takeIds()
    broker.restore()
    await eventually(async () =>
      expect((await receiver.send(legacyNotification())).status).toBe(200),
    )
    expect(await takeIds()).toEqual([CHANGE_ID])
  })

  it('the receiver responds 503 at the deadline if the broker sends no confirm, and then frees the memory of the body', async () => {
    broker.stall()
    const response = await receiver.send(legacyNotification())
    expect(response.status).toBe(503)
    expect(
      await receiver.metric('webhook_deliveries_total', { outcome: 'broker_unavailable' }),
    ).toBe(1)
    expect(await receiver.metric('webhook_deliveries_total', { outcome: 'accepted' })).toBe(0)
    await eventually(async () => expect(await receiver.metric('webhook_body_bytes')).toBe(0))
    broker.restore()
    await eventually(async () =>
      expect((await receiver.send(legacyNotification())).status).toBe(200),
    )
    expect(await takeIds()).toContain(CHANGE_ID)
  })
})
