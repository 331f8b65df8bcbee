import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { connectRabbitMq } from '@integration-host/shared/messaging/rabbitmq/message-bus'
import { Secret } from '@integration-host/shared/secrets/secret'
import { CREDENTIALS_EXCHANGE } from '@integration-host/shared/contracts/credential'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { connect } from 'amqplib'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  UNREACHABLE,
  nothingReachable,
  type Running,
  startMain,
} from '../test-support/gateway-process.ts'
import {
  echo,
  KEY,
  type FakeServer,
  startFakeServer,
  tokenOf,
  startFakeTokenService,
} from '../test-support/fake-servers.ts'
import { publishEvent } from '../test-support/harness.ts'

let opened: AsyncDisposableStack
beforeEach(() => {
  opened = new AsyncDisposableStack()
})
afterEach(() => opened.disposeAsync())

const start = (env: Readonly<Record<string, string>>): Running => opened.use(startMain(env))
const get = (url: string, path: string) =>
  fetch(url + path, { headers: { Authorization: `Bearer ${KEY}` } })

describe('the gateway as a separate process', () => {
  it('the gateway process reports every invalid setting in one message that shows no values, and exits with code 1', async () => {
    const gateway = start({
      SERVICE_API_KEY: 'too-short',
      PORT: '7218x',
      AMQP_URL: 'http://bad-broker',
      REQUESTS_PER_SECOND: '0',
    })
    expect(await gateway.ended).toMatchObject({ code: 1 })
    for (const name of [
      'SERVICE_API_KEY',
      'PORT',
      'AMQP_URL',
      'REQUESTS_PER_SECOND',
      'ACCOUNTING_URL',
      'DISCOVERY_URL',
    ])
      expect(gateway.output()).toContain(name)
    for (const value of ['too-short', '7218x', 'bad-broker'])
      expect(gateway.output()).not.toContain(value)
    expect(gateway.output().match(/The settings are not usable/g)).toHaveLength(1)
  })

  it('the gateway process starts without its dependencies, reports them as down, and exits with code 0 on SIGTERM', async () => {
    const gateway = start(nothingReachable)
    const url = await gateway.url()
    expect((await fetch(`${url}/health/live`)).status).toBe(200)
    await eventually(async () => {
      const ready = await fetch(`${url}/health/ready`)
      expect(ready.status).toBe(503)
      expect(await ready.json()).toMatchObject({
        status: 'waiting',
        dependencies: {
          rabbitmq: { status: 'down', reason: 'ECONNREFUSED' },
          redis: { status: 'down' },
          'token-service': { status: 'down', reason: 'ECONNREFUSED' },
        },
      })
    })
    expect((await get(url, '/v3/company/1/x')).status).toBe(503)
    gateway.signal('SIGTERM')
    expect(await gateway.ended).toMatchObject({ code: 0 })
  })

  it('on SIGTERM the gateway process completes the call in flight, accepts no further call, and exits with code 0', async () => {
    let finish = (): void => {}
    const upstream = opened.use(
      await startFakeServer((_request, response) => {
        response.writeHead(200)
        response.write('half ')
        finish = () => response.end('whole')
      }),
    )
    const tokens = opened.use(await startFakeTokenService(['1']))
    const gateway = start({
      ...nothingReachable,
      ACCOUNTING_URL: upstream.url,
      TOKEN_SERVICE_URL: tokens.url,
    })
    const url = await gateway.url()
    const answer = await get(url, '/v3/company/1/x')
    gateway.signal('SIGTERM')
    await eventually(() => expect(fetch(`${url}/health/live`)).rejects.toThrow('fetch failed'))
    finish()
    expect(await answer.text()).toBe('half whole')
    expect(await gateway.ended).toMatchObject({ code: 0 })
  })

  it('the gateway process logs a warning at start if REDIS_URL is not set', async () => {
    const { REDIS_URL: _, ...env } = nothingReachable
    const gateway = start(env)
    await gateway.url()
    expect(gateway.output()).toContain(
      'REDIS_URL is not set: each gateway replica limits only its own calls',
    )
  })

  it('the gateway process does not start if the discovery document contains no address of the accounting API', async () => {
    const provider = opened.use(
      await startFakeServer((_request, response) => response.end('{"issuer":"x"}')),
    )
    const gateway = start({ ...nothingReachable, ACCOUNTING_URL: '', DISCOVERY_URL: provider.url })
    expect(await gateway.ended).toMatchObject({ code: 1 })
    expect(gateway.output()).toContain('set ACCOUNTING_URL')
  })
})

