import { IntegrationError } from '@integration-host/shared/errors'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { createMemoryTargetCalls } from '../adapters/memory/target-calls.ts'
import type { CallRequest, TargetCalls } from '../run/target-calls.ts'
import { StepAbort } from './step-abort.ts'
import {
  createTargetLimiter,
  type LimitedCall,
  SLOT_GRACE_MS,
  type TargetLimiterDeps,
} from './target-limiter.ts'

const erp = { Process: 'P', Target: 'erp' }
const now = () => Date.now()
/** The fake timers of the test have no `Symbol.dispose`. */
const fakeClock: TargetLimiterDeps['clock'] = {
  now,
  setTimeout(callback, ms) {
    const timer = setTimeout(callback, ms)
    return { unref: () => {}, [Symbol.dispose]: () => clearTimeout(timer) }
  },
}

/** Starts a limiter on the memory source, and records the requests for reservations. */
function start(change: Partial<TargetCalls> = {}) {
  const requests: CallRequest[] = []
  const source = createMemoryTargetCalls(now)
  const recording: TargetCalls = {
    ...source,
    reserveCall(request) {
      requests.push(request)
      return source.reserveCall(request)
    },
    ...change,
  }
  const limiter = createTargetLimiter({ source: recording, clock: fakeClock })
  const startedAt = now()
  /**
   * For each admitted call: when it was admitted, in milliseconds since the start, and a function that ends the call.
   */
  const admitted: { readonly at: number; readonly end: () => Promise<void> }[] = []
  const admit = async (
    limits: Partial<LimitedCall['limits']>,
    { waitMs = 5_000, ...others }: Partial<LimitedCall> & { readonly waitMs?: number } = {},
  ) => {
    const admission = await limiter.admit({
      target: erp,
      limits: { intervalMs: 0, concurrent: null, ...limits },
      timeoutMs: 1_000,
      waitUntil: now() + waitMs,
      abort: new StepAbort(),
      ...others,
    })
    if (admission.kind === 'admitted') admitted.push({ at: now() - startedAt, end: admission.end })
    return admission
  }
  return { source, requests, limiter, admitted, admit }
}

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

/**
 * The tolerance in milliseconds: a call may be sent this much later than its reserved time, because timers are rounded
 * up.
 */
const TIMER_MS = 2

describe('the limit of calls per second to a target', () => {
  it('calls to a target are sent one interval apart, in the order in which they were requested', async () => {
    const { admit, admitted } = start()
    const order: number[] = []
    for (const n of [1, 2, 3, 4]) void admit({ intervalMs: 500 }).then(() => order.push(n))
    await vi.advanceTimersByTimeAsync(1_500 + TIMER_MS)
    expect(order).toEqual([1, 2, 3, 4])
    for (const [n, { at }] of admitted.entries()) {
      expect(at).toBeGreaterThanOrEqual(n * 500)
      expect(at).toBeLessThanOrEqual(n * 500 + TIMER_MS)
    }
  })

  it('a call that would have to wait too long for its target is deferred to a later start, and reserves nothing', async () => {
    const { admit, admitted } = start()
    await admit({ intervalMs: 2_000 })
    expect(await admit({ intervalMs: 2_000 }, { waitMs: 1_999 })).toEqual({
      kind: 'deferred',
      delayMs: 2_000,
    })
    await vi.advanceTimersByTimeAsync(2_000)
    await admit({ intervalMs: 2_000 }, { waitMs: 0 })
    expect(admitted).toHaveLength(2)
  })

  it('deferred calls to a target are scheduled one interval apart, without a request to the store for each', async () => {
    const { admit, requests } = start()
    const limits = { intervalMs: 10_000 }
    await admit(limits)
    const deferred = [await admit(limits), await admit(limits), await admit(limits)]
    expect(deferred).toEqual(
      [10_000, 20_000, 30_000].map((delayMs) => ({ kind: 'deferred', delayMs })),
    )
    expect(requests).toHaveLength(2)
  })

  it('if the OS process is blocked beyond the reserved time of a call, the call reserves another time and is not sent late', async () => {
    const { admit, admitted } = start()
    const limits = { intervalMs: 200 }
    for (let n = 0; n < 4; n += 1) void admit(limits)
    await vi.advanceTimersByTimeAsync(10)
    expect(admitted).toHaveLength(1)
    // The test lets time pass without firing timers, as if the OS process were blocked.
    vi.setSystemTime(now() + 700)
    await vi.advanceTimersByTimeAsync(590)
    // A limiter that sent late calls at once, instead of reserving another time, would have sent all three waiting
    // calls by now.
    expect(admitted.length).toBeLessThan(4)
    await vi.advanceTimersByTimeAsync(2_000)
    expect(admitted).toHaveLength(4)
    const gaps = admitted.slice(1).map(({ at }, n) => at - (admitted[n]?.at ?? 0))
    for (const gap of gaps) expect(gap).toBeGreaterThanOrEqual(200 - TIMER_MS)
  })
})

