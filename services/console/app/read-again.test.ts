import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { ACTION_PAUSE_MS, CHANGE_PAUSE_MS, createReadAgain } from './read-again.ts'

describe('the repeated reads of a tab', () => {
  beforeEach(() => void vi.useFakeTimers())
  afterEach(() => void vi.useRealTimers())

  const RUNS = ['runs']
  const RUN = ['run', 'OrderProcess', '1']
  /** Records which queries are read, and at which time after the start. */
  function recorded(readMs: number) {
    const began = performance.now()
    const reads: (readonly [number, string])[] = []
    const again = createReadAgain(([name]) => {
      reads.push([performance.now() - began, String(name)])
      return new Promise((resolve) => setTimeout(resolve, readMs))
    })
    return { again, reads }
  }

  it('the first change is read at once, and further changes together after the pause', async () => {
    const { again, reads } = recorded(100)
    again.request(RUNS)
    await vi.advanceTimersByTimeAsync(1_000)
    for (const key of [RUNS, RUN, RUNS]) again.request(key)
    await vi.advanceTimersByTimeAsync(10_000)
    expect(reads).toEqual([
      [0, 'runs'],
      [100 + CHANGE_PAUSE_MS, 'runs'],
      [100 + CHANGE_PAUSE_MS, 'run'],
    ])
    again.request(RUN)
    expect(reads.at(-1)).toEqual([11_000, 'run'])
  })

  it('an action is read after the short pause, also if it happens during a read, and never while that read is in flight', async () => {
    const { again, reads } = recorded(100)
    again.request(RUNS)
    await vi.advanceTimersByTimeAsync(50)
    again.request(RUNS, true)
    await vi.advanceTimersByTimeAsync(150)
    expect(reads).toHaveLength(1)
    await vi.advanceTimersByTimeAsync(500)
    expect(reads[1]).toEqual([100 + ACTION_PAUSE_MS, 'runs'])
    await vi.advanceTimersByTimeAsync(1_000)
    again.request(RUN)
    again.request(RUNS, true)
    await vi.advanceTimersByTimeAsync(0)
    expect(reads.slice(2)).toEqual([
      [1_700, 'run'],
      [1_700, 'runs'],
    ])
  })

  it('after a stop nothing is read any more', async () => {
    const { again, reads } = recorded(100)
    again.request(RUNS)
    again.request(RUNS, true)
    again.stop()
    again.request(RUN)
    await vi.advanceTimersByTimeAsync(10_000)
    expect(reads).toHaveLength(1)
  })
})
