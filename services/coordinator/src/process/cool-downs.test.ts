import { describe, expect, it } from 'vitest'
import { createCoolDowns } from './cool-downs.ts'

function coolDownsAt(start: number) {
  const clock = { now: start }
  return { clock, coolDowns: createCoolDowns(() => clock.now) }
}

describe('the cool-down of a credential', () => {
  it('a cool-down lasts as long as the Retry-After of the 429, and delays only calls with the same credential', () => {
    const { clock, coolDowns } = coolDownsAt(5_000)
    expect(coolDowns.start('ACC-1', 3_000)).toBe(3_000)
    expect(coolDowns.delayOf('ACC-2')).toBeNull()
    clock.now += 2_999
    expect(coolDowns.delayOf('ACC-1')).not.toBeNull()
    clock.now += 1
    expect(coolDowns.delayOf('ACC-1')).toBeNull()
  })

  it('steps that wait for the end of a cool-down are scheduled 100 ms apart', () => {
    const { clock, coolDowns } = coolDownsAt(0)
    const delays = [coolDowns.start('ACC-1', 3_000), coolDowns.delayOf('ACC-1')]
    clock.now = 1_000
    expect([...delays, coolDowns.delayOf('ACC-1')]).toEqual([3_000, 3_100, 2_200])
  })

  it('if concurrent 429 responses have different Retry-After times, the cool-down ends at the latest of them', () => {
    const { clock, coolDowns } = coolDownsAt(0)
    coolDowns.start('ACC-1', 3_000)
    coolDowns.start('ACC-1', 2_000)
    clock.now = 2_500
    expect(coolDowns.delayOf('ACC-1')).toBe(700)
    expect(coolDowns.start('ACC-1', 10_000)).toBe(10_000)
  })

  it('a step that gets a 429 during a cool-down is scheduled after the steps that already wait', () => {
    const { clock, coolDowns } = coolDownsAt(0)
    coolDowns.start('ACC-1', 1_000)
    for (let n = 0; n < 50; n += 1) coolDowns.delayOf('ACC-1')
    clock.now = 900
    expect(coolDowns.start('ACC-1', 1_000)).toBe(1_000 + 51 * 100 - 900)
  })

  it('a second cool-down of a credential does not assign the times of waiting steps to other steps', () => {
    const { clock, coolDowns } = coolDownsAt(0)
    coolDowns.start('ACC-1', 1_000)
    for (let n = 0; n < 50; n += 1) coolDowns.delayOf('ACC-1') // the last one waits until 6_000
    clock.now = 1_000
    // After the second cool-down, the first calls are those of the step with the 429 and of the steps whose times
    // passed during the cool-down.
    expect(coolDowns.start('ACC-1', 1_000)).toBe(1_000)
    for (let n = 0; n < 9; n += 1) {
      clock.now += 100
      expect(coolDowns.delayOf('ACC-1')).toBe(2_000 - clock.now)
    }
    expect(coolDowns.delayOf('ACC-1')).toBe(6_100 - clock.now)
    clock.now = 6_200
    expect(coolDowns.start('ACC-1', 1_000)).toBe(1_000)
    expect(coolDowns.delayOf('ACC-1')).toBe(1_100)
  })

  it('while many runs of one company wait, its target is called at the permitted rate, and each run is claimed only a few times', () => {
    const { clock, coolDowns } = coolDownsAt(0)
    const runs = 1_000
    const admittedPerSecond = 8
    /** The runs that a worker claims at each time. */
    const due = new Map<number, number[]>([[0, [...Array(runs).keys()]]])
    let [claims, done, admitted, windowEnd] = [0, 0, 0, 0]
    for (; done < runs; clock.now += 10) {
      if (clock.now >= windowEnd) [admitted, windowEnd] = [0, clock.now + 1_000]
      for (const run of due.get(clock.now) ?? []) {
        claims += 1
        let delayMs = coolDowns.delayOf('ACC-1')
        if (delayMs === null && admitted === admittedPerSecond)
          delayMs = coolDowns.start('ACC-1', windowEnd - clock.now)
        if (delayMs === null) {
          admitted += 1
          done += 1
        } else {
          const at = clock.now + Math.max(10, Math.ceil(delayMs / 10) * 10)
          due.set(at, [...(due.get(at) ?? []), run])
        }
      }
      due.delete(clock.now)
    }
    expect(clock.now / 1_000).toBeLessThan((runs / admittedPerSecond) * 1.1)
    expect(claims / runs).toBeLessThan(5)
  })

  it.each([
    ['without Retry-After', null, 60_000],
    ['with Retry-After: 0', 0, 1_000],
    ['with a Retry-After of years', 9e12, 86_400_000],
  ])(
    'the cool-down after a 429 %s lasts at least 1 s and at most a day',
    (_, retryAfterMs, expected) => {
      expect(coolDownsAt(0).coolDowns.start('ACC-1', retryAfterMs)).toBe(expected)
    },
  )
})
