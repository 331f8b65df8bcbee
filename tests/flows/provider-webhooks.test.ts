/**
 * Tests webhooks from the sandbox through the receiver to RabbitMQ, with the faults that Intuit's documentation warns
 * of.
 */
import { PROVIDER_EXCHANGE } from '@integration-host/shared/contracts/provider-event'
import { eventually, until } from '@integration-host/shared/test-support/eventually'
import { type Channel, type ChannelModel, connect } from 'amqplib'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { backend, startSystem, type System } from '../support/system.ts'

const REALM = '9341453908059889'
const CHANGED_AT = '2026-11-23T17:05:09Z'

interface Counts {
  readonly changes: number
  readonly dropped: number
  readonly delivered: number
  readonly waiting: number
  readonly attempts: number
  readonly statuses: Readonly<Record<string, number>>
}

let system: System
let broker: ChannelModel
let channel: Channel
let queue: string
beforeAll(async () => {
  system = await startSystem([])
  system.start('webhook-receiver')
  system.start('sandbox-provider', {
    WEBHOOK_URL: `${system.url('webhook-receiver')}/webhooks/intuit`,
    WEBHOOK_VERIFIER_TOKENS: system.verifierToken,
  })
  await system.ready('webhook-receiver', 'sandbox-provider')
  broker = await connect(backend('TEST_AMQP_URL'))
  channel = await broker.createChannel()
  ;({ queue } = await channel.assertQueue('', { exclusive: true }))
  await channel.bindQueue(queue, system.amqpPrefix + PROVIDER_EXCHANGE, 'intuit.#')
})
afterAll(async () => {
  await broker.close()
  await system[Symbol.asyncDispose]()
})
beforeEach(async () => {
  await sandbox('POST', 'reset')
  await channel.purgeQueue(queue)
})

async function sandbox(method: string, path: string, body?: object): Promise<unknown> {
  const response = await fetch(`${system.url('sandbox-provider')}/sandbox/${path}`, {
    method,
    headers: { 'Content-Type': 'application/json' },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`)
  return response.status === 204 ? null : response.json()
}
const counts = async (): Promise<Counts> =>
  ((await sandbox('GET', 'webhooks')) as { counts: Counts }).counts
/** Reports changes of the objects with the ids from 1 to `count`. */
const change = (count: number): Promise<unknown> =>
  sandbox('POST', 'webhooks', { realm: REALM, id: '1', count, changedAt: CHANGED_AT })

/** Waits until every delivery of the sandbox has been acknowledged. Failed deliveries are repeated immediately. */
const allAcknowledged = (deliveries: number): Promise<void> =>
  until(async () => {
    await sandbox('POST', 'webhooks/retry')
    const { delivered, waiting } = await counts()
    return waiting === 0 && delivered === deliveries
  })

/** Removes the messages of the queue, and returns how many there were for each message id. */
async function takeMessages(): Promise<ReadonlyMap<string, number>> {
  const byId = new Map<string, number>()
  for (;;) {
    const message = await channel.get(queue, { noAck: true })
    if (message === false) return byId
    const id = String(message.properties.messageId)
    byId.set(id, (byId.get(id) ?? 0) + 1)
  }
}
const idsOf = (count: number): readonly string[] =>
  Array.from(
    { length: count },
    (_, index) => `Invoice-${index + 1}@${CHANGED_AT}/${REALM}`,
  ).toSorted()

describe('the webhooks of the provider', () => {
  it.each(['legacy', 'cloudevents'] as const)(
    'webhooks in the %s format become one event for each change',
    async (format) => {
      await sandbox('PUT', 'webhooks', { format })
      await change(150)
      await allAcknowledged(2)
      const messages = await takeMessages()
      expect([...messages.keys()].toSorted()).toEqual(idsOf(150))
      expect(new Set(messages.values())).toEqual(new Set([1]))
    },
  )

  it('all events of a change have the same id although its webhook arrives five times, sometimes with a wrong signature', async () => {
    await sandbox('PUT', 'webhooks', { copies: 5, shuffled: true, wrongSignaturePercent: 20 })
    await change(60)
    await allAcknowledged(300)
    const messages = await takeMessages()
    expect([...messages.keys()].toSorted()).toEqual(idsOf(60))
    expect(new Set(messages.values())).toEqual(new Set([5]))
    const { statuses } = await counts()
    expect(statuses['200']).toBe(300)
    expect(statuses['403']).toBeGreaterThan(0)
  })

  it('shuffled webhooks that are delivered five times are all published although the receiver is killed five times', async () => {
    await sandbox('PUT', 'webhooks', { copies: 5, shuffled: true })
    await change(400)
    for (let kill = 0; kill < 5; kill += 1) {
      const { attempts } = await counts()
      await until(async () => {
        await sandbox('POST', 'webhooks/retry')
        const now = await counts()
        return now.attempts > attempts + 50 || now.waiting === 0
      })
      await system.service('webhook-receiver').stop('SIGKILL')
      system.start('webhook-receiver')
      await system.ready('webhook-receiver')
    }
    await allAcknowledged(2_000)
    const messages = await takeMessages()
    expect([...messages.keys()].toSorted()).toEqual(idsOf(400))
    // A delivery is repeated if it was published before the kill, but not acknowledged.
    for (const [id, published] of messages) expect(published, id).toBeGreaterThanOrEqual(5)
  })

  it('a webhook that the provider drops causes no event, but every other webhook is published', async () => {
    await sandbox('PUT', 'webhooks', { shuffled: true, dropPercent: 30 })
    await change(300)
    const { dropped } = await counts()
    expect(dropped).toBeGreaterThan(0)
    await eventually(async () => expect((await counts()).delivered).toBe(300 - dropped))
    expect((await takeMessages()).size).toBe(300 - dropped)
  })
})
