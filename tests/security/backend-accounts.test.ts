/**
 * Runs each service with the restricted accounts of scripts/backend-accounts.ts on a separate Redis and RabbitMQ.
 * Each service must be able to do all of its work, and must not be able to access what belongs to another service.
 */
import { randomBytes } from 'node:crypto'
import { CREDENTIALS_EXCHANGE } from '@integration-host/shared/contracts/credential'
import { PROVIDER_EXCHANGE } from '@integration-host/shared/contracts/provider-event'
import {
  START_EXCHANGE,
  startQueue,
  DEAD_EXCHANGE,
  STEPS_EXCHANGE,
} from '@integration-host/shared/contracts/topology'
import type { TransactionView } from '@integration-host/shared/contracts/transaction'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { type Channel, connect } from 'amqplib'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type BrokerAccountName,
  brokerPermissions,
  type RedisAccountName,
  redisAccounts,
  redisRules,
} from '../../scripts/backend-accounts.ts'
import {
  type RestartableRabbitMq,
  type RestartableServer,
  startRestartableRabbitMq,
  startRestartableServer,
} from '../support/backends/restartable-servers.ts'
import { sandboxClient } from '../support/clients/sandbox.ts'
import { sendNotification } from '../support/clients/provider-webhooks.ts'
import { companyInfoUrl, connectCompany } from '../support/clients/user-actions.ts'
import { type StepTarget, startStepTarget } from '../support/fakes/step-target.ts'
import {
  createWebhooksFile,
  startWebhookReceiver,
  type WebhookReceiver,
} from '@integration-host/shared/test-support/webhook-receiver'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { startSystem, type System } from '../support/system.ts'

const REALM = '9341453908059889'
const NAME = `ACC-${REALM}`
const brokerNames: readonly BrokerAccountName[] = [
  'token-service',
  'accounting-gateway',
  'coordinator',
  'webhook-receiver',
]
const redisNames = Object.keys(redisAccounts) as readonly RedisAccountName[]

const password = randomBytes(24).toString('hex')
let redisServer: RestartableServer
let broker: RestartableRabbitMq
let admin: Redis
let target: StepTarget
let system: System
let webhooks: WebhookReceiver
const opened = new AsyncDisposableStack()

/** Returns the URL of a server with another user in it. */
function urlAs(user: string, url: string): string {
  const address = new URL(url)
  address.username = user
  address.password = password
  return address.href
}

beforeAll(async () => {
  redisServer = opened.use(await startRestartableServer('redis'))
  broker = opened.use(await startRestartableRabbitMq())
  admin = new Redis(redisServer.url)
  opened.defer(() => admin.disconnect())
  target = opened.use(await startStepTarget())
  system = opened.use(await startSystem(['sandbox-provider']))
  for (const name of redisNames)
    await admin.call(
      'ACL',
      'SETUSER',
      name,
      'on',
      `>${password}`,
      ...redisRules(name, system.redisKeyPrefix),
    )
  for (const name of brokerNames) {
    const { configure, write, read } = brokerPermissions(name, system.amqpPrefix)
    await broker.control('add_user', name, password)
    await broker.control('set_permissions', name, configure, write, read)
  }
  // The account of another program, which may start runs of OrderProcess
  const exchange = system.amqpPrefix + START_EXCHANGE
  const pattern = `^${exchange.replaceAll('.', '\\.')}$`
  await broker.control('add_user', 'erp', password)
  await broker.control('set_permissions', 'erp', '^$', pattern, '^$')
  await broker.control('set_topic_permissions', 'erp', exchange, '^OrderProcess$', '^$')
  const redis = (name: RedisAccountName) => ({ REDIS_URL: urlAs(name, redisServer.url) })
  const amqp = (name: BrokerAccountName) => ({ AMQP_URL: urlAs(name, broker.url) })
  system.start('token-service', { ...redis('token-service'), ...amqp('token-service') })
  system.start('accounting-gateway', {
    ...redis('accounting-gateway'),
    ...amqp('accounting-gateway'),
  })
  webhooks = opened.use(await startWebhookReceiver())
  const file = opened.use(await createWebhooksFile([webhooks.entry()]))
  system.start('coordinator', {
    ...amqp('coordinator'),
    ...file.env,
    DEMO_API_URL: target.url,
  })
  system.start('webhook-receiver', amqp('webhook-receiver'))
  await system.ready('token-service', 'accounting-gateway', 'coordinator', 'webhook-receiver')
  // This timeout is longer than the start deadlines of the servers. If a server does not start in time, the test
  // fails with the server's error, which contains the reason. Each call of `control` starts an Erlang system, which
  // takes many seconds on a busy machine.
}, 360_000)
afterAll(() => opened.disposeAsync())

