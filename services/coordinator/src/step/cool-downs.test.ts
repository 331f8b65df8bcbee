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
    expect(coolDowns.isCoolingDown('ACC-1')).toBe(true)
    clock.now += 1
    expect(coolDowns.isCoolingDown('ACC-1')).toBe(false)
    expect(coolDowns.delayOf('ACC-1')).toBeNull()
  })

  it('steps that wait for the end of a cool-down get start times 100 ms apart: ten calls per second, the permitted rate', () => {
    const { clock, coolDowns } = coolDownsAt(0)
    const delays = [coolDowns.start('ACC-1', 3_000), coolDowns.delayOf('ACC-1')]
    clock.now = 1_000
    expect([...delays, coolDowns.delayOf('ACC-1')]).toEqual([3_000, 3_100, 2_200])
  })

  it('if concurrent 429 responses have different Retry-After times, the cool-down ends at the latest of them', () => {
    const { clock, coolDowns } = coolDownsAt(0)
    coolDowns.start('ACC-1', 3_000)
    coolDowns.start('ACC-1', 2_000)
    clock.now = 2_999
    expect(coolDowns.isCoolingDown('ACC-1')).toBe(true)
    expect(coolDowns.start('ACC-1', 10_000)).toBe(10_000)
  })

  it('a step that gets a 429 during a cool-down is scheduled after the steps that already wait', () => {
    const { clock, coolDowns } = coolDownsAt(0)
    coolDowns.start('ACC-1', 1_000)
    for (let n = 0; n < 50; n += 1) coolDowns.delayOf('ACC-1')
    clock.now = 900
    expect(coolDowns.start('ACC-1', 1_000)).toBe(1_000 + 51 * 100 - 900)
  })

  it('if a new cool-down begins before the start of a step, the step goes to the end of the queue', () => {
    const { clock, coolDowns } = coolDownsAt(0)
    coolDowns.start('ACC-1', 1_000)
    for (let n = 0; n < 50; n += 1) coolDowns.delayOf('ACC-1') // the last one waits until 6_000
    clock.now = 1_000
    expect(coolDowns.start('ACC-1', 1_000)).toBe(6_100 - clock.now)
    clock.now = 1_100
    expect(coolDowns.delayOf('ACC-1')).toBeGreaterThan(6_100 - clock.now)
  })

  it('after a second cool-down, steps call at the rate of the calls that were accepted between the two cool-downs', () => {
    const { clock, coolDowns } = coolDownsAt(0)
    coolDowns.start('ACC-1', 1_000)
    for (let n = 0; n < 200; n += 1) coolDowns.delayOf('ACC-1')
    clock.now = 1_000
    for (let n = 0; n < 4; n += 1) {
      expect(coolDowns.delayOf('ACC-1')).toBeNull()
      coolDowns.accepted('ACC-1')
      clock.now += 100
    }
    coolDowns.start('ACC-1', 1_000)
    let calls = 0
    for (clock.now = 2_400; clock.now < 12_400; clock.now += 10)
      if (coolDowns.delayOf('ACC-1') === null) calls += 1
    // Four calls were accepted within one second between the two cool-downs. So about four calls per second are made in
    // the ten seconds after the latest cool-down.
    expect(calls).toBe(39)
  })

  it('after a first cool-down, the start times have the rate of the calls that were accepted in the preceding second', () => {
    const { clock, coolDowns } = coolDownsAt(0)
    for (let n = 0; n < 4; n += 1) coolDowns.accepted('ACC-1')
    clock.now = 900
    expect([coolDowns.start('ACC-1', 1_000), coolDowns.delayOf('ACC-1')]).toEqual([1_000, 1_225])
  })

  it('when the last start time of the waiting steps has passed, the cool-down and its call rate are forgotten', () => {
    const { clock, coolDowns } = coolDownsAt(0)
    coolDowns.start('ACC-1', 1_000)
    expect(coolDowns.isHeld('ACC-1')).toBe(true)
    clock.now = 1_100
    expect(coolDowns.isHeld('ACC-1')).toBe(false)
    expect(Array.from({ length: 30 }, () => coolDowns.delayOf('ACC-1'))).toEqual(
      Array.from({ length: 30 }, () => null),
    )
  })

  it.each([
    { perSecond: 4, pace: 0.8, claims: 3 },
    { perSecond: 8, pace: 0.8, claims: 3 },
    { perSecond: 100, pace: 0.08, claims: 2.5 },
  ])(
    'if $perSecond calls per second are permitted, 1,000 runs complete with few claims and few 429 responses',
    ({ perSecond, pace, claims }) => {
      const { clock, coolDowns } = coolDownsAt(0)
      const runs = 1_000
      /** Maps a time to the runs that the worker claims at that time. Every 10 ms, the worker claims six new runs. */
      const due = new Map<number, number[]>()
      const claimAt = (at: number, run: number) => due.set(at, [...(due.get(at) ?? []), run])
      for (let run = 0; run < runs; run += 1) claimAt(10 * Math.floor(run / 6), run)
      const counts = { claims: 0, done: 0, rejected: 0 }
      let [admitted, windowEnd] = [0, 0]
      for (; counts.done < runs; clock.now += 10) {
        if (clock.now >= windowEnd) [admitted, windowEnd] = [0, clock.now + 1_000]
        for (const run of due.get(clock.now) ?? []) {
          counts.claims += 1
          let delayMs = coolDowns.delayOf('ACC-1')
          if (delayMs === null && admitted === perSecond) {
            counts.rejected += 1
            delayMs = coolDowns.start('ACC-1', 1_000)
          }
          if (delayMs === null) {
            admitted += 1
            counts.done += 1
            coolDowns.accepted('ACC-1')
          } else claimAt(clock.now + Math.max(10, Math.ceil(delayMs / 10) * 10), run)
        }
        due.delete(clock.now)
      }
      expect(counts.done / (clock.now / 1_000) / perSecond).toBeGreaterThan(pace)
      expect(counts.claims / runs).toBeLessThan(claims)
      expect(counts.rejected / runs).toBeLessThan(0.06)
    },
  )

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