describe('three gateway processes that share Redis and RabbitMQ', () => {
  it('three gateways share limits and credential events, and a gateway that cannot reach Redis still serves calls', async () => {
    const prefix = `test-${crypto.randomUUID().slice(0, 8)}.`
    opened.defer(async () => {
      const connection = await connect(process.env['TEST_AMQP_URL'] ?? '')
      await (await connection.createChannel()).deleteExchange(prefix + CREDENTIALS_EXCHANGE)
      await connection.close()
    })
    const upstream: FakeServer = opened.use(await startFakeServer(echo))
    const tokens = opened.use(await startFakeTokenService(['1', '2']))
    const env = {
      ...nothingReachable,
      ACCOUNTING_URL: upstream.url,
      TOKEN_SERVICE_URL: tokens.url,
      AMQP_URL: process.env['TEST_AMQP_URL'] ?? '',
      AMQP_PREFIX: prefix,
      REDIS_URL: process.env['TEST_REDIS_URL'] ?? '',
      REDIS_KEY_PREFIX: prefix,
    }
    const gateways = [
      start(env),
      start(env),
      start({ ...env, REDIS_URL: `redis://${UNREACHABLE}` }),
    ]
    const urls = await Promise.all(gateways.map((gateway) => gateway.url()))
    // Redis is an optional dependency, so the gateway that cannot connect to Redis must become ready as well.
    for (const url of urls)
      await eventually(async () => expect((await fetch(`${url}/health/ready`)).status).toBe(200))

    for (const url of urls) expect((await get(url, '/v3/company/1/x')).status).toBe(200)
    expect(tokens.tokens()).toHaveLength(3)
    const credential = tokens.credentials.get('1')
    if (credential !== undefined) credential.version = 2
    const logger = createLogger('test', 'silent')
    const bus = opened.use(
      connectRabbitMq(new Secret(env.AMQP_URL), {
        name: 'test',
        dependency: createHealth(logger).dependency('rabbitmq'),
        logger,
        prefix,
      }),
    )
    await bus.ready(AbortSignal.timeout(60_000))
    await bus.declare({ exchanges: [{ name: CREDENTIALS_EXCHANGE, type: 'topic' }], queues: [] })
    await publishEvent(bus, '1', 'refreshed', 2)
    for (const url of urls)
      await eventually(
        async () => {
          const answer = (await (await get(url, '/v3/company/1/x')).json()) as {
            headers: { authorization: string }
          }
          expect(answer.headers.authorization).toBe(`Bearer ${tokenOf('1', 2)}`)
        },
        { everyMs: 300 },
      )

    // The profile `intuit` allows ten calls per second over all gateway replicas, so two of the twelve calls have to
    // wait for the next second.
    const from = performance.now()
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, index) => get(urls[index % 2] ?? '', '/v3/company/2/x')),
    )
    expect(answers.every(({ status }) => status === 200)).toBe(true)
    expect(performance.now() - from).toBeGreaterThan(950)

    for (const gateway of gateways) gateway.signal('SIGTERM')
    const results = await Promise.all(gateways.map((gateway) => gateway.ended))
    expect(results.map(({ code }) => code)).toEqual([0, 0, 0])
    for (const gateway of gateways) expect(gateway.output()).not.toContain('canary')
  })
})
