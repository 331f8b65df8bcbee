import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { createProcessLedger, createProcessLimits } from './process-ledger.ts'
import type { Permit, RealmLimits } from './throttle.ts'

const rates = { perSecond: 10, perMinute: 50, concurrent: 4 }
const patient =
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

/** Takes permits as fast as they come and notes when each came. */
async function sendAll(limits: RealmLimits, realm: string, count: number, lastMs = 0) {
  const sentAt: number[] = []
  const calls = Array.from({ length: count }, async (_, index) => {
    const permit = await limits.acquire(realm, patient())
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
  it('lets calls far from the limits through without waiting', () => {
    const permit = createProcessLimits(rates, Date.now).acquire('1', patient())
    expect(permit).not.toBeInstanceOf(Promise)
  })

  it('never lets more out in any second or minute than the provider takes, and loses none', async () => {
    const { sentAt } = await sendAll(createProcessLimits(rates, Date.now), '1', 100)
    expect(sentAt).toHaveLength(100)
    expect(mostWithin(sentAt, 1_000)).toBe(10)
    expect(mostWithin(sentAt, 60_000)).toBe(50)
  })

  it('lets waiting calls out in the order they came', async () => {
    const { order } = await sendAll(createProcessLimits(rates, Date.now), '1', 40)
    expect(order).toEqual(order.toSorted((a, b) => a - b))
  })

  it('keeps no more calls open at a time than allowed, and goes on as soon as one is over', async () => {
    const limits = createProcessLimits({ ...rates, perSecond: 1_000, perMinute: 1_000 }, Date.now)
    let open = 0
    let most = 0
    const calls = Array.from({ length: 20 }, async () => {
      const permit = await limits.acquire('1', patient())
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

  it('does not mix realms: one that waits does not hold up another', async () => {
    const limits = createProcessLimits(rates, Date.now)
    limits.hold('1', 60_000)
    void Promise.resolve(limits.acquire('1', patient())).then((permit: Permit) => permit.release())
    expect(limits.acquire('2', patient())).not.toBeInstanceOf(Promise)
    await vi.advanceTimersByTimeAsync(60_000)
  })

  it('refuses at once a call whose turn comes after its deadline, with the time to come back', async () => {
    const limits = createProcessLimits(rates, Date.now)
    limits.hold('1', 60_000)
    await expect(limits.acquire('1', patient(30_000))).rejects.toMatchObject({
      code: 'throttled',
      retryAfterSeconds: 60,
    })
  })

  it('refuses a call behind others when all of them wait for a hold that outlasts it', async () => {
    const limits = createProcessLimits(rates, Date.now)
    limits.hold('1', 60_000)
    const waiting = Promise.resolve(limits.acquire('1', patient()))
    await expect(limits.acquire('1', patient(30_000))).rejects.toMatchObject({ code: 'throttled' })
    await vi.advanceTimersByTimeAsync(60_000)
    await expect(waiting).resolves.toBeDefined()
  })

  it('tells a waiting call its deadline has come, not later', async () => {
    const limits = createProcessLimits({ ...rates, concurrent: 1 }, Date.now)
    await limits.acquire('1', patient())
    const late = failureOf(limits.acquire('1', patient(5_000)))
    await vi.advanceTimersByTimeAsync(5_060)
    expect(await late).toMatchObject({ code: 'throttled' })
  })

  it('keeps a bounded queue and refuses what would make it longer', async () => {
    const limits = createProcessLimits({ ...rates, concurrent: 1 }, Date.now)
    const first = await limits.acquire('1', patient())
    const waiting = Array.from({ length: 100 }, () => limits.acquire('1', patient()))
    await expect(limits.acquire('1', patient())).rejects.toMatchObject({ code: 'throttled' })
    first.release()
    await expect(waiting[0]).resolves.toBeDefined()
  })

  it('drops a call from the queue when its caller goes, and serves the next', async () => {
    const limits = createProcessLimits({ ...rates, concurrent: 1 }, Date.now)
    const first = await limits.acquire('1', patient())
    const gone = new AbortController()
    const left = failureOf(limits.acquire('1', patient(60_000, gone.signal)))
    const next = limits.acquire('1', patient())
    gone.abort(new Error('gone'))
    expect(await left).toMatchObject({ message: 'gone' })
    first.release()
    await expect(next).resolves.toBeDefined()
  })

  it('never shortens a hold', () => {
    const ledger = createProcessLedger(rates, Date.now)
    ledger.hold('1', 60_000)
    ledger.hold('1', 1_000)
    expect(ledger.heldMs('1')).toBe(60_000)
  })

  it('forgets realms at rest', () => {
    const ledger = createProcessLedger(rates, Date.now)
    for (let realm = 0; realm < 1_000; realm += 1) ledger.record(String(realm))
    vi.setSystemTime(Date.now() + 60_001)
    ledger.record('new')
    ledger.record('0')
    // Still right about what it has kept, and what it has forgotten no longer counts.
    expect(ledger.claim('1')).toHaveProperty('permit')
  })
})
