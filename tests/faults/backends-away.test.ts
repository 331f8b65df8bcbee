import { eventually } from '@integration-host/shared/test-support/eventually'
import { startRelay, type Relay } from '@integration-host/shared/test-support/relay'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ask, companyInfoUrl, connectCompany, runOf } from '../support/story-steps.ts'
import { backend, type ServiceName, startSystem, type System } from '../support/system.ts'

const REALM = '4620816365'

/** Every backend behind a line that can be cut. */
describe('a system whose backends come and go', () => {
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

  /** The dependencies that a service which is not ready waits for. */
  const waitsFor = (name: ServiceName, ...dependencies: string[]) =>
    eventually(async () => {
      const answer = await fetch(`${system.url(name)}/health/ready`)
      const report = (await answer.json()) as { dependencies: Record<string, { status: string }> }
      const down = Object.entries(report.dependencies).filter(([, { status }]) => status !== 'up')
      expect([answer.status, down.map(([dependency]) => dependency)]).toEqual([
        503,
        expect.arrayContaining(dependencies),
      ])
    })

  it('listens with nothing there, and says what it waits for', async () => {
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
    await waitsFor('token-service', 'redis', 'rabbitmq')
    await waitsFor('coordinator', 'postgres', 'rabbitmq')
    await eventually(() =>
      expect(system.service('coordinator').output()).toContain('waiting for dependency'),
    )
    expect((await ask(system, '/queue?number=1')).status).toBe(503)
  })

  it('is ready when they come, in whatever order', async () => {
    system.start('sandbox-provider')
    for (const relay of [rabbitmq, postgres, redis]) relay.restore()
    await system.ready(
      'token-service',
      'accounting-gateway',
      'coordinator',
      'demo-api',
      'sandbox-provider',
    )
    expect((await ask(system, '/queue?number=1')).status).toBe(200)
    await runOf(system, '1', 0, 'Completed')
    await connectCompany(system, REALM)
    expect((await system.call(companyInfoUrl(system, REALM))).status).toBe(200)
  })

  it('takes orders while RabbitMQ is away, and runs them when it is back', async () => {
    rabbitmq.away()
    await waitsFor('coordinator', 'rabbitmq')
    expect((await ask(system, '/queue?number=2')).status).toBe(200)
    rabbitmq.restore()
    await runOf(system, '2', 0, 'Completed')
  })

  it('refuses orders while Postgres is away, and goes on when it is back', async () => {
    postgres.away()
    await waitsFor('coordinator', 'postgres')
    expect((await ask(system, '/queue?number=3')).status).toBe(503)
    postgres.restore()
    await eventually(async () => expect((await ask(system, '/queue?number=3')).status).toBe(200))
    await runOf(system, '3', 0, 'Completed')
  })

  it('serves tokens it has while Redis is away, and goes on when it is back', async () => {
    redis.away()
    await waitsFor('token-service', 'redis')
    expect((await system.call(companyInfoUrl(system, REALM))).status).toBe(200)
    redis.restore()
    await system.ready('token-service', 'accounting-gateway')
    expect((await system.call(companyInfoUrl(system, REALM))).status).toBe(200)
  })

  it('leaves on SIGTERM with exit code 0, all of it', async () => {
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
