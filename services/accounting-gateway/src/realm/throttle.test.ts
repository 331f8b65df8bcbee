import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { createProcessRateLimiter, createProcessLimits } from './process-rate-limiter.ts'
import { createRealmLimits, type Permit, type RealmLimits } from './throttle.ts'

const rates = { perSecond: 10, perMinute: 50, concurrent: 4 }
const waitLimit =
  (ms = 3_600_000, signal = new AbortController().signal) =>
  () => ({
    until: Date.now() + ms,
    signal,
  })

const failureOf = (permit: Permit | Promise<Permit>): Promise<unknown> =>
  Promise.resolve(permit).then(
    () => null,
    (error: unknown) => error,
  )

beforeEach(() => {
  vi.useFakeTimers({ now: 1_000_000 })
})
afterEach(() => {
  vi.useRealTimers()
})

/** Requests many permits at once, and records the time at which each permit was granted. */
async function sendAll(limits: RealmLimits, realm: string, count: number, lastMs = 0) {
  const sentAt: number[] = []
  const calls = Array.from({ length: count }, async (_, index) => {
    const permit = await limits.acquire(realm, waitLimit())
    sentAt.push(Date.now())
    order.push(index)
    if (lastMs === 0) permit.release()
    else setTimeout(() => permit.release(), lastMs)
  })
  const order: number[] = []
  await vi.advanceTimersByTimeAsync(200_000)
  await Promise.all(calls)
  return { sentAt, order }
}

const mostWithin = (sentAt: readonly number[], windowMs: number): number =>
  Math.max(
    ...sentAt.map((from) => sentAt.filter((at) => at >= from && at < from + windowMs).length),
  )

