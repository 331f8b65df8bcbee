import { createHealth } from '@integration-host/shared/observability/health'
import { startRelay } from '@integration-host/shared/test-support/relay'
import { createLogger } from '@integration-host/shared/observability/logger'
import { connectRedis } from '@integration-host/shared/redis/connection'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { createRealmLimits, type RealmRates } from '../../realm/throttle.ts'
import { createRedisRateLimiter } from './rate-limiter.ts'
import { createRedisAvailability } from './redis-availability.ts'

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
 * Starts the rate limiter of one gateway replica. Its Redis timeout is long, because a test machine may be busy. A
 * timeout would make the replica count its calls without Redis.
 */
async function replica(rates: RealmRates, address = url, commandTimeoutMs = 10_000) {
  const lines: string[] = []
  const logger = createLogger('test', 'info', { write: (text) => void lines.push(text) })
  const { redis } = opened.use(open(address, 'test', commandTimeoutMs))
  await eventually(() => expect(redis.status).toBe('ready'))
  const availability = createRedisAvailability(logger)
  const limiter = opened.use(
    createRedisRateLimiter({ redis, name: 'throttle', rates, availability }),
  )
  return { limiter, redis, lines, limits: createRealmLimits({ limiter, now: Date.now }) }
}

/** The position of the first reported permit in the arguments of `reservePermits`, and of `isFar` in its reply. */
const FIRST_USAGE = 15
const IS_FAR = 5

const waitLimit =
  (ms = 20_000) =>
  () => ({
    until: Date.now() + ms,
    signal: new AbortController().signal,
  })
/**
 * Returns the highest number of calls within any second. The times are taken from Redis, because a busy test machine
 * can receive a granted permit late.
 */
async function mostWithinASecond({ redis }: Awaited<ReturnType<typeof replica>>): Promise<number> {
  const sentAt = (await redis.zrange('throttle:{1}:calls', 0, '-1', 'WITHSCORES'))
    .filter((_, index) => index % 2 === 1)
    .map(Number)
  // The window is 999 ms instead of 1,000 ms, because Redis rounds the time of a call down to a whole millisecond.
  const within = (from: number) => sentAt.filter((at) => at >= from && at < from + 999).length
  return Math.max(...sentAt.map(within))
}

describe('the rate limits that two gateway replicas share', () => {
  it('two gateway replicas together never exceed the rate limit of a realm, and every waiting call gets a permit', async () => {
    const rates = { perSecond: 10, perMinute: 1_000, concurrent: 1_000 }
    const one = await replica(rates)
    const replicas = [one, await replica(rates)]
    const sentAt: number[] = []
    await Promise.all(
      Array.from({ length: 35 }, async (_, index) => {
        const permit = await replicas[index % 2]?.limits.acquire('1', waitLimit())
        sentAt.push(Date.now())
        permit?.release()
      }),
    )
    expect(sentAt).toHaveLength(35)
    for (const { limiter } of replicas) await limiter[Symbol.asyncDispose]()
    expect(await mostWithinASecond(one)).toBe(10)
    expect(Math.max(...sentAt) - Math.min(...sentAt)).toBeGreaterThan(2_900)
  })

  it('the calls of both gateway replicas count against the limit per minute', async () => {
    const rates = { perSecond: 1_000, perMinute: 6, concurrent: 1_000 }
    const [one, two] = [await replica(rates), await replica(rates)]
    for (let call = 0; call < 3; call += 1)
      for (const { limits } of [one, two]) (await limits.acquire('1', waitLimit())).release()
    await expect(one.limits.acquire('1', waitLimit(5_000))).rejects.toMatchObject({
      code: 'throttled',
      retryAfterSeconds: 60,
    })
    expect(await two.limits.acquire('2', waitLimit(100))).toBeDefined()
  })

  it('a call at one gateway replica can use a concurrency slot that another replica has released', async () => {
    const rates = { perSecond: 1_000, perMinute: 1_000, concurrent: 2 }
    const [one, two] = [await replica(rates), await replica(rates)]
    const first = await one.limits.acquire('1', waitLimit())
    await two.limits.acquire('1', waitLimit())
    await expect(two.limits.acquire('1', waitLimit(200))).rejects.toMatchObject({
      code: 'throttled',
    })
    const third = two.limits.acquire('1', waitLimit())
    first.release()
    expect(await third).toBeDefined()
  })

  it('every gateway replica starts a cool-down of the realm after one replica has received a 429 response', async () => {
    const rates = { perSecond: 1_000, perMinute: 1_000, concurrent: 10 }
    const [one, two] = [await replica(rates), await replica(rates)]
    one.limits.coolDown('1', 60_000)
    one.limits.coolDown('1', 1_000)
    await eventually(async () => {
      await expect(two.limits.acquire('1', waitLimit(1_500))).rejects.toMatchObject({
        code: 'throttled',
        retryAfterSeconds: 60,
      })
    })
    expect(await two.limits.acquire('2', waitLimit(100))).toBeDefined()
  })

  it('the concurrency slots of a dead gateway replica become free when its lease has expired', async () => {
    const rates = { perSecond: 1_000, perMinute: 1_000, concurrent: 1 }
    const dead = await replica(rates)
    await dead.limits.acquire('1', waitLimit())
    const living = await replica(rates)
    // Sets the end of the dead gateway replica's lease to the past, so that the test need not wait 30 seconds for the
    // lease to expire.
    await living.redis.zadd(
      'throttle:{1}:open',
      '1',
      (await living.redis.zrange('throttle:{1}:open', '0', '0'))[0] ?? '',
    )
    expect(await living.limits.acquire('1', waitLimit(1_000))).toBeDefined()
  })

  it('the rate limiter sets an expiry on each of its Redis keys', async () => {
    const { limits, redis } = await replica({ perSecond: 10, perMinute: 10, concurrent: 10 })
    await limits.acquire('1', waitLimit())
    limits.coolDown('1', 1_000)
    await eventually(async () => {
      for (const what of ['calls', 'open', 'hold'])
        expect(await redis.pttl(`throttle:{1}:${what}`)).toBeGreaterThan(0)
    })
  })
})

