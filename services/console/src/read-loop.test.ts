import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { startReadLoop } from './read-loop.ts'

describe('a loop that reads a service at an interval', () => {
  beforeEach(() => void vi.useFakeTimers())
  afterEach(() => void vi.useRealTimers())

  it('reads at once when asked to, and continues at its interval after this read', async () => {
    const closing = new AbortController()
    let reads = 0
    const loop = startReadLoop(async () => void (reads += 1), 4_000, closing.signal)
    await vi.advanceTimersByTimeAsync(1_000)
    expect(reads).toBe(1)
    await loop.readAgain()
    expect(reads).toBe(2)
    await vi.advanceTimersByTimeAsync(3_900)
    expect(reads).toBe(2)
    await vi.advanceTimersByTimeAsync(200)
    expect(reads).toBe(3)
    closing.abort()
    await loop.ended
    await loop.readAgain()
    expect(reads).toBe(3)
  })

  it('reads once more after a read in flight, however often it was asked to, because that read may be too old', async () => {
    const closing = new AbortController()
    let reads = 0
    let answer = (): void => {}
    const loop = startReadLoop(
      () => {
        reads += 1
        return new Promise((resolve) => (answer = resolve))
      },
      4_000,
      closing.signal,
    )
    let isDone = 0
    for (let call = 0; call < 3; call += 1) void loop.readAgain().then(() => (isDone += 1))
    answer()
    await vi.advanceTimersByTimeAsync(0)
    expect({ reads, isDone }).toEqual({ reads: 2, isDone: 0 })
    answer()
    await vi.advanceTimersByTimeAsync(0)
    expect({ reads, isDone }).toEqual({ reads: 2, isDone: 3 })
    closing.abort()
    await loop.ended
    expect(reads).toBe(2)
  })
})
