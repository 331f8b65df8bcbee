import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { connectRedis } from '@integration-host/shared/redis/connection'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { expect, it } from 'vitest'
import { describeUsageStore } from '../../usage/usage-store.contract.ts'
import { createRedisUsageStore } from './usage-store.ts'

async function open() {
  const keyPrefix = `test-${crypto.randomUUID().slice(0, 8)}:`
  const dependency = createHealth(createLogger('test', 'silent')).dependency('redis')
  const connection = connectRedis(new Secret(process.env['TEST_REDIS_URL'] ?? ''), {
    name: 'test',
    dependency,
    keyPrefix,
    commandTimeoutMs: 10_000,
  })
  const { redis } = connection
  await eventually(() => expect(redis.status).toBe('ready'))
  return {
    redis,
    store: createRedisUsageStore(redis),
    async [Symbol.asyncDispose]() {
      const keys = await redis.keys(`${keyPrefix}*`)
      await Promise.all(keys.map((key) => redis.del(key.slice(keyPrefix.length))))
      await connection[Symbol.asyncDispose]()
    },
  }
}

describeUsageStore('Redis', open)

it('two gateway replicas add to the same counts, and Redis deletes the counts after 400 days without calls', async () => {
  await using one = await open()
  const other = createRedisUsageStore(one.redis)
  await Promise.all(
    Array.from({ length: 50 }, (_, n) =>
      (n % 2 === 0 ? one.store : other).add('2026-11', [{ realm: '1', calls: { query: 1 } }]),
    ),
  )
  expect(await one.store.total('2026-11')).toEqual({ query: 50 })
  for (const key of ['calls', 'total', 'realms'])
    expect(await one.redis.ttl(`usage:{2026-11}:${key}`)).toBeGreaterThan(399 * 86_400)
})
