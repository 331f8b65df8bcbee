import { describe, expect, it } from 'vitest'
import { firstPace, MAX_SIZE, nextPace, type PurgePace } from './purge-pace.ts'

/** Returns the pace (batch size and pause) of a purge after `times` full batches in which each run takes `perRunMs`. */
function paceAfter(from: PurgePace, times: number, perRunMs: number): PurgePace {
  let pace = from
  for (let n = 0; n < times; n += 1) pace = nextPace(pace, pace.size, pace.size * perRunMs)
  return pace
}

describe('the pace of the purge', () => {
  it('the purge makes its batch larger if a batch takes less than 40 ms, up to 1,000 runs', () => {
    expect(paceAfter(firstPace, 1, 0.01).size).toBe(200)
    expect(paceAfter(firstPace, 20, 0.01).size).toBe(MAX_SIZE)
    expect(paceAfter(firstPace, 20, 0.1).size).toBe(400)
  })

  it('the purge makes its batch smaller at once when a run takes longer, but not smaller than 100 runs', () => {
    const fast = paceAfter(firstPace, 20, 0.1)
    expect(nextPace(fast, 400, 80).size).toBe(200)
    expect(nextPace(fast, 400, 4_000).size).toBe(100)
  })

  it('the pause after a batch of the purge grows with the square of the slowdown, up to four times the batch duration', () => {
    const fast = paceAfter(firstPace, 20, 0.1)
    expect(fast.pauseMs).toBeCloseTo(10, 1)
    expect(nextPace(fast, 400, 80).pauseMs).toBeCloseTo(80, 0)
    expect(nextPace(fast, 400, 160).pauseMs).toBeCloseTo(640, -1)
    expect(nextPace(fast, 400, 400).pauseMs).toBeCloseTo(1_600, -1)
  })

  it('after 600 equally slow batches, the purge treats their duration as normal, and its pauses are short again', () => {
    const fast = paceAfter(firstPace, 20, 0.1)
    expect(paceAfter(fast, 1, 0.3).pauseMs).toBeGreaterThan(80)
    expect(paceAfter(fast, 600, 0.3).pauseMs).toBeCloseTo(10, 1)
  })

  it('the purge does not treat a small last batch as a slowdown, although each run in it takes longer', () => {
    const fast = paceAfter(firstPace, 20, 0.1)
    const last = nextPace(fast, 1, 4)
    expect(last).toMatchObject({ size: fast.size, bestMs: fast.bestMs, pauseMs: 1 })
  })
})
