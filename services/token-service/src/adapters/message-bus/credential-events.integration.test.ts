import { connect } from 'amqplib'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  CREDENTIALS_EXCHANGE,
  CredentialEvent,
} from '@integration-host/shared/contracts/credential'
import type { KeyRing } from '@integration-host/shared/secrets/envelope'
import { createHealth } from '@integration-host/shared/observability/health'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { connectRabbitMq } from '@integration-host/shared/messaging/rabbitmq/message-bus'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { type Relay, startRelay } from '@integration-host/shared/test-support/relay'
import {
  type ScriptedProvider,
  startScriptedProvider,
} from '../../../test-support/scripted-provider.ts'
import {
  silent,
  startTestService,
  testKeys,
  type TestRedis,
  type TestService,
  useTestRedis,
} from '../../../test-support/service-fixture.ts'

interface Seen {
  readonly key: string
  readonly id: string
  readonly text: string
  readonly isPersistent: boolean
}

const url = process.env['TEST_AMQP_URL'] ?? ''
let cleanup: AsyncDisposableStack
let keys: KeyRing
let provider: ScriptedProvider
let redis: TestRedis
let connection: Relay
let prefix: string
let seen: Seen[]

beforeEach(async () => {
  cleanup = new AsyncDisposableStack()
  keys = testKeys()
  provider = cleanup.use(await startScriptedProvider())
  redis = await useTestRedis(cleanup, { keys })
  connection = cleanup.use(await startRelay(url, 5672))
  prefix = `test-${crypto.randomUUID().slice(0, 8)}.`
  seen = []
  const listener = await connect(url)
  cleanup.defer(() => listener.close())
  const channel = await listener.createChannel()
  await channel.assertExchange(prefix + CREDENTIALS_EXCHANGE, 'topic', { durable: true })
  cleanup.defer(async () => void (await channel.deleteExchange(prefix + CREDENTIALS_EXCHANGE)))
  const { queue } = await channel.assertQueue('', { exclusive: true })
  await channel.bindQueue(queue, prefix + CREDENTIALS_EXCHANGE, 'credential.#')
  await channel.consume(
    queue,
    (message) => {
      if (message === null) return
      const { messageId, deliveryMode } = message.properties
      seen.push({
        key: message.fields.routingKey,
        id: String(messageId),
        text: String(message.content),
        isPersistent: deliveryMode === 2,
      })
    },
    { noAck: true },
  )
})
afterEach(() => cleanup.disposeAsync())

async function connectBus(): Promise<MessageBus> {
  const dependency = createHealth(silent).dependency('rabbitmq')
  const bus = cleanup.use(
    connectRabbitMq(new Secret(connection.url), {
      name: 'token-service test',
      dependency,
      logger: silent,
      prefix,
      confirmDeadlineMs: 1_000,
    }),
  )
  await bus.ready(AbortSignal.timeout(60_000))
  return bus
}
async function start(): Promise<TestService> {
  const { store, authorizations } = redis
  return cleanup.use(
    await startTestService({ provider, store, authorizations, keys, bus: await connectBus() }),
  )
}
const ids = () => seen.map(({ id }) => id)
const outboxLength = () => redis.redis.xlen('credentials:outbox')

describe('the events of credential changes on RabbitMQ', () => {
  it('token-service publishes one persistent event without tokens for each change of a credential, in order', async () => {
    const service = await start()
    await service.connect('1')
    const { Authenticator } = (await service.ask('/credentials/ACC-1/token')).body as {
      Authenticator: string
    }
    await service.ask('/credentials/ACC-1/refresh', { method: 'POST' })
    provider.revokeAll()
    await service.ask('/credentials/ACC-1/refresh', { method: 'POST' })
    await service.ask('/credentials/ACC-1/refresh', { method: 'POST' })
    await service.connect('1')
    await service.call('/credentials/ACC-1', { method: 'DELETE' })
    await eventually(() => expect(seen).toHaveLength(5))
    expect(ids()).toEqual([
      'ACC-1/1/stored',
      'ACC-1/2/refreshed',
      'ACC-1/2/faulted',
      'ACC-1/3/stored',
      'ACC-1/3/removed',
    ])
    expect(seen.map(({ key }) => key)).toEqual([
      'credential.stored',
      'credential.refreshed',
      'credential.faulted',
      'credential.stored',
      'credential.removed',
    ])
    const bodies = seen.map(({ text }) => CredentialEvent.strict().parse(JSON.parse(text)))
    expect(bodies[2]).toMatchObject({
      Name: 'ACC-1',
      Environment: '1',
      Version: 2,
      Fault: { Code: 'used_elsewhere' },
    })
    expect(bodies[4]).toMatchObject({ revoked: true })
    expect(seen.every(({ isPersistent }) => isPersistent)).toBe(true)
    const all = JSON.stringify(seen)
    for (const secret of [
      Authenticator,
      ...provider.requests.map(({ form }) => form.get('refresh_token') ?? form.get('code') ?? ''),
    ]) {
      expect(all).not.toContain(secret)
    }
    await eventually(async () => expect(await outboxLength()).toBe(0))
  })

  it('events stay in the outbox while RabbitMQ is unavailable, and each one is published once and in order afterwards', async () => {
    const service = await start()
    await service.connect('1')
    await eventually(() => expect(seen).toHaveLength(1))
    connection.away()
    for (let version = 2; version <= 6; version += 1) {
      expect(
        (await service.ask('/credentials/ACC-1/refresh', { method: 'POST' })).body['Version'],
      ).toBe(version)
    }
    expect(await outboxLength()).toBe(5)
    connection.restore()
    await eventually(() => expect(seen).toHaveLength(6))
    expect(ids()).toEqual([
      'ACC-1/1/stored',
      ...[2, 3, 4, 5, 6].map((version) => `ACC-1/${version}/refreshed`),
    ])
    await eventually(async () => expect(await outboxLength()).toBe(0))
  })

  it('the next process publishes the events that a killed process left in the outbox', async () => {
    const first = await start()
    await first.connect('1')
    await eventually(() => expect(seen).toHaveLength(1))
    connection.away()
    await first.connect('2')
    await first[Symbol.asyncDispose]()
    connection.restore()
    await start()
    await eventually(() => expect(ids()).toEqual(['ACC-1/1/stored', 'ACC-2/1/stored']))
  })

  it('three replicas of token-service publish the events of each credential once and in order', async () => {
    const services: TestService[] = []
    for (const _ of [1, 2, 3]) services.push(await start())
    await Promise.all(services.map((service, index) => service.connect(`r${index}`)))
    for (const _ of [1, 2, 3, 4]) {
      await Promise.all(
        services.map((service, index) =>
          service.ask(`/credentials/ACC-r${index}/refresh`, { method: 'POST' }),
        ),
      )
    }
    await eventually(() => expect(seen).toHaveLength(15))
    expect(new Set(ids()).size).toBe(15)
    for (const index of [0, 1, 2]) {
      const versions = ids()
        .filter((id) => id.startsWith(`ACC-r${index}/`))
        .map((id) => Number(id.split('/')[1]))
      expect(versions).toEqual([1, 2, 3, 4, 5])
    }
  })
})
