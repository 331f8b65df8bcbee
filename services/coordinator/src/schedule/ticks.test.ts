import { describe, expect, it } from 'vitest'
import type { ScheduleTiming } from './schedule.ts'
import { dueTicks, delaySeconds, isOverlooked, MAX_CAUGHT_UP, type Ticks } from './ticks.ts'

const at = (time: string): number => Date.parse(time)
const timing = (change: Partial<ScheduleTiming> = {}): ScheduleTiming => ({
  cron: '0 * * * *',
  timeZone: 'UTC',
  each: 'once',
  catchUp: 'last',
  jitterSeconds: 0,
  ...change,
})
const shown = ({ due, nextAt }: Ticks) => ({
  due: due.map((time) => new Date(time).toISOString()),
  nextAt: new Date(nextAt).toISOString(),
})

describe('the times for which a due schedule starts runs', () => {
  const missed = at('2026-11-23T09:00:00Z')
  const now = at('2026-11-23T12:30:00Z')

  it('with catchUp "last", only the latest missed time starts a run after an outage', () => {
    expect(shown(dueTicks(timing(), missed, now))).toEqual({
      due: ['2026-11-23T12:00:00.000Z'],
      nextAt: '2026-11-23T13:00:00.000Z',
    })
  })

  it('with catchUp "all", each missed time starts a run after an outage, in order', () => {
    expect(shown(dueTicks(timing({ catchUp: 'all' }), missed, now))).toEqual({
      due: [9, 10, 11, 12]
        .map((hour) => at(`2026-11-23T${String(hour).padStart(2, '0')}:00:00Z`))
        .map((time) => new Date(time).toISOString()),
      nextAt: '2026-11-23T13:00:00.000Z',
    })
  })

  it('with catchUp none, no missed time starts a run after an outage', () => {
    expect(shown(dueTicks(timing({ catchUp: 'none' }), missed, now))).toEqual({
      due: [],
      nextAt: '2026-11-23T13:00:00.000Z',
    })
  })

  it('with catchUp none, a time that is less than a minute late still starts a run', () => {
    const late = at('2026-11-23T12:00:59Z')
    const { due } = dueTicks(timing({ catchUp: 'none' }), at('2026-11-23T12:00:00Z'), late)
    expect(due).toEqual([at('2026-11-23T12:00:00Z')])
  })

  it('with catchUp all, the latest 500 missed times start runs after a long outage, 50 at a time', () => {
    const minutely = timing({ cron: '* * * * *', catchUp: 'all' })
    const from = at('2026-11-20T00:00:00Z')
    const found: number[] = []
    let next = from
    for (let calls = 0; next <= now && calls < 100; calls += 1) {
      const ticks = dueTicks(minutely, next, now)
      expect(ticks.due.length).toBeLessThanOrEqual(50)
      found.push(...ticks.due)
      next = ticks.nextAt
    }
    expect(found).toEqual(
      Array.from({ length: MAX_CAUGHT_UP }, (_, n) => now - (MAX_CAUGHT_UP - 1 - n) * 60_000),
    )
  })

  it('with catchUp "all", the runs of all companies at one missed time are queued before those of the next missed time', () => {
    const each = timing({ catchUp: 'all', each: 'company' })
    expect(shown(dueTicks(each, missed, now))).toEqual({
      due: ['2026-11-23T09:00:00.000Z'],
      nextAt: '2026-11-23T10:00:00.000Z',
    })
  })

  it('if the clock jumps forward by an hour and back again, no scheduled time starts a second run', () => {
    const jumped = dueTicks(timing(), at('2026-11-23T12:00:00Z'), at('2026-11-23T13:00:01Z'))
    expect(shown(jumped)).toEqual({
      due: ['2026-11-23T13:00:00.000Z'],
      nextAt: '2026-11-23T14:00:00.000Z',
    })
    // When the clock has jumped back to 12:00:02, the schedule must not be due: its next time is 14:00.
    expect(jumped.nextAt).toBeGreaterThan(at('2026-11-23T12:00:02Z'))
  })
})

describe('a stored next time that is later than the next time of the schedule', () => {
  const [ten, eleven] = ['2026-11-23T10:00:00Z', '2026-11-23T11:00:00Z']
  it.each([
    ['is overlooked if the schedule has never fired', eleven, null, true],
    ['is overlooked if the schedule last fired before', eleven, '2026-11-23T09:00:00Z', true],
    ['is right if the next time has fired, because the clock was set back', eleven, ten, false],
    ['is right if it is the next time', ten, '2026-11-23T09:00:00Z', false],
  ])('%s', (_, NextAt, LastAt, isExpected) => {
    expect(isOverlooked(at(ten), { NextAt, LastAt })).toBe(isExpected)
  })
})

describe('the jitter of a scheduled run', () => {
  it('a company always has the same jitter, which is below jitterSeconds, and the jitters of all companies are spread evenly', () => {
    const spread = timing({ jitterSeconds: 3_600 })
    const realms = Array.from({ length: 5_000 }, (_, n) => String(9_130_354_674_010_000 + n))
    const delays = realms.map((realm) => delaySeconds(spread, realm))
    expect(delays).toEqual(realms.map((realm) => delaySeconds(spread, realm)))
    expect(Math.min(...delays)).toBeGreaterThanOrEqual(0)
    expect(Math.max(...delays)).toBeLessThan(3_600)
    const minutes = delays.map((seconds) => Math.floor(seconds / 60))
    const perMinute = Array.from(
      { length: 60 },
      (_, n) => minutes.filter((one) => one === n).length,
    )
    expect(Math.max(...perMinute)).toBeLessThan(150) // the average is 83
    expect(Math.min(...perMinute)).toBeGreaterThan(40)
  })

  it('a run has no jitter without jitterSeconds', () => {
    expect(delaySeconds(timing(), '9130354674010000')).toBe(0)
  })
})