const post = (url: string, body: object): Promise<Response> => system.call(url, postJson(body))

describe('a service with a restricted account at Redis and RabbitMQ', () => {
  it('token-service with a restricted account connects, refreshes, audits, transfers, re-encrypts and removes a credential', async () => {
    const url = system.url('token-service')
    const sandbox = sandboxClient(system)
    expect((await connectCompany(system, REALM)).status).toBe(302)
    await sandbox.expire(REALM)
    const refreshed = await post(`${url}/credentials/${NAME}/refresh`, {})
    expect(await refreshed.json()).toMatchObject({ Status: 'active', Version: 2 })
    expect((await system.call(`${url}/credentials/${NAME}/token`)).status).toBe(200)
    expect((await system.call(`${url}/credentials`)).status).toBe(200)
    expect((await system.call(`${url}/key-check`)).status).toBe(200)
    const rotated = await post(`${url}/key-rotations`, {})
    expect(await rotated.text()).toContain('"IsFinished":true')
    const Passphrase = randomBytes(24).toString('hex')
    const exported = await post(`${url}/exports`, { Names: [NAME], Passphrase })
    const Document = (await exported.json()) as object
    const imported = await post(`${url}/imports`, { Document, Passphrase })
    expect(await imported.json()).toMatchObject({ imported: [{ Name: NAME }], refused: [] })
    await eventually(async () => {
      const audit = await (await system.call(`${url}/audit`)).text()
      for (const what of ['granted', 'refreshed', 'exported', 'imported'])
        expect(audit).toContain(what)
    })
    expect(
      (await system.call(`${url}/credentials/${NAME}`, { method: 'DELETE' })).status,
    ).toBeLessThan(300)
    expect((await connectCompany(system, REALM)).status).toBe(302)
    await eventually(() =>
      expect(webhooks.received.map(({ type }) => type)).toContain('credential.removed'),
    )
  })

  it('accounting-gateway with a restricted account shares rate limits and cool-downs, and consumes credential events', async () => {
    const call = () => system.call(companyInfoUrl(system, REALM))
    expect((await call()).status).toBe(200)
    const batch = `${system.url('accounting-gateway')}/v3/company/${REALM}/batch`
    await (await post(batch, { BatchItemRequest: [] })).body?.cancel()
    const keys = await admin.keys(`${system.redisKeyPrefix}*:{${REALM}}:*`)
    expect(keys.some((key) => key.includes('throttle:'))).toBe(true)
    expect(keys.some((key) => key.includes('batch:'))).toBe(true)

    const sandbox = sandboxClient(system)
    await sandbox.addFault({ target: 'api', status: 429, headers: { 'Retry-After': '600' } })
    expect((await call()).status).toBe(429)
    await eventually(async () =>
      expect(await admin.exists(`${system.redisKeyPrefix}throttle:{${REALM}}:hold`)).toBe(1),
    )

    const consumers = await broker.control('list_consumers', '--quiet', 'queue_name')
    expect(consumers).toContain(`${system.amqpPrefix}accounting-gateway.credentials.`)
  })

  it('the coordinator with a restricted account runs and retries steps, and stores a malformed message as a dead letter', async () => {
    let hasFailed = false
    target.intercept = (_call, response) => {
      if (hasFailed) return false
      hasFailed = true
      response.writeHead(503).end()
      return true
    }
    const runs = `${system.url('coordinator')}/processes/OrderProcess/transactions`
    expect((await post(runs, { TransactionID: '1', InitialData: '1' })).status).toBe(202)
    await eventually(async () => {
      const run = (await (await system.call(`${runs}/1`)).json()) as TransactionView
      expect(run.Status).toBe('Completed')
    })
    expect(target.calls.filter(({ path }) => path === '/order')).toHaveLength(2)

    const connection = await connect(broker.url)
    const channel = await connection.createConfirmChannel()
    channel.publish(system.amqpPrefix + STEPS_EXCHANGE, 'OrderProcess.order', Buffer.from('?'))
    await channel.waitForConfirms()
    await connection.close()
    const deadLetters = `${system.url('coordinator')}/processes/OrderProcess/dead-letters`
    await eventually(async () =>
      expect(await (await system.call(deadLetters)).json()).toMatchObject({
        items: [{ Reason: 'malformed', Content: '?' }],
      }),
    )
  })

  it('the webhook receiver with a restricted account publishes an event', async () => {
    const connection = await connect(broker.url)
    const channel = await connection.createChannel()
    const { queue } = await channel.assertQueue('', { exclusive: true })
    await channel.bindQueue(queue, system.amqpPrefix + PROVIDER_EXCHANGE, 'intuit.#')
    const { status } = await sendNotification(system)
    expect(status).toBe(200)
    expect(await channel.get(queue, { noAck: true })).toMatchObject({
      fields: { routingKey: 'intuit.Invoice.update' },
    })
    await connection.close()
  })

  it('an account of another program has only the permission to start runs of one process by messages', async () => {
    const exchange = system.amqpPrefix + START_EXCHANGE
    const connection = await connect(urlAs('erp', broker.url))
    const rejected = async (act: (channel: Channel) => unknown): Promise<void> => {
      const channel = await connection.createChannel()
      const closed = new Promise<Error>((resolve) => channel.once('error', resolve))
      Promise.resolve(act(channel)).catch(() => {})
      expect((await closed).message).toMatch(/ACCESS_REFUSED|403/)
    }
    const body = Buffer.from(JSON.stringify({ TransactionID: 'erp-1', InitialData: '1' }))
    const channel = await connection.createConfirmChannel()
    channel.publish(exchange, 'OrderProcess', body, { userId: 'erp', mandatory: true })
    await channel.waitForConfirms()
    const run = `${system.url('coordinator')}/processes/OrderProcess/transactions/erp-1`
    await eventually(async () => expect((await system.call(run)).status).toBe(200))
    const actions = await system.call(`${system.url('coordinator')}/actions?limit=10`)
    expect(await actions.json()).toMatchObject({
      items: expect.arrayContaining([
        expect.objectContaining({ TransactionID: 'erp-1', KeyID: 'rabbitmq:erp' }),
      ]),
    })
    await rejected((other) => other.publish(exchange, 'InvoiceExport', body))
    await rejected((other) => other.publish('', 'steps.OrderProcess.order', body))
    await rejected((other) =>
      other.consume(`${system.amqpPrefix}${startQueue('OrderProcess')}`, () => {}),
    )
    await connection.close()
  })

  it('no service sends a Redis command that its account may not run', async () => {
    // Redis logs every denied command with the user and with the denied command, key or channel.
    const denied = (await admin.call('ACL', 'LOG')) as unknown[]
    expect(denied.map((entry) => JSON.stringify(entry))).toEqual([])
    for (const name of brokerNames)
      expect(system.service(name).output()).not.toMatch(/NOPERM|ACCESS[_-]REFUSED/)
  })
})

