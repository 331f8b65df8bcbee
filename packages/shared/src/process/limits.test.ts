import { describe, expect, it } from 'vitest'
import { createSemaphore, createRateLimit } from './limits.ts'

describe('a semaphore from createSemaphore()', () => {
  it('a semaphore runs at most one task per permit at a time, and starts waiting tasks in the order of their calls', async () => {
    const semaphore = createSemaphore(2)
    const started: number[] = []
    const gates = Array.from({ length: 4 }, () => Promise.withResolvers<void>())
    const runs = gates.map((gate, index) =>
      semaphore.run(async () => {
        started.push(index)
        await gate.promise
        return index
      }),
    )
    await Promise.resolve()
    expect(started).toEqual([0, 1])
    gates[1]?.resolve()
    await runs[1]
    expect(started).toEqual([0, 1, 2])
    for (const gate of gates) gate.resolve()
    expect(await Promise.all(runs)).toEqual([0, 1, 2, 3])
  })

  it('a task that fails returns its permit to the semaphore', async () => {
    const semaphore = createSemaphore(1)
    const failing = semaphore.run(async () => Promise.reject(new Error('failed')))
    await expect(failing).rejects.toThrow('failed')
    expect(await semaphore.run(async () => 'ran')).toBe('ran')
  })

  it('a semaphore rejects a caller if its queue is full or the longest wait has passed', async () => {
    const semaphore = createSemaphore(1)
    const release = await semaphore.acquire({ queueLength: 1, waitMs: 60_000 })
    const waiting = semaphore.acquire({ queueLength: 1, waitMs: 60_000 })
    expect(await semaphore.acquire({ queueLength: 1, waitMs: 60_000 })).toBeNull()
    release?.()
    const second = await waiting
    expect(second).not.toBeNull()
    expect(await semaphore.acquire({ queueLength: 1, waitMs: 1 })).toBeNull()
    second?.()
    expect(await semaphore.run(async () => 'ran')).toBe('ran')
  })

  /** Occupies the only permit, and returns a function that lets callers wait and records the order of their permits. */
  async function occupied(limits: { queueLength: number; laneLength?: number }) {
    const semaphore = createSemaphore(1)
    const release = await semaphore.acquire({ ...limits, waitMs: 60_000 })
    const order: string[] = []
    const wait = async (lane: string, name: string): Promise<void> => {
      const own = await semaphore.acquire({ ...limits, waitMs: 60_000, lane })
      order.push(own === null ? `${name} left` : name)
      own?.()
    }
    return { wait, order, release: () => release?.() }
  }

  it('a semaphore gives its permits to the groups in turn, and within a group in the order of the calls', async () => {
    const { wait, order, release } = await occupied({ queueLength: 10 })
    const waiting = [
      ...['a1', 'a2', 'a3', 'a4'].map((name) => wait('a', name)),
      ...['b1', 'b2'].map((name) => wait('b', name)),
      wait('c', 'c1'),
    ]
    release()
    await Promise.all(waiting)
    expect(order).toEqual(['a1', 'b1', 'c1', 'a2', 'b2', 'a3', 'a4'])
  })

  it('a group that fills the queue of a semaphore makes room for callers of smaller groups', async () => {
    const { wait, order, release } = await occupied({ queueLength: 3 })
    const waiting = [
      ...['a1', 'a2', 'a3', 'a4'].map((name) => wait('a', name)),
      wait('b', 'b1'),
      wait('c', 'c1'),
      wait('d', 'd1'),
    ]
    release()
    await Promise.all(waiting)
    // When each group has one caller, no caller leaves for another one.
    expect(order).toEqual(['a4 left', 'a3 left', 'a2 left', 'd1 left', 'a1', 'b1', 'c1'])
  })

  it('a group cannot have more waiting callers at a semaphore than its own limit', async () => {
    const { wait, order, release } = await occupied({ queueLength: 10, laneLength: 1 })
    const waiting = [wait('a', 'a1'), wait('a', 'a2'), wait('b', 'b1')]
    release()
    await Promise.all(waiting)
    expect(order).toEqual(['a2 left', 'a1', 'b1'])
  })
})

it('a rate limit allows at most the given number of operations in each interval', () => {
  let now = 1_000
  const limit = createRateLimit({ count: 2, intervalMs: 100, now: () => now })
  const taken = () => [limit.take(), limit.take(), limit.take()]
  expect(taken()).toEqual([true, true, false])
  now += 99
  expect(limit.take()).toBe(false)
  now += 1
  expect(taken()).toEqual([true, true, false])
})

it('a group of callers that has used up its share of a rate limit does not affect the other groups', () => {
  let now = 0
  const limit = createRateLimit({ count: 3, perLane: 2, intervalMs: 100, now: () => now })
  expect(['a', 'a', 'a', 'b', 'c'].map((lane) => limit.take(lane))).toEqual([
    true,
    true,
    false,
    true,
    false, // the limit of all groups
  ])
  now = 100
  expect(limit.take('a')).toBe(true)
})
