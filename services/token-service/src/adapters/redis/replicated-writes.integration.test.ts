import { randomBytes } from 'node:crypto'
import { createHealth } from '@integration-host/shared/observability/health'
import { connectRedis } from '@integration-host/shared/redis/connection'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type RedisPair, startRedisPair } from '../../../../../tests/support/backends/redis-pair.ts'
import { silent } from '../../../test-support/service-fixture.ts'
import { createReplicatedWrites } from './replicated-writes.ts'

let pair: RedisPair
let cleanup: AsyncDisposableStack

beforeAll(async () => {
  pair = await startRedisPair()
})
afterAll(() => pair[Symbol.asyncDispose]())
beforeEach(() => {
  cleanup = new AsyncDisposableStack()
})
afterEach(async () => {
  await cleanup.disposeAsync()
  await pair.primary.config('SET', 'min-replicas-to-write', '0')
})

/** Returns the replicated writes of one process. `setting` is REDIS_REPLICAS. */
async function open(setting: number | undefined, url = pair.address.url) {
  const health = createHealth(silent)
  const name = `writes-${randomBytes(4).toString('hex')}`
  const connect = (dependency: string) =>
    connectRedis(new Secret(url), { name, dependency: health.dependency(dependency) })
  const { redis } = cleanup.use(connect('redis'))
  const writes = cleanup.use(
    createReplicatedWrites({ redis, setting, connect: () => connect('redis-replicated') }),
  )
  await eventually(() => expect(health.report().status).toBe('ready'))
  const connections = async (): Promise<number> =>
    String(await pair.primary.client('LIST')).split(`name=${name} `).length - 1
  return { redis, writes, connections }
}

describe('the number of replicas that must acknowledge a write', () => {
  it('without REDIS_REPLICAS, the server setting min-replicas-to-write applies and is read again on each reconnect', async () => {
    await pair.primary.config('SET', 'min-replicas-to-write', '1')
    const { redis, writes } = await open(undefined)
    expect(await writes.replicas()).toBe(1)
    await pair.primary.config('SET', 'min-replicas-to-write', '0')
    redis.disconnect(true)
    await eventually(async () => expect(await writes.replicas()).toBe(0))
  })

  it('REDIS_REPLICAS takes precedence over the server setting min-replicas-to-write', async () => {
    await pair.primary.config('SET', 'min-replicas-to-write', '1')
    expect(await (await open(0)).writes.replicas()).toBe(0)
  })

  it('no write waits for replicas if the Redis account may not read the server settings', async () => {
    await pair.primary.config('SET', 'min-replicas-to-write', '1')
    const password = randomBytes(8).toString('hex')
    const rules = ['on', `>${password}`, '~*', '+@all', '-config']
    await pair.primary.call('ACL', 'SETUSER', 'limited', ...rules)
    const url = new URL(pair.address.url)
    url.username = 'limited'
    url.password = password
    expect(await (await open(undefined, url.href)).writes.replicas()).toBe(0)
  })
})

describe('writes that replicas must acknowledge', () => {
  it('concurrent replicated writes share one WAIT command', async () => {
    const { writes } = await open(1)
    const waits = async (): Promise<number> =>
      Number(/cmdstat_wait:calls=(\d+)/.exec(await pair.primary.info('commandstats'))?.[1] ?? 0)
    await writes.run((redis) => redis.set('first', '1'))
    const before = await waits()
    await Promise.all(
      Array.from({ length: 100 }, (_, n) => writes.run((redis) => redis.set(`key ${n}`, '1'))),
    )
    expect((await waits()) - before).toBeLessThanOrEqual(2)
    expect(await pair.replica.get('key 99')).toBe('1')
  })

  it('replicated writes use a separate connection, which is not opened if no replica is required', async () => {
    const replicated = await open(1)
    await replicated.writes.run((redis) => redis.set('any', '1'))
    expect(await replicated.connections()).toBe(2)
    const direct = await open(0)
    await direct.writes.run((redis) => redis.set('any', '1'))
    expect(await direct.connections()).toBe(1)
  })

  it('if Redis rejects one write of a batch, only this write fails', async () => {
    const { writes } = await open(1)
    await pair.primary.set('text', 'text')
    const results = await Promise.allSettled([
      writes.run((redis) => redis.set('any', '1')),
      writes.run((redis) => redis.incr('text')),
      writes.run((redis) => redis.set('another', '1')),
    ])
    expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
  })
})
