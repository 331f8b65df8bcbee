import { describe, expect, it } from 'vitest'
import { createPace } from './pace.ts'

describe('the pace of a bulk operation', () => {
  it.each([
    [1, 1],
    [30, 6],
    [1_000, 100],
  ])(
    'with a limit of %i actions per second and batches of %i, no second has more actions, however long an action takes',
    (perSecond, batch) => {
      let clock = 5
      const pace = createPace(perSecond, () => clock)
      const starts: number[] = []
      for (let n = 0; n < 3 * perSecond; n += batch) {
        clock += pace.delayMs(batch)
        for (let k = 0; k < batch; k += 1) {
          pace.started()
          starts.push(clock)
          clock += (n + k) % 7 === 0 ? 40 : 0
        }
      }
      const most = starts.map(
        (at, first) => starts.filter((t, k) => k >= first && t < at + 1_000).length,
      )
      expect(Math.max(...most)).toBeLessThanOrEqual(perSecond)
    },
  )

  it('the actions of a bulk operation are spread evenly over each second', () => {
    let clock = 0
    const pace = createPace(50, () => clock)
    const delays = [1, 2, 3].map(() => {
      const delay = pace.delayMs(10)
      clock += delay
      return delay
    })
    expect(delays).toEqual([0, 200, 200])
  })
})