describe('prefetched permits', () => {
  const wide = { perSecond: 10_000, perMinute: 100_000, concurrent: 100 }

  /**
   * Makes `count` concurrent calls, and returns how many of them get a permit without waiting. The other calls are
   * rejected instead of queued.
   */
  async function permittedAtOnce({ limits }: Awaited<ReturnType<typeof replica>>, count: number) {
    const reserved = Array.from({ length: count }, async () => limits.acquire('1', waitLimit(0)))
    return (await Promise.allSettled(reserved)).filter(({ status }) => status === 'fulfilled')
      .length
  }

  it('the rate limiter grants prefetched permits without a request to Redis while a realm is far from its limits', async () => {
    const { limits, redis } = await replica(wide)
    const reserve = vi.spyOn(redis, 'reservePermits')
    let waited = 0
    for (let call = 0; call < 1_000; call += 1) {
      const permit = limits.acquire('1', waitLimit())
      if (permit instanceof Promise) waited += 1
      ;(await permit).release()
      // This pause lets replies from Redis arrive. Real callers pause between their calls, too.
      if (call % 20 === 0) await new Promise((resolve) => setImmediate(resolve))
    }
    expect(waited).toBeLessThan(100)
    expect(reserve.mock.calls.length).toBeLessThan(100)
  })

  it('the use of a permit is reported to Redis only if the realm is not far from its limit per second', async () => {
    /** Makes 200 calls, and returns how many of them were reported to Redis as used permits. */
    async function reportedUses(perSecond: number): Promise<number> {
      const { limits, redis } = await replica({ ...wide, perSecond })
      const reserve = vi.spyOn(redis, 'reservePermits')
      for (let call = 0; call < 200; call += 1)
        (await limits.acquire(`${perSecond}`, waitLimit())).release()
      const usages = reserve.mock.calls.flatMap((args) => args.slice(FIRST_USAGE))
      return usages.filter((ago, index) => index % 2 === 1 && Number(ago) >= 0).length
    }
    expect(await reportedUses(wide.perSecond)).toBe(0)
    expect(await reportedUses(220)).toBeGreaterThan(100)
  })

  it('a realm that comes close to its limit per second, after it was far from it, never exceeds the limit', async () => {
    const rates = { perSecond: 400, perMinute: 100_000, concurrent: 1_000 }
    const one = await replica(rates)
    const replicas = [one, await replica(rates)]
    const reserve = vi.spyOn(one.redis, 'reservePermits')
    const from = performance.now()
    ;(await one.limits.acquire('1', waitLimit())).release()
    const reply: unknown = await reserve.mock.results[0]?.value
    expect(reply).toMatchObject({ [IS_FAR]: 1 })
    await Promise.all(
      Array.from({ length: 100 }, async (_, caller) => {
        for (let call = 0; call < 13; call += 1)
          (await replicas[caller % 2]?.limits.acquire('1', waitLimit()))?.release()
      }),
    )
    expect(performance.now() - from).toBeGreaterThan(2_900) // 1,300 calls are more than the limits of three seconds
  })

  it.each([
    ['near its limit', 40],
    ['far from its limit', 400],
  ])(
    'the prefetched permits of a realm that was %s count against the rate limit as long as they may still be used',
    async (_where, perSecond) => {
      const rates = { perSecond, perMinute: 10_000, concurrent: 10_000 }
      const [one, two] = [await replica(rates), await replica(rates)]
      expect(await permittedAtOnce(one, 1)).toBe(1)
      // After this pause, more than one second has passed since the permits were reserved. The permits still count,
      // because a prefetched permit may be used for two seconds.
      await new Promise((resolve) => setTimeout(resolve, 1_200))
      let permitted = 0
      // Each gateway replica makes calls twice, because a replica prefetches permits during its first calls and uses the
      // prefetched permits for its second calls.
      for (const each of [two, two, one, one])
        permitted += await permittedAtOnce(each, perSecond + 20)
      expect(permitted).toBeLessThanOrEqual(perSecond)
      expect(permitted).toBeGreaterThanOrEqual(perSecond * 0.75)
    },
  )

  it('the calls of three gateway replicas with prefetched permits stay within the rate and concurrency limits of a realm', async () => {
    const rates = { perSecond: 30, perMinute: 70, concurrent: 12 }
    const one = await replica(rates)
    const replicas = [one, await replica(rates), await replica(rates)]
    let sent = 0
    let inFlight = 0
    let most = 0
    let rejected = 0
    const caller = async ({ limits }: (typeof replicas)[number], pauseMs: () => number) => {
      for (let made = 0; made < 40; made += 1) {
        try {
          const permit = await limits.acquire('1', waitLimit(3_000))
          sent += 1
          most = Math.max(most, (inFlight += 1))
          await new Promise((resolve) => setTimeout(resolve, pauseMs()))
          inFlight -= 1
          permit.release()
        } catch {
          rejected += 1
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
    // Nearly all of the 70 permitted calls per minute are made, because each replica returns the prefetched permits
    // that it did not use.
    expect(sent).toBeGreaterThanOrEqual(60)
    expect(rejected).toBe(18)
    for (const { limiter } of replicas) await limiter[Symbol.asyncDispose]()
    expect(await mostWithinASecond(one)).toBeLessThanOrEqual(30)
  }, 60_000)

  it('a gateway replica can use the concurrency slots that another replica has prefetched but not used', async () => {
    const rates = { perSecond: 1_000, perMinute: 1_000, concurrent: 8 }
    const [one, two] = [await replica(rates), await replica(rates)]
    ;(await one.limits.acquire('1', waitLimit())).release()
    const reserved = Array.from({ length: 8 }, async () => two.limits.acquire('1', waitLimit()))
    const permits = await Promise.all(reserved)
    expect(await two.redis.hvals('throttle:{1}:places')).toEqual(['8'])
    for (const permit of permits) permit.release()
  })

  it('a gateway replica that shuts down returns its prefetched permits and slots immediately', async () => {
    const { limits, limiter, redis } = await replica({ ...wide, concurrent: 8 })
    ;(await limits.acquire('1', waitLimit())).release()
    expect(await redis.hvals('throttle:{1}:places')).not.toEqual([])
    await limiter[Symbol.asyncDispose]()
    expect(await redis.exists('throttle:{1}:places')).toBe(0)
    expect(await redis.zcard('throttle:{1}:calls')).toBe(1)
  })

  it('the rate limiter grants no prefetched permit during a cool-down', async () => {
    const { limits } = await replica(wide)
    ;(await limits.acquire('1', waitLimit())).release()
    limits.coolDown('1', 60_000)
    await expect(limits.acquire('1', waitLimit(1_000))).rejects.toMatchObject({ code: 'throttled' })
  })
})

describe('the rate limiter while Redis is unavailable', () => {
  it('while Redis is unavailable, each gateway replica counts its own calls, including those from before the failure', async () => {
    await using relay = await startRelay(url, 6379)
    const rates = { perSecond: 1_000, perMinute: 8, concurrent: 1_000 }
    const { limits, redis, lines } = await replica(rates, relay.url, 250)
    for (let call = 0; call < 3; call += 1) (await limits.acquire('1', waitLimit())).release()
    relay.away()
    for (let call = 0; call < 5; call += 1) (await limits.acquire('1', waitLimit())).release()
    await expect(limits.acquire('1', waitLimit(5_000))).rejects.toMatchObject({ code: 'throttled' })
    expect(lines.filter((text) => text.includes('limits only its own calls'))).toHaveLength(1)

    relay.restore()
    await eventually(() => expect(redis.status).toBe('ready'))
    await eventually(
      async () => {
        ;(await limits.acquire('2', waitLimit())).release()
        expect(lines.filter((text) => text.includes('redis is available again'))).toHaveLength(1)
      },
      { everyMs: 200 },
    )
  })

  it('the rate limiter waits for the Redis timeout at most once per second while Redis does not reply to commands', async () => {
    await using relay = await startRelay(url, 6379)
    const rates = { perSecond: 1_000, perMinute: 1_000, concurrent: 1_000 }
    const { limits } = await replica(rates, relay.url, 250)
    ;(await limits.acquire('1', waitLimit())).release()
    relay.stall()
    const from = performance.now()
    for (let call = 0; call < 100; call += 1) (await limits.acquire('1', waitLimit())).release()
    // If each call waited 250 ms for Redis, the test would take 25 seconds.
    expect(performance.now() - from).toBeLessThan(10_000)
  })
})
