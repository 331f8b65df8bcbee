import { createHealth } from '@integration-host/shared/observability/health'
import { startRelay } from '@integration-host/shared/test-support/relay'
import { createLogger } from '@integration-host/shared/observability/logger'
import { connectRedis } from '@integration-host/shared/redis/connection'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { createRealmLimits, type RealmRates } from '../../realm/throttle.ts'
import { createRedisLedger, createRedisPresence } from './ledger.ts'

const url = process.env['TEST_REDIS_URL'] ?? ''
let opened: AsyncDisposableStack
let keyPrefix: string

beforeEach(() => {
  opened = new AsyncDisposableStack()
  keyPrefix = `test-${crypto.randomUUID().slice(0, 8)}:`
})
afterEach(async () => {
  const { redis } = opened.use(open(url, 'cleaner', 10_000))
  await eventually(() => expect(redis.status).toBe('ready'))
  const keys = await redis.keys(`${keyPrefix}*`)
  await Promise.all(keys.map((key) => redis.del(key.slice(keyPrefix.length))))
  await opened.disposeAsync()
})

function open(address: string, name: string, commandTimeoutMs: number) {
  const dependency = createHealth(createLogger('test', 'silent')).dependency('redis', 'optional')
  return connectRedis(new Secret(address), { name, dependency, keyPrefix, commandTimeoutMs })
}

/**
 * One replica of the gateway, as far as its throttle goes. It waits long for Redis: a busy machine must not
 * make it count alone.
 */
async function replica(rates: RealmRates, address = url, commandTimeoutMs = 10_000) {
  const lines: string[] = []
  const logger = createLogger('test', 'info', { write: (text) => void lines.push(text) })
  const { redis } = opened.use(open(address, 'test', commandTimeoutMs))
  await eventually(() => expect(redis.status).toBe('ready'))
  const presence = createRedisPresence(logger)
  const ledger = opened.use(createRedisLedger({ redis, name: 'throttle', rates, presence }))
  return { ledger, redis, lines, limits: createRealmLimits({ ledger, now: Date.now }) }
}

const patience =
  (ms = 20_000) =>
  () => ({
    until: Date.now() + ms,
    signal: new AbortController().signal,
  })
/** The most calls within any second, by Redis's clock: this process may hear late of its permits. */
async function mostWithinASecond({ redis }: Awaited<ReturnType<typeof replica>>): Promise<number> {
  const sentAt = (await redis.zrange('throttle:{1}:calls', 0, '-1', 'WITHSCORES'))
    .filter((_, index) => index % 2 === 1)
    .map(Number)
  // A millisecond less: both its ends are rounded.
  const within = (from: number) => sentAt.filter((at) => at >= from && at < from + 999).length
  return Math.max(...sentAt.map(within))
}