describe('the Redis account of a single service', () => {
  it.each<[user: RedisAccountName, title: string, command: (prefix: string) => readonly string[]]>([
    ['accounting-gateway', 'read a credential', (prefix) => ['HGETALL', `${prefix}${NAME}`]],
    [
      'accounting-gateway',
      'change a credential',
      (prefix) => ['HSET', `${prefix}${NAME}`, 'Version', '9'],
    ],
    [
      'accounting-gateway',
      'read the audit log',
      (prefix) => ['ZRANGE', `${prefix}credentials:names`, '0', '-1'],
    ],
    ['accounting-gateway', 'list keys', () => ['SCAN', '0']],
    [
      'accounting-gateway',
      'copy a record',
      (prefix) => ['COPY', `${prefix}${NAME}`, `${prefix}throttle:x`],
    ],
    [
      'token-service',
      "change the gateway's limits",
      (prefix) => ['SET', `${prefix}throttle:{1}:hold`, '1'],
    ],
    ['token-service', 'delete all data', () => ['FLUSHALL']],
    ['token-service', 'change settings of the server', () => ['CONFIG', 'SET', 'appendonly', 'no']],
    ['token-service', 'change accounts', () => ['ACL', 'SETUSER', 'default', 'on']],
    ['token-service', 'replicate the data elsewhere', () => ['REPLICAOF', '127.0.0.1', '1']],
    ['doctor', 'read a credential', (prefix) => ['HGETALL', `${prefix}${NAME}`]],
    ['doctor', 'publish to a channel', () => ['PUBLISH', 'any', 'text']],
  ])('the account %s may not %s', async (user, _title, command) => {
    const redis = new Redis(urlAs(user, redisServer.url), { retryStrategy: () => null })
    const [name = '', ...args] = command(system.redisKeyPrefix)
    await expect(redis.call(name, ...args)).rejects.toThrow(/^NOPERM/)
    redis.disconnect()
  })
})

