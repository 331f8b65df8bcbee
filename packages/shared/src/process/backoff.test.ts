import { describe, expect, it } from 'vitest'
import { backoffMs } from './backoff.ts'

describe('backoffMs()', () => {
  it.each([
    [1, 100],
    [2, 200],
    [5, 1_600],
    [6, 2_000],
    [5_000, 2_000],
  ])(
    'backoffMs doubles the pause up to the cap: after attempt %i the pause is %i ms without jitter',
    (attempt, expectedMs) => {
      expect(backoffMs(attempt, { baseMs: 100, capMs: 2_000, random: 1 })).toBe(expectedMs)
    },
  )

  it('backoffMs multiplies the maximum pause by `random` and rounds down to whole milliseconds', () => {
    expect(backoffMs(1, { baseMs: 101, capMs: 2_000, random: 0.5 })).toBe(50)
    expect(backoffMs(1, { baseMs: 101, capMs: 2_000, random: 0 })).toBe(0)
  })
})