describe('the limit of calls in flight to a target', () => {
  it('a call waits until another call to its target has ended, and is then admitted at once', async () => {
    const { admit, admitted } = start()
    const limits = { concurrent: 2 }
    for (let n = 0; n < 3; n += 1) void admit(limits)
    await vi.advanceTimersByTimeAsync(950)
    expect(admitted).toHaveLength(2)
    void admitted[0]?.end()
    // The test moves the clock by less than the interval at which a waiting call polls.
    await vi.advanceTimersByTimeAsync(20)
    expect(admitted).toHaveLength(3)
  })

  it('a waiting call is admitted within a tenth of a second after a call of another replica has ended', async () => {
    const { admit, admitted, source } = start()
    const limits = { intervalMs: 0, concurrent: 1 }
    await source.reserveCall({ ...erp, limits, slot: 'elsewhere', maxWaitMs: 0, holdMs: 60_000 })
    void admit(limits)
    await vi.advanceTimersByTimeAsync(1_000)
    expect(admitted).toHaveLength(0)
    await source.releaseCalls(erp, ['elsewhere'])
    await vi.advanceTimersByTimeAsync(100 + TIMER_MS)
    expect(admitted).toHaveLength(1)
  })

  it('only one of the calls that wait for a slot of their target sends requests to the store', async () => {
    const { admit, requests } = start()
    const limits = { concurrent: 1 }
    await admit(limits)
    for (let n = 0; n < 20; n += 1) void admit(limits)
    await vi.advanceTimersByTimeAsync(1_000)
    expect(requests.length).toBeLessThanOrEqual(12)
  })

  it('calls that find no slot of their target in time are deferred for a second', async () => {
    const { admit } = start()
    const limits = { concurrent: 1 }
    await admit(limits)
    const waiting = [admit(limits), admit(limits)]
    await vi.advanceTimersByTimeAsync(5_000 + TIMER_MS)
    expect(await Promise.all(waiting)).toEqual([
      { kind: 'deferred', delayMs: 1_000 },
      { kind: 'deferred', delayMs: 1_000 },
    ])
  })

  it.each([
    [1_000, 1_000 + SLOT_GRACE_MS],
    [Number.POSITIVE_INFINITY, 1_500_000 + SLOT_GRACE_MS],
    [Number.NaN, SLOT_GRACE_MS],
    [-1, SLOT_GRACE_MS],
  ])(
    'the slot of a call with a time limit of %d ms expires after %d ms',
    async (timeoutMs, holdMs) => {
      const { admit, requests } = start()
      await admit({ concurrent: 1 }, { timeoutMs })
      expect(requests).toMatchObject([{ holdMs }])
    },
  )

  it('if releasing a slot fails, the call neither fails nor ends later', async () => {
    const { admit, admitted } = start({
      releaseCalls: () => Promise.reject(new IntegrationError('store_unavailable', 'down')),
    })
    await admit({ concurrent: 1 })
    const ended = admitted[0]?.end()
    await vi.advanceTimersByTimeAsync(0)
    await expect(ended).resolves.toBeUndefined()
  })

  it('slots of a target whose calls end at the same time are released with one request', async () => {
    const released: (readonly string[])[] = []
    const { admit, admitted } = start({
      releaseCalls: async (_, slots) => void released.push(slots),
    })
    for (let n = 0; n < 3; n += 1) await admit({ concurrent: 3 })
    const ended = admitted.map(({ end }) => end())
    await vi.advanceTimersByTimeAsync(0)
    await Promise.all(ended)
    expect(released.map(({ length }) => length)).toEqual([3])
  })
})

