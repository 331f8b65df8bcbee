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
  lanes: [{ step: 'order', segments, omitted }],
})
const WITH_WAIT = waterfall([
  segment('failed', 0, 100),
  segment('wait', 100, 900),
  segment('completed', 900, 1_000),
])

describe('the time axis of a timeline', () => {
  it('timeAxis shortens a wait longer than a quarter of the whole time, and keeps the order of all times', () => {
    const { breaks, at } = timeAxis(WITH_WAIT, false)
    expect(breaks).toEqual([{ from: 100 * SECOND, until: 900 * SECOND }])
    expect(at(0)).toBe(0)
    expect(at(1_000 * SECOND)).toBeCloseTo(1)
    expect(at(900 * SECOND) - at(100 * SECOND)).toBeCloseTo(1 / 11)
    const places = Array.from({ length: 101 }, (_, index) => at(index * 10 * SECOND))
    expect(places).toEqual(places.toSorted((one, other) => one - other))
  })

  it('timeAxis shortens nothing if the true scale is chosen', () => {
    const { breaks, at } = timeAxis(WITH_WAIT, true)
    expect(breaks).toEqual([])
    expect(at(250 * SECOND)).toBe(0.25)
  })

  it('timeAxis does not shorten a short wait, a wait during an attempt of another step, or any wait if attempts are omitted', () => {
    const lane = { step: 'report', segments: [segment('completed', 100, 900)], omitted: 0 }
    expect(timeAxis({ ...WITH_WAIT, lanes: [...WITH_WAIT.lanes, lane] }, false).breaks).toEqual([])
    const short = [segment('failed', 0, 400), segment('completed', 600, 1_000)]
    expect(timeAxis(waterfall(short), false).breaks).toEqual([])
    expect(timeAxis({ ...waterfall(WITH_WAIT.lanes[0]?.segments ?? [], 3) }, false).breaks).toEqual(
      [],
    )
  })

  it('timeAxis does not shorten a wait of less than a second', () => {
    const brief = { ...waterfall([segment('completed', 0.9, 1)]), until: SECOND }
    expect(timeAxis(brief, false).breaks).toEqual([])
  })

  it('timeAxis returns a single wait for a run that has only waited', () => {
    const { breaks, at } = timeAxis(waterfall([segment('queued', 0, 1_000)]), false)
    expect(breaks).toHaveLength(1)
    expect([at(0), at(1_000 * SECOND)]).toEqual([0, 1])
  })
})
