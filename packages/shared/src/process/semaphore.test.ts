import { describe, expect, it } from 'vitest'
import { createSemaphore } from './semaphore.ts'

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
})