describe('the throttle of a realm', () => {
  it('the throttle returns a permit synchronously while the realm is far from its limits', () => {
    const permit = createProcessLimits(rates, Date.now).acquire('1', waitLimit())
    expect(permit).not.toBeInstanceOf(Promise)
  })

  it('the throttle grants 100 permits without exceeding the limit in any second or minute', async () => {
    const { sentAt } = await sendAll(createProcessLimits(rates, Date.now), '1', 100)
    expect(sentAt).toHaveLength(100)
    expect(mostWithin(sentAt, 1_000)).toBe(10)
    expect(mostWithin(sentAt, 60_000)).toBe(50)
  })

  it('the throttle grants permits to waiting calls in order of arrival', async () => {
    const { order } = await sendAll(createProcessLimits(rates, Date.now), '1', 40)
    expect(order).toEqual(order.toSorted((a, b) => a - b))
  })

  it('the throttle never permits more calls in flight than the limit, and starts a waiting call as soon as another call ends', async () => {
    const limits = createProcessLimits({ ...rates, perSecond: 1_000, perMinute: 1_000 }, Date.now)
    let open = 0
    let most = 0
    const calls = Array.from({ length: 20 }, async () => {
      const permit = await limits.acquire('1', waitLimit())
      most = Math.max(most, (open += 1))
      setTimeout(() => {
        open -= 1
        permit.release()
      }, 10)
    })
    await vi.advanceTimersByTimeAsync(51)
    await Promise.all(calls)
    expect(most).toBe(4)
  })

  it('the throttle grants a permit for one realm at once even while calls of another realm wait', async () => {
    const limits = createProcessLimits(rates, Date.now)
    limits.coolDown('1', 60_000)
    void Promise.resolve(limits.acquire('1', waitLimit())).then((permit: Permit) =>
      permit.release(),
    )
    expect(limits.acquire('2', waitLimit())).not.toBeInstanceOf(Promise)
    await vi.advanceTimersByTimeAsync(60_000)
  })

  it('the throttle rejects a call at once with Retry-After if no permit is possible before the deadline of the call', async () => {
    const limits = createProcessLimits(rates, Date.now)
    limits.coolDown('1', 60_000)
    await expect(limits.acquire('1', waitLimit(30_000))).rejects.toMatchObject({
      code: 'throttled',
      retryAfterSeconds: 60,
    })
  })

  it('the throttle rejects a call whose deadline is before the end of a cool-down, even while other calls wait', async () => {
    const limits = createProcessLimits(rates, Date.now)
    limits.coolDown('1', 60_000)
    const waiting = Promise.resolve(limits.acquire('1', waitLimit()))
    await expect(limits.acquire('1', waitLimit(30_000))).rejects.toMatchObject({
      code: 'throttled',
    })
    await vi.advanceTimersByTimeAsync(60_000)
    await expect(waiting).resolves.toBeDefined()
  })

  it('while a call waits for the end of a cool-down, the throttle does not ask the rate limiter again', async () => {
    const limiter = createProcessRateLimiter(rates, Date.now)
    const reserve = vi.spyOn(limiter, 'reserve')
    const limits = createRealmLimits({ limiter, now: Date.now })
    limiter.coolDown('1', 60_000)
    const waiting = limits.acquire('1', waitLimit())
    // A cool-down that is prolonged meanwhile costs one more reservation.
    limiter.coolDown('1', 90_000)
    await vi.advanceTimersByTimeAsync(89_000)
    expect(reserve).toHaveBeenCalledTimes(2)
    await vi.advanceTimersByTimeAsync(1_000)
    await expect(waiting).resolves.toBeDefined()
    expect(reserve).toHaveBeenCalledTimes(3)
  })

  it('the throttle rejects a waiting call at its deadline', async () => {
    const limits = createProcessLimits({ ...rates, concurrent: 1 }, Date.now)
    await limits.acquire('1', waitLimit())
    const late = failureOf(limits.acquire('1', waitLimit(5_000)))
    await vi.advanceTimersByTimeAsync(5_060)
    expect(await late).toMatchObject({ code: 'throttled' })
  })

  it('the throttle rejects a call if 100 calls of the same realm are already waiting', async () => {
    const limits = createProcessLimits({ ...rates, concurrent: 1 }, Date.now)
    const first = await limits.acquire('1', waitLimit())
    const waiting = Array.from({ length: 100 }, () => limits.acquire('1', waitLimit()))
    await expect(limits.acquire('1', waitLimit())).rejects.toMatchObject({
      code: 'throttled',
      retryAfterSeconds: 1,
    })
    first.release()
    await expect(waiting[0]).resolves.toBeDefined()
  })

  it('the throttle removes a call from the queue when its caller disconnects, and grants the permit to the next call', async () => {
    const limits = createProcessLimits({ ...rates, concurrent: 1 }, Date.now)
    const first = await limits.acquire('1', waitLimit())
    const gone = new AbortController()
    const left = failureOf(limits.acquire('1', waitLimit(60_000, gone.signal)))
    const next = limits.acquire('1', waitLimit())
    gone.abort(new Error('gone'))
    expect(await left).toMatchObject({ message: 'gone' })
    first.release()
    await expect(next).resolves.toBeDefined()
  })

  it('the throttle does not shorten a running cool-down when a shorter cool-down is requested', () => {
    const limiter = createProcessRateLimiter(rates, Date.now)
    limiter.coolDown('1', 60_000)
    limiter.coolDown('1', 1_000)
    expect(limiter.coolDownMs('1')).toBe(60_000)
  })

  it('the throttle evicts a realm from memory if its last call was more than a minute ago', () => {
    const limiter = createProcessRateLimiter(rates, Date.now)
    for (let realm = 0; realm < 1_000; realm += 1) limiter.count(String(realm))
    vi.setSystemTime(Date.now() + 60_001)
    limiter.count('new')
    limiter.count('0')
    // Realm 1 made its only call more than a minute ago. Its next call is therefore permitted whether or not the realm
    // was evicted.
    expect(limiter.reserve('1')).toHaveProperty('permit')
  })
})
