import { describe, expect, it } from 'vitest'
import { createCoolDowns } from './cool-downs.ts'

function coolDownsAt(start: number) {
  const clock = { now: start }
  return { clock, coolDowns: createCoolDowns(() => clock.now) }
}

describe('the cool-down of a credential', () => {
  it('ends a cool-down after the Retry-After of its 429, and affects that credential only', () => {
    const { clock, coolDowns } = coolDownsAt(5_000)
    expect(coolDowns.start('ACC-1', 3_000)).toBe(3_000)
    expect(coolDowns.delayOf('ACC-2')).toBeNull()
    clock.now += 2_999
    expect(coolDowns.delayOf('ACC-1')).not.toBeNull()
    clock.now += 1
    expect(coolDowns.delayOf('ACC-1')).toBeNull()
  })

  it('spaces the calls of waiting steps 100 ms apart when a cool-down ends', () => {
    const { clock, coolDowns } = coolDownsAt(0)
    const delays = [coolDowns.start('ACC-1', 3_000), coolDowns.delayOf('ACC-1')]
    clock.now = 1_000
    expect([...delays, coolDowns.delayOf('ACC-1')]).toEqual([3_000, 3_100, 2_200])
  })

  it('ends a cool-down at the latest time that several concurrent 429s named', () => {
    const { clock, coolDowns } = coolDownsAt(0)
    coolDowns.start('ACC-1', 3_000)
    coolDowns.start('ACC-1', 2_000)
    clock.now = 2_500
    expect(coolDowns.delayOf('ACC-1')).toBe(700)
    expect(coolDowns.start('ACC-1', 10_000)).toBe(10_000)
  })

  it('schedules a later step after the steps that are still waiting', () => {
    const { clock, coolDowns } = coolDownsAt(0)
    coolDowns.start('ACC-1', 1_000)
    for (let n = 0; n < 50; n += 1) coolDowns.delayOf('ACC-1')
    clock.now = 900
    expect(coolDowns.start('ACC-1', 1_000)).toBe(1_000 + 51 * 100 - 900)
  })

  it.each([
    ['without Retry-After', null, 60_000],
    ['with Retry-After: 0', 0, 1_000],
    ['with a Retry-After of years', 9e12, 86_400_000],
  ])(
    'lets the cool-down after a 429 %s last between 1 s and a day',
    (_, retryAfterMs, expected) => {
      expect(coolDownsAt(0).coolDowns.start('ACC-1', retryAfterMs)).toBe(expected)
    },
  )
})
