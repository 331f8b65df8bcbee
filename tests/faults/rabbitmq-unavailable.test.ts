/**
 * RabbitMQ becomes unavailable while three token-services, each a separate OS process, refresh the credentials of
 * companies. The refreshes must continue, and their events must wait in the outbox.
 */
import { eventually } from '@integration-host/shared/test-support/eventually'
import { type Relay, startRelay } from '@integration-host/shared/test-support/relay'
import { type ChannelModel, connect } from 'amqplib'
import { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  collectCredentialEvents,
  type CredentialEventCollector,
} from '../support/clients/credential-events.ts'
import { sandboxClient } from '../support/clients/sandbox.ts'
import { connectCompany } from '../support/clients/user-actions.ts'
import { backend, startSystem, type System } from '../support/system.ts'

const REALMS = ['9341500001', '9341500002', '9341500003', '9341500004']
const ROUNDS = 5

describe('token-service while RabbitMQ is unavailable', () => {
  let system: System
  let broker: ChannelModel
  let relay: Relay
  let redis: Redis
  let replicas: readonly string[]
  let events: CredentialEventCollector

  beforeAll(async () => {
    system = await startSystem(['sandbox-provider'])
    broker = await connect(backend('TEST_AMQP_URL'))
    relay = await startRelay(backend('TEST_AMQP_URL'), 5672)
    redis = new Redis(backend('TEST_REDIS_URL'), { keyPrefix: system.redisKeyPrefix })
    const env = { AMQP_URL: relay.url }
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
    events = await collectCredentialEvents(broker, system)
  })
  afterEach(() => relay.restore())
  afterAll(async () => {
    redis.disconnect()
    await system[Symbol.asyncDispose]()
    await relay[Symbol.asyncDispose]()
    await broker.close()
  })

  const outboxRelayed = (): Promise<void> =>
    eventually(async () => expect(await redis.xlen('credentials:outbox')).toBe(0))

  it.each(['away', 'stall'] as const)(
    'token-service refreshes while RabbitMQ is unavailable (%s), and publishes each event once and in order afterwards',
    async (fault) => {
      const before = await sandboxClient(system).allCalls()
      relay[fault]()
      const expected: string[] = []
      for (let round = 0; round < ROUNDS; round += 1) {
        for (const [index, realm] of REALMS.entries()) {
          const replica = replicas[(round + index) % replicas.length]
          const response = await system.call(`${replica}/credentials/ACC-${realm}/refresh`, {
            method: 'POST',
          })
          expect(response.status).toBe(200)
          const { Name, Version } = (await response.json()) as { Name: string; Version: number }
          expected.push(`${Name}/${Version}/refreshed`)
        }
      }
      const after = await sandboxClient(system).allCalls()
      const calls = REALMS.map(
        (realm) => (after.get(realm)?.granted ?? 0) - (before.get(realm)?.granted ?? 0),
      )
      expect(calls).toEqual(REALMS.map(() => ROUNDS))
      expect(events.ids).toEqual([])

      relay.restore()
      await outboxRelayed()
      expect(await events.stop()).toEqual(expected)
      console.log(
        `RabbitMQ fault "${fault}": ${expected.length} refreshes meanwhile, ${expected.length} events published afterwards`,
      )
    },
  )
})