describe('a call that waits for its target', () => {
  it.each([
    ['its time', { intervalMs: 3_000, concurrent: 5 }, 1],
    ['a slot', { intervalMs: 0, concurrent: 1 }, 1],
  ])(
    'if a step is aborted while its call waits for %s, everything that the call has reserved is released',
    async (_, limits, held) => {
      const { admit, source } = start()
      await admit(limits)
      const abort = new StepAbort()
      const waiting = admit(limits, { abort })
      await vi.advanceTimersByTimeAsync(500)
      abort.blockNewCalls()
      await vi.advanceTimersByTimeAsync(0)
      expect(await waiting).toEqual({ kind: 'aborted' })
      // The first call still occupies one slot; all other slots are free.
      await source.coolDownTarget(erp, 0)
      await vi.advanceTimersByTimeAsync(10_000)
      const free = []
      for (let n = 0; n < limits.concurrent; n += 1)
        free.push(
          await source.reserveCall({
            ...erp,
            limits: { intervalMs: 0, concurrent: limits.concurrent },
            slot: `${n}`,
            maxWaitMs: 0,
            holdMs: 1,
          }),
        )
      expect(free.filter(({ kind }) => kind === 'full')).toHaveLength(held)
    },
  )

  it('an aborted step requests no reservation for its target', async () => {
    const { admit, requests } = start()
    const abort = new StepAbort()
    abort.abort('shutdown')
    expect(await admit({ concurrent: 1 }, { abort })).toEqual({ kind: 'aborted' })
    expect(requests).toEqual([])
  })

  it('a call to a target with limits is not sent while the store is unavailable, and later calls are admitted again', async () => {
    let isDown = true
    const source = createMemoryTargetCalls(now)
    const { admit } = start({
      reserveCall: (request) =>
        isDown
          ? Promise.reject(new IntegrationError('store_unavailable', 'down'))
          : source.reserveCall(request),
    })
    expect(await admit({ concurrent: 1 })).toEqual({ kind: 'unavailable' })
    isDown = false
    expect(await admit({ concurrent: 1 })).toMatchObject({ kind: 'admitted' })
  })

  it('a busy target delays neither other targets nor a target of the same name in another process', async () => {
    const { admit, admitted } = start()
    const limits = { concurrent: 1, intervalMs: 60_000 }
    await admit(limits)
    await admit(limits, { target: { Process: 'P', Target: 'crm' } })
    await admit(limits, { target: { Process: 'Q', Target: 'erp' } })
    expect(admitted).toHaveLength(3)
  })

  it('a cool-down of a target delays the calls of all replicas', async () => {
    const { limiter, source } = start()
    await limiter.coolDown(erp, 30_000)
    const other = createTargetLimiter({ source, clock: fakeClock })
    const admission = await other.admit({
      target: erp,
      limits: { intervalMs: 0, concurrent: 1 },
      timeoutMs: 1_000,
      waitUntil: now() + 5_000,
      abort: new StepAbort(),
    })
    expect(admission).toEqual({ kind: 'deferred', delayMs: 30_000 })
  })
})