describe('the throttle over two replicas', () => {
  it('lets out together what one realm may send, and loses no call', async () => {
    const rates = { perSecond: 10, perMinute: 1_000, concurrent: 1_000 }
    const one = await replica(rates)
    const replicas = [one, await replica(rates)]
    const sentAt: number[] = []
    await Promise.all(
      Array.from({ length: 35 }, async (_, index) => {
        const permit = await replicas[index % 2]?.limits.acquire('1', patience())
        sentAt.push(Date.now())
        permit?.release()
      }),
    )
    expect(sentAt).toHaveLength(35)
    for (const { ledger } of replicas) await ledger[Symbol.asyncDispose]()
    expect(await mostWithinASecond(one)).toBe(10)
    expect(Math.max(...sentAt) - Math.min(...sentAt)).toBeGreaterThan(2_900)
  })

  it('counts the minute over both', async () => {
    const rates = { perSecond: 1_000, perMinute: 6, concurrent: 1_000 }
    const [one, two] = [await replica(rates), await replica(rates)]
    for (let call = 0; call < 3; call += 1)
      for (const { limits } of [one, two]) (await limits.acquire('1', patience())).release()
    await expect(one.limits.acquire('1', patience(5_000))).rejects.toMatchObject({
      code: 'throttled',
      retryAfterSeconds: 60,
    })
    expect(await two.limits.acquire('2', patience(100))).toBeDefined()
  })

  it('keeps the places of both together, and gives one that is free again to whoever waits', async () => {
    const rates = { perSecond: 1_000, perMinute: 1_000, concurrent: 2 }
    const [one, two] = [await replica(rates), await replica(rates)]
    const first = await one.limits.acquire('1', patience())
    await two.limits.acquire('1', patience())
    await expect(two.limits.acquire('1', patience(200))).rejects.toMatchObject({
      code: 'throttled',
    })
    const third = two.limits.acquire('1', patience())
    first.release()
    expect(await third).toBeDefined()
  })

  it('holds a realm on every replica after a 429 that one has seen', async () => {
    const rates = { perSecond: 1_000, perMinute: 1_000, concurrent: 10 }
    const [one, two] = [await replica(rates), await replica(rates)]
    one.limits.hold('1', 60_000)
    one.limits.hold('1', 1_000)
    await eventually(async () => {
      await expect(two.limits.acquire('1', patience(1_500))).rejects.toMatchObject({
        code: 'throttled',
        retryAfterSeconds: 60,
      })
    })
    expect(await two.limits.acquire('2', patience(100))).toBeDefined()
  })

  it('gives back the places of a replica that died', async () => {
    const rates = { perSecond: 1_000, perMinute: 1_000, concurrent: 1 }
    const dead = await replica(rates)
    await dead.limits.acquire('1', patience())
    const living = await replica(rates)
    // Its lease as it stands half a minute later.
    await living.redis.zadd(
      'throttle:{1}:open',
      '1',
      (await living.redis.zrange('throttle:{1}:open', '0', '0'))[0] ?? '',
    )
    expect(await living.limits.acquire('1', patience(1_000))).toBeDefined()
  })

  it('leaves nothing in Redis that does not expire', async () => {
    const { limits, redis } = await replica({ perSecond: 10, perMinute: 10, concurrent: 10 })
    await limits.acquire('1', patience())
    limits.hold('1', 1_000)
    await eventually(async () => {
      for (const what of ['calls', 'open', 'hold'])
        expect(await redis.pttl(`throttle:{1}:${what}`)).toBeGreaterThan(0)
    })
  })
})

