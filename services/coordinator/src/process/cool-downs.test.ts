import { describe, expect, it } from 'vitest'
import { createCoolDowns } from './cool-downs.ts'

function coolDownsAt(start: number) {
  const clock = { now: start }
  return { clock, coolDowns: createCoolDowns(() => clock.now) }
}

describe('the cool-down of a credential', () => {
  it('ends at the time its 429 named, for that credential only', () => {
    const { clock, coolDowns } = coolDownsAt(5_000)
    expect(coolDowns.start('ACC-1', 3_000)).toBe(3_000)
    expect(coolDowns.delayOf('ACC-2')).toBeNull()
    clock.now += 2_999
    expect(coolDowns.delayOf('ACC-1')).not.toBeNull()
    clock.now += 1
    expect(coolDowns.delayOf('ACC-1')).toBeNull()
  })

  it('gives each waiting step a time of its own, so that they do not all call at once', () => {
    const { clock, coolDowns } = coolDownsAt(0)
    const delays = [coolDowns.start('ACC-1', 3_000), coolDowns.delayOf('ACC-1')]
    clock.now = 1_000
    expect([...delays, coolDowns.delayOf('ACC-1')]).toEqual([3_000, 3_100, 2_200])
  })

  it('is as long as the longest of several concurrent 429s', () => {
    const { clock, coolDowns } = coolDownsAt(0)
    coolDowns.start('ACC-1', 3_000)
    coolDowns.start('ACC-1', 2_000)
    clock.now = 2_500
    expect(coolDowns.delayOf('ACC-1')).toBe(700)
    expect(coolDowns.start('ACC-1', 10_000)).toBe(10_000)
  })

  it('queues later steps behind those that are still waiting', () => {
    const { clock, coolDowns } = coolDownsAt(0)
    coolDowns.start('ACC-1', 1_000)
    for (let n = 0; n < 50; n += 1) coolDowns.delayOf('ACC-1')
    clock.now = 900
    expect(coolDowns.start('ACC-1', 1_000)).toBe(1_000 + 51 * 100 - 900)
  })

  it.each([
    ['no time', null, 60_000],
    ['no time to wait', 0, 1_000],
    ['a time of years', 9e12, 86_400_000],
  ])('is bounded for %s', (_, retryAfterMs, expected) => {
    expect(coolDownsAt(0).coolDowns.start('ACC-1', retryAfterMs)).toBe(expected)
  })
})
