import { eventually } from '@integration-host/shared/test-support/eventually'
import { startRelay, type Relay } from '@integration-host/shared/test-support/relay'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  requestDemoApi,
  companyInfoUrl,
  connectCompany,
  waitForRun,
} from '../support/clients/user-actions.ts'
import { backend, type ServiceName, startSystem, type System } from '../support/system.ts'

const REALM = '4620816365'

/** The services reach each backend through a relay that can close its connections. */
describe('a system whose backends become unavailable and available again', () => {
  let system: System
  let redis: Relay
  let rabbitmq: Relay
  let postgres: Relay

  beforeAll(async () => {
    system = await startSystem([])
    redis = await startRelay(backend('TEST_REDIS_URL'), 6379)
    rabbitmq = await startRelay(backend('TEST_AMQP_URL'), 5672)
    postgres = await startRelay(system.databaseUrl, 5432)
  })
  afterAll(async () => {
    await system[Symbol.asyncDispose]()
    for (const relay of [redis, rabbitmq, postgres]) await relay[Symbol.asyncDispose]()
  })

  /** Resolves when the service reports at `/health/ready` that the given dependencies are down. */
  const untilDown = (name: ServiceName, ...dependencies: string[]) =>
    eventually(async () => {
      const response = await fetch(`${system.url(name)}/health/ready`)
      const report = (await response.json()) as { dependencies: Record<string, { status: string }> }
      const down = Object.entries(report.dependencies).filter(([, { status }]) => status !== 'up')
      expect([response.status, down.map(([dependency]) => dependency)]).toEqual([
        503,
        expect.arrayContaining(dependencies),
      ])
    })

  it('each service listens although no backend is available, and reports the missing backends as down', async () => {
    for (const relay of [redis, rabbitmq, postgres]) relay.away()
    system.start('demo-api')
    system.start('accounting-gateway', { REDIS_URL: redis.url, AMQP_URL: rabbitmq.url })
    system.start('coordinator', {
      DATABASE_URL: postgres.url,
      AMQP_URL: rabbitmq.url,
      LOCAL_PULL_SECONDS: '1',
    })
    system.start('token-service', { REDIS_URL: redis.url, AMQP_URL: rabbitmq.url })
    await eventually(() => fetch(`${system.url('coordinator')}/health/live`))
    await untilDown('token-service', 'redis', 'rabbitmq')
    await untilDown('coordinator', 'postgres', 'rabbitmq')
    await eventually(() =>
      expect(system.service('coordinator').output()).toContain('dependency is down'),
    )
    expect((await requestDemoApi(system, '/queue?number=1')).status).toBe(503)
  })

  it('each service becomes ready in whatever order its backends become available', async () => {
    system.start('sandbox-provider')
    for (const relay of [rabbitmq, postgres, redis]) relay.restore()
    await system.ready(
      'token-service',
      'accounting-gateway',
      'coordinator',
      'demo-api',
      'sandbox-provider',
    )
    expect((await requestDemoApi(system, '/queue?number=1')).status).toBe(200)
    await waitForRun(system, '1', 0, 'Completed')
    await connectCompany(system, REALM)
    expect((await system.call(companyInfoUrl(system, REALM))).status).toBe(200)
  })

  it('the coordinator accepts orders while RabbitMQ is unavailable, and runs them afterwards', async () => {
    rabbitmq.away()
    await untilDown('coordinator', 'rabbitmq')
    expect((await requestDemoApi(system, '/queue?number=2')).status).toBe(200)
    rabbitmq.restore()
    await waitForRun(system, '2', 0, 'Completed')
  })

  it('the coordinator rejects orders while PostgreSQL is unavailable, and accepts them afterwards', async () => {
    postgres.away()
    await untilDown('coordinator', 'postgres')
    expect((await requestDemoApi(system, '/queue?number=3')).status).toBe(503)
    postgres.restore()
    await eventually(async () =>
      expect((await requestDemoApi(system, '/queue?number=3')).status).toBe(200),
    )
    await waitForRun(system, '3', 0, 'Completed')
  })

  it('the gateway forwards calls with cached tokens while Redis is unavailable, and after Redis is available again', async () => {
    redis.away()
    await untilDown('token-service', 'redis')
    expect((await system.call(companyInfoUrl(system, REALM))).status).toBe(200)
    redis.restore()
    await system.ready('token-service', 'accounting-gateway')
    expect((await system.call(companyInfoUrl(system, REALM))).status).toBe(200)
  })

  it('each service shuts down on SIGTERM with exit code 0', async () => {
    const names: ServiceName[] = [
      'demo-api',
      'coordinator',
      'accounting-gateway',
      'token-service',
      'sandbox-provider',
    ]
    for (const name of names)
      expect([name, await system.service(name).stop('SIGTERM')]).toEqual([name, 0])
  })
})