describe('a slice that is borrowed ahead', () => {
  const wide = { perSecond: 10_000, perMinute: 100_000, concurrent: 100 }

  /** How many of `count` calls at once have a permit at once. */
  async function permittedAtOnce({ limits }: Awaited<ReturnType<typeof replica>>, count: number) {
    const claims = Array.from({ length: count }, async () => limits.acquire('1', patience(0)))
    return (await Promise.allSettled(claims)).filter(({ status }) => status === 'fulfilled').length
  }

  it('lets a realm far from its limits call without asking Redis', async () => {
    const { limits, redis } = await replica(wide)
    const asked = vi.spyOn(redis, 'borrowPermits')
    let waited = 0
    for (let call = 0; call < 1_000; call += 1) {
      const permit = limits.acquire('1', patience())
      if (permit instanceof Promise) waited += 1
      ;(await permit).release()
      // Answers of Redis come in between, as they do between calls.
      if (call % 20 === 0) await new Promise((resolve) => setImmediate(resolve))
    }
    expect(waited).toBeLessThan(100)
    expect(asked.mock.calls.length).toBeLessThan(100)
  })

  it('counts until the last moment at which it may be used', async () => {
    const rates = { perSecond: 40, perMinute: 1_000, concurrent: 1_000 }
    const [one, two] = [await replica(rates), await replica(rates)]
    expect(await permittedAtOnce(one, 1)).toBe(1)
    // Longer than the second in which it was borrowed, shorter than it is good for.
    await new Promise((resolve) => setTimeout(resolve, 1_200))
    let permitted = 0
    // Twice: what the first time was lent beside is used the second time.
    for (const each of [two, two, one, one]) permitted += await permittedAtOnce(each, 60)
    expect(permitted).toBeLessThanOrEqual(40)
    expect(permitted).toBeGreaterThanOrEqual(30)
  })

  it('never makes three replicas together exceed the rates or the places', async () => {
    const rates = { perSecond: 30, perMinute: 70, concurrent: 12 }
    const one = await replica(rates)
    const replicas = [one, await replica(rates), await replica(rates)]
    let sent = 0
    let underWay = 0
    let most = 0
    let refused = 0
    const caller = async ({ limits }: (typeof replicas)[number], pauseMs: () => number) => {
      for (let made = 0; made < 40; made += 1) {
        try {
          const permit = await limits.acquire('1', patience(3_000))
          sent += 1
          most = Math.max(most, (underWay += 1))
          await new Promise((resolve) => setTimeout(resolve, pauseMs()))
          underWay -= 1
          permit.release()
        } catch {
          refused += 1
          return
        }
        await new Promise((resolve) => setTimeout(resolve, pauseMs()))
      }
    }
    await Promise.all(
      replicas.flatMap((each) =>
        Array.from({ length: 6 }, () => caller(each, () => Math.random() * 120)),
      ),
    )
    expect(most).toBeLessThanOrEqual(12)
    expect(sent).toBeLessThanOrEqual(70)
    // All of it can be had: what one has in stock comes back to the others.
    expect(sent).toBeGreaterThanOrEqual(60)
    expect(refused).toBe(18)
    for (const { ledger } of replicas) await ledger[Symbol.asyncDispose]()
    expect(await mostWithinASecond(one)).toBeLessThanOrEqual(30)
  }, 60_000)

  it('comes back when its replica has no use for it', async () => {
    const rates = { perSecond: 1_000, perMinute: 1_000, concurrent: 8 }
    const [one, two] = [await replica(rates), await replica(rates)]
    ;(await one.limits.acquire('1', patience())).release()
    const claims = Array.from({ length: 8 }, async () => two.limits.acquire('1', patience()))
    const permits = await Promise.all(claims)
    expect(await two.redis.hvals('throttle:{1}:places')).toEqual(['8'])
    for (const permit of permits) permit.release()
  })

  it('comes back at once from a replica that leaves', async () => {
    const { limits, ledger, redis } = await replica({ ...wide, concurrent: 8 })
    ;(await limits.acquire('1', patience())).release()
    expect(await redis.hvals('throttle:{1}:places')).not.toEqual([])
    await ledger[Symbol.asyncDispose]()
    expect(await redis.exists('throttle:{1}:places')).toBe(0)
    expect(await redis.zcard('throttle:{1}:calls')).toBe(1)
  })

  it('is of no use while the realm is held', async () => {
    const { limits } = await replica(wide)
    ;(await limits.acquire('1', patience())).release()
    limits.hold('1', 60_000)
    await expect(limits.acquire('1', patience(1_000))).rejects.toMatchObject({ code: 'throttled' })
  })
})

describe('without Redis', () => {
  it('each replica counts alone and goes on, with what it has sent before; told once each way', async () => {
    await using relay = await startRelay(url, 6379)
    const rates = { perSecond: 1_000, perMinute: 8, concurrent: 1_000 }
    const { limits, redis, lines } = await replica(rates, relay.url, 250)
    for (let call = 0; call < 3; call += 1) (await limits.acquire('1', patience())).release()
    relay.away()
    for (let call = 0; call < 5; call += 1) (await limits.acquire('1', patience())).release()
    await expect(limits.acquire('1', patience(5_000))).rejects.toMatchObject({ code: 'throttled' })
    expect(lines.filter((text) => text.includes('counts its calls alone'))).toHaveLength(1)

    relay.restore()
    await eventually(() => expect(redis.status).toBe('ready'))
    await eventually(
      async () => {
        ;(await limits.acquire('2', patience())).release()
        expect(lines.filter((text) => text.includes('Redis is back'))).toHaveLength(1)
      },
      { everyMs: 200 },
    )
  })

  it('a silent Redis costs one call a moment, not every call', async () => {
    await using relay = await startRelay(url, 6379)
    const rates = { perSecond: 1_000, perMinute: 1_000, concurrent: 1_000 }
    const { limits } = await replica(rates, relay.url, 250)
    ;(await limits.acquire('1', patience())).release()
    relay.stall()
    const from = performance.now()
    for (let call = 0; call < 100; call += 1) (await limits.acquire('1', patience())).release()
    // Were each call to wait its 250 ms for Redis, these would be 25 seconds.
    expect(performance.now() - from).toBeLessThan(10_000)
  })
})
