/**
 * Kills the webhook receiver with SIGKILL at every await of a delivery, and under load. A change must be in the broker
 * if its delivery got a 200. If a delivery got no 200, the test sends it again, as the provider would.
 */
import { once } from 'node:events'
import { connect as connectSocket } from 'node:net'
import { PROVIDER_EXCHANGE } from '@integration-host/shared/contracts/provider-event'
import { eventually, until } from '@integration-host/shared/test-support/eventually'
import { startRelay } from '@integration-host/shared/test-support/relay'
import { type Channel, type ChannelModel, connect } from 'amqplib'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  eventIdOf,
  type NotifiedChange,
  sendNotification,
} from '../support/clients/provider-webhooks.ts'
import { diedAt, webhookReceiverWithFailpoints } from '../support/processes/failpoints.ts'
import { backend, startSystem, type System } from '../support/system.ts'

const points = [
  'after body',
  'before publish',
  'events sent',
  'first event confirmed',
  'after confirm',
] as const

let system: System
let broker: ChannelModel
let channel: Channel
let queue: string

beforeAll(async () => {
  system = await startSystem([])
  broker = await connect(backend('TEST_AMQP_URL'))
  channel = await broker.createChannel()
  await channel.assertExchange(system.amqpPrefix + PROVIDER_EXCHANGE, 'topic', { durable: true })
  ;({ queue } = await channel.assertQueue('', { exclusive: true }))
  await channel.bindQueue(queue, system.amqpPrefix + PROVIDER_EXCHANGE, 'intuit.#')
})
afterAll(async () => {
  await broker.close()
  await system[Symbol.asyncDispose]()
})
beforeEach(async () => void (await channel.purgeQueue(queue)))

/** Removes the messages of the queue, and returns their ids. */
async function takeIds(): Promise<readonly string[]> {
  const ids: string[] = []
  for (;;) {
    const message = await channel.get(queue, { noAck: true })
    if (message === false) return ids
    ids.push(String(message.properties.messageId))
  }
}

async function startReceiver(env: Readonly<Record<string, string>> = {}, entry?: string) {
  const started = system.start('webhook-receiver', env, entry)
  await system.ready('webhook-receiver')
  return started
}

const changesFrom = (first: number, count: number): readonly NotifiedChange[] =>
  Array.from({ length: count }, (_, index) => ({ id: String(first + index) }))
const distinct = (ids: readonly string[]): readonly string[] => [...new Set(ids)].toSorted()
/** Sends a notification. Resolves with the status of the response; 0 if there was no response. */
const send = async (changes: readonly NotifiedChange[]): Promise<number> =>
  (await sendNotification(system, changes).catch(() => null))?.status ?? 0

describe('a webhook receiver that is killed during a delivery', () => {
  it('the crash tests of the webhook receiver cover all failpoints of a delivery', async () => {
    const started = system.start(
      'webhook-receiver',
      { DIES_AT: '?' },
      webhookReceiverWithFailpoints,
    )
    const [list] = await started.waitForOutput(/\[.*\]/)
    expect((JSON.parse(list) as string[]).toSorted()).toEqual([...points].toSorted())
  })

  it.each(points)(
    'a webhook receiver that is killed at "%s" acknowledges no webhook, and publishes every change after a repeated delivery',
    async (point) => {
      const changes = changesFrom(1, 20)
      const doomed = await startReceiver({ DIES_AT: point }, webhookReceiverWithFailpoints)
      expect(await send(changes)).toBe(0)
      await diedAt(doomed, point)
      const before = await takeIds()
      const known = new Set(changes.map(eventIdOf))
      expect(before.filter((id) => !known.has(id))).toEqual([])
      if (point === 'after body' || point === 'before publish') expect(before).toEqual([])
      if (point === 'first event confirmed') expect(before).toEqual([eventIdOf({ id: '1' })])
      if (point === 'after confirm') expect(before).toHaveLength(20)
      const next = await startReceiver()
      expect(await send(changes)).toBe(200)
      expect(distinct(await takeIds())).toEqual(distinct([...known]))
      expect(await next.stop('SIGTERM')).toBe(0)
    },
  )

  it('a webhook receiver that is killed while a body arrives publishes no part of this body', async () => {
    const doomed = await startReceiver()
    const socket = connectSocket(Number(new URL(doomed.url).port), '127.0.0.1')
    socket.on('error', () => {})
    socket.write(
      'POST /webhooks/intuit HTTP/1.1\r\nHost: r\r\nContent-Length: 100\r\n\r\n[{"specversion"',
    )
    await until(async () => {
      const metrics = await (await fetch(`${doomed.url}/metrics`)).text()
      return /^webhook_body_bytes\S* 15$/m.test(metrics)
    })
    const closed = once(socket, 'close')
    await doomed.stop('SIGKILL')
    await closed
    expect(await takeIds()).toEqual([])
  })

  it('the webhook receiver loses no acknowledged change in ten kills under load', async () => {
    const acknowledged = new Set<string>()
    let isStopped = false
    /** Sends notifications one after another, each of them until it is acknowledged. */
    async function provider(index: number): Promise<void> {
      for (let round = 0; !isStopped; round += 1) {
        const changes = changesFrom(index * 1_000_000 + round * 10, 5)
        while ((await send(changes)) !== 200) if (isStopped) return
        for (const change of changes) acknowledged.add(eventIdOf(change))
      }
    }
    let receiver = await startReceiver()
    const providers = [1, 2, 3, 4].map(provider)
    for (let kill = 0; kill < 10; kill += 1) {
      const { size } = acknowledged
      await until(() => acknowledged.size > size + 100)
      await receiver.stop('SIGKILL')
      receiver = await startReceiver()
    }
    isStopped = true
    await Promise.all(providers)
    expect(await receiver.stop('SIGTERM')).toBe(0)
    const published = new Set(await takeIds())
    expect([...acknowledged].filter((id) => !published.has(id))).toEqual([])
    expect(acknowledged.size).toBeGreaterThan(1_000)
  })
})

describe('a webhook receiver without a broker', () => {
  it('the webhook receiver responds 503 while the broker is unresponsive or unavailable, and loses no change', async () => {
    await using relay = await startRelay(backend('TEST_AMQP_URL'), 5672)
    const receiver = await startReceiver({ AMQP_URL: relay.url })
    const acknowledged: string[] = []
    let first = 1
    const deliver = async (): Promise<number> => {
      const changes = changesFrom(first, 3)
      first += 3
      const status = await send(changes)
      if (status === 200) acknowledged.push(...changes.map(eventIdOf))
      return status
    }
    expect(await deliver()).toBe(200)
    relay.stall()
    expect(await deliver()).toBe(503)
    relay.away()
    await eventually(async () => expect(await deliver()).toBe(503))
    relay.restore()
    await eventually(async () => expect(await deliver()).toBe(200))
    const published = new Set(await takeIds())
    expect(acknowledged.filter((id) => !published.has(id))).toEqual([])
    expect(await receiver.stop('SIGTERM')).toBe(0)
  })
})