describe('the RabbitMQ account of a single service', () => {
  const text = Buffer.from('{}')
  const publish = (exchange: string, key: string) => async (channel: Channel) => {
    channel.publish(system.amqpPrefix + exchange, key, text)
    // The broker handles the commands of a channel in order. The reply to this later command therefore shows that
    // the broker has accepted the publish.
    await channel.checkExchange(system.amqpPrefix + CREDENTIALS_EXCHANGE)
  }
  const consume = (queue: string) => (channel: Channel) =>
    channel.consume(system.amqpPrefix + queue, () => {})

  it.each<[user: BrokerAccountName, title: string, act: (channel: Channel) => Promise<unknown>]>([
    ['token-service', 'publish a step message', publish(STEPS_EXCHANGE, 'OrderProcess.order')],
    ['token-service', 'consume step messages', consume('steps.OrderProcess.order')],
    ['webhook-receiver', 'publish a step message', publish(STEPS_EXCHANGE, 'OrderProcess.order')],
    [
      'webhook-receiver',
      'publish a credential event',
      publish(CREDENTIALS_EXCHANGE, 'credential.stored'),
    ],
    ['webhook-receiver', 'consume step messages', consume('steps.OrderProcess.order')],
    [
      'webhook-receiver',
      'read its own events',
      async (channel) => {
        const { queue } = await channel.assertQueue('', { exclusive: true })
        await channel.bindQueue(queue, system.amqpPrefix + PROVIDER_EXCHANGE, '#')
      },
    ],
    [
      'accounting-gateway',
      'publish a credential event',
      publish(CREDENTIALS_EXCHANGE, 'credential.stored'),
    ],
    ['accounting-gateway', 'publish a step message', publish(STEPS_EXCHANGE, 'OrderProcess.order')],
    [
      'accounting-gateway',
      "consume the coordinator's credential events",
      consume('coordinator.credentials'),
    ],
    [
      'token-service',
      'consume the credential events that become webhooks',
      consume('coordinator.webhooks'),
    ],
    [
      'coordinator',
      'publish a credential event',
      publish(CREDENTIALS_EXCHANGE, 'credential.stored'),
    ],
    ['token-service', 'consume dead letters', consume('dead.OrderProcess')],
    [
      'coordinator',
      'declare a queue of another name',
      (channel) => channel.assertQueue(`${system.amqpPrefix}mine`),
    ],
    [
      'accounting-gateway',
      'delete a queue of the coordinator',
      (channel) => channel.deleteQueue(`${system.amqpPrefix}steps.OrderProcess.order`),
    ],
    ['token-service', 'publish a dead letter', publish(DEAD_EXCHANGE, 'OrderProcess')],
  ])('the account %s may not %s', async (user, _title, act) => {
    const connection = await connect(urlAs(user, broker.url))
    try {
      const channel = await connection.createChannel()
      channel.on('error', () => {})
      const closed = new Promise((_resolve, reject) => channel.on('error', reject))
      await expect(Promise.race([act(channel), closed])).rejects.toThrow(/ACCESS_REFUSED|403/)
    } finally {
      await connection.close()
    }
  })
})
