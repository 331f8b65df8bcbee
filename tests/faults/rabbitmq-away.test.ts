/**
 * RabbitMQ leaves while companies are refreshed by three token-services, each its own process: the refreshes
 * go on, and what there is to tell waits in the outbox.
 */
import { eventually } from '@integration-host/shared/test-support/eventually'
import { type Relay, startRelay } from '@integration-host/shared/test-support/relay'
import { type ChannelModel, connect } from 'amqplib'
import { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { collectEvents, type EventCollector } from '../support/credential-events.ts'
import { sandboxOf } from '../support/sandbox-control.ts'
import { connectCompany } from '../support/story-steps.ts'
import { backend, startSystem, type System } from '../support/system.ts'

const REALMS = ['9341500001', '9341500002', '9341500003', '9341500004']
const ROUNDS = 5

describe('refreshes whose RabbitMQ leaves', () => {
  let system: System
  let broker: ChannelModel
  let line: Relay
  let redis: Redis
  let replicas: readonly string[]
  let events: EventCollector

  beforeAll(async () => {
    system = await startSystem(['sandbox-provider'])
    broker = await connect(backend('TEST_AMQP_URL'))
    line = await startRelay(backend('TEST_AMQP_URL'), 5672)
    redis = new Redis(backend('TEST_REDIS_URL'), { keyPrefix: system.redisKeyPrefix })
    const env = { AMQP_URL: line.url }
    system.start('token-service', env)
    const [, ...others] = await Promise.all([
      system.ready('token-service'),
      system.replica('token-service', env),
      system.replica('token-service', env),
    ])
    replicas = [system.url('token-service'), ...others.map(({ url }) => url)]
    for (const realm of REALMS) await connectCompany(system, realm)
  })
  beforeEach(async () => {
    await outboxRelayed()
    events = await collectEvents(broker, system)
  })
  afterEach(() => line.restore())
  afterAll(async () => {
    redis.disconnect()
    await system[Symbol.asyncDispose]()
    await line[Symbol.asyncDispose]()
    await broker.close()
  })

  const outboxRelayed = (): Promise<void> =>
    eventually(async () => expect(await redis.xlen('credentials:outbox')).toBe(0))

  it.each(['away', 'stall'] as const)(
    'go on, and are told in their order and once when it is back (%s)',
    async (trouble) => {
      const before = await sandboxOf(system).allCalls()
      line[trouble]()
      const told: string[] = []
      for (let round = 0; round < ROUNDS; round += 1) {
        for (const [index, realm] of REALMS.entries()) {
          const replica = replicas[(round + index) % replicas.length]
          const answer = await system.call(`${replica}/credentials/ACC-${realm}/refresh`, {
            method: 'POST',
          })
          expect(answer.status).toBe(200)
          const { Name, Version } = (await answer.json()) as { Name: string; Version: number }
          told.push(`${Name}/${Version}/refreshed`)
        }
      }
      const after = await sandboxOf(system).allCalls()
      const calls = REALMS.map(
        (realm) => (after.get(realm)?.granted ?? 0) - (before.get(realm)?.granted ?? 0),
      )
      expect(calls).toEqual(REALMS.map(() => ROUNDS))
      expect(events.ids).toEqual([])

      line.restore()
      await outboxRelayed()
      expect(await events.end()).toEqual(told)
      console.log(`RabbitMQ ${trouble}: ${told.length} refreshes, ${told.length} events after it`)
    },
  )
})
