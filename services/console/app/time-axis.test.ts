import { describe, expect, it } from 'vitest'
import { timeAxis } from './time-axis.ts'
import type { Segment, Waterfall } from './waterfall.ts'

const SECOND = 1_000
const segment = (kind: Segment['kind'], from: number, until: number): Segment => ({
  kind,
  from: from * SECOND,
  until: until * SECOND,
  text: '',
})
const waterfall = (segments: readonly Segment[], omitted = 0): Waterfall => ({
  from: 0,
  until: 1_000 * SECOND,
  now: null,
  lanes: [{ step: 'order', segments, omitted, isCopied: false }],
})
const WITH_WAIT = waterfall([
  segment('failed', 0, 100),
  segment('wait', 100, 900),
  segment('completed', 900, 1_000),
])

/** Returns the width at which the timeline draws a time range in seconds, as a share of the drawing. */
const drawn = (of: Waterfall, from: number, until: number): number => {
  const { at } = timeAxis(of, false)
  return at(until * SECOND) - at(from * SECOND)
}

describe('the time axis of a timeline', () => {
  it('timeAxis draws a wait of 5 min as 1 s if the attempts before and after it took milliseconds', () => {
    const attempts = {
      ...waterfall([
        segment('failed', 0, 0.065),
        segment('wait', 0.065, 300.065),
        segment('completed', 300.065, 300.195),
      ]),
      until: 300_195,
    }
    expect(timeAxis(attempts, false).breaks).toEqual([{ from: 65, until: 300_065 }])
    expect(drawn(attempts, 0, 0.065)).toBeCloseTo(0.065 / 1.195)
    expect(drawn(attempts, 0.065, 300.065)).toBeCloseTo(1 / 1.195)
    expect(drawn(attempts, 300.065, 300.195)).toBeCloseTo(0.13 / 1.195)
  })

  it('timeAxis draws a shortened wait as long as the longest attempt, and keeps the order of all times', () => {
    const { breaks, at } = timeAxis(WITH_WAIT, false)
    expect(breaks).toEqual([{ from: 100 * SECOND, until: 900 * SECOND }])
    expect([at(0), at(1_000 * SECOND)]).toEqual([0, 1])
    expect(drawn(WITH_WAIT, 100, 900)).toBeCloseTo(drawn(WITH_WAIT, 0, 100))
    const places = Array.from({ length: 101 }, (_, index) => at(index * 10 * SECOND))
    expect(places).toEqual(places.toSorted((one, other) => one - other))
  })

  it('timeAxis draws no wait shorter than a wait that took less time', () => {
    const pauses = [10, 20, 40, 60, 80, 350, 440]
    let time = 0
    const waits = pauses.map((length) => {
      time += length
      return [time - length, time] as const
    })
    const of = waterfall(waits.map(([, until]) => segment('failed', until, until)))
    expect(timeAxis(of, false).breaks).toHaveLength(2)
    const widths = waits.map(([from, until]) => drawn(of, from, until))
    for (const [index, width] of widths.slice(1).entries())
      expect(width).toBeGreaterThanOrEqual((widths[index] ?? 0) - 1e-9)
  })

  it('timeAxis shortens nothing if the true scale is chosen', () => {
    const { breaks, at } = timeAxis(WITH_WAIT, true)
    expect(breaks).toEqual([])
    expect(at(250 * SECOND)).toBe(0.25)
  })

  it('timeAxis does not shorten waits if this would not make the timeline much shorter', () => {
    const of = waterfall([segment('failed', 0, 300), segment('completed', 700, 1_000)])
    expect(timeAxis(of, false).breaks).toEqual([])
    const brief = {
      ...waterfall([segment('failed', 0, 0.1), segment('completed', 1.3, 1.4)]),
      until: 1_400,
    }
    expect(timeAxis(brief, false).breaks).toEqual([])
  })

  it('timeAxis shortens no wait during an attempt of another step, and no wait if attempts are omitted', () => {
    const lane = {
      step: 'report',
      segments: [segment('completed', 100, 900)],
      omitted: 0,
      isCopied: false,
    }
    expect(timeAxis({ ...WITH_WAIT, lanes: [...WITH_WAIT.lanes, lane] }, false).breaks).toEqual([])
    expect(timeAxis(waterfall(WITH_WAIT.lanes[0]?.segments ?? [], 3), false).breaks).toEqual([])
  })

  it('timeAxis returns one single wait for a run that does nothing but wait', () => {
    const { breaks, at } = timeAxis(waterfall([segment('queued', 0, 1_000)]), false)
    expect(breaks).toHaveLength(1)
    expect([at(0), at(1_000 * SECOND)]).toEqual([0, 1])
  })
})
