import { describe, expect, it } from 'vitest'
import { timeAxis } from './time-axis.ts'
import {
  afterZoom,
  axisOfRange,
  barOf,
  isDrag,
  rangeBetween,
  rangeOf,
  rangeText,
  timeAt,
  type TimeRange,
} from './timeline-view.ts'
import type { Segment } from './waterfall.ts'

const BEGIN = Date.UTC(2026, 10, 24, 3)
const SECOND = 1_000
const at = (seconds: number): number => BEGIN + seconds * SECOND
const range = (from: number, until: number): TimeRange => ({ from: at(from), until: at(until) })
const segment = (kind: Segment['kind'], from: number, until: number): Segment => ({
  kind,
  ...range(from, until),
  text: '',
})
const WHOLE = range(0, 1_000)
/** A run with a wait of 800 s between two attempts. */
const waterfall = {
  ...WHOLE,
  now: null,
  lanes: [
    {
      step: 'order',
      omitted: 0,
      isCopied: false,
      segments: [
        segment('failed', 0, 100),
        segment('wait', 100, 900),
        segment('completed', 900, 1_000),
      ],
    },
  ],
}
const trueScale = timeAxis(waterfall, true)
const shortened = timeAxis(waterfall, false)

describe('the shown part of a timeline', () => {
  it('the axis of a range begins and ends with the range', () => {
    const axis = axisOfRange(trueScale, range(100, 300))
    for (const [seconds, place] of [
      [100, 0],
      [200, 0.5],
      [300, 1],
      [500, 2],
    ] as const)
      expect(axis.at(at(seconds))).toBeCloseTo(place)
  })

  it('a time that is converted to a position on the timeline and back stays the same, even in a shortened wait', () => {
    for (const axis of [trueScale, shortened])
      for (const seconds of [0, 1, 99.5, 100, 400, 899, 950, 1_000])
        expect(timeAt(axis, WHOLE, axis.at(at(seconds)))).toBe(at(seconds))
    expect([timeAt(trueScale, WHOLE, -1), timeAt(trueScale, WHOLE, 2)]).toEqual([at(0), at(1_000)])
  })

  it('a drag over the timeline selects the same range in both directions, but not the whole timeline or an empty range', () => {
    expect(rangeBetween(trueScale, WHOLE, 0.2, 0.4)).toEqual(range(200, 400))
    expect(rangeBetween(trueScale, WHOLE, 0.4, 0.2)).toEqual(range(200, 400))
    expect(rangeBetween(trueScale, WHOLE, -0.5, 1.5)).toBeNull()
    expect(rangeBetween(trueScale, WHOLE, 0.3, 0.3)).toBeNull()
    expect([isDrag(0.3, 0.301), isDrag(0.3, 0.4)]).toEqual([false, true])
  })

  it('the buttons of the timeline zoom into the middle, zoom out, and move by half of the shown range', () => {
    const shown = range(400, 600)
    expect(afterZoom(trueScale, WHOLE, shown, 'in')).toEqual(range(450, 550))
    expect(afterZoom(trueScale, WHOLE, shown, 'out')).toEqual(range(300, 700))
    expect(afterZoom(trueScale, WHOLE, shown, 'left')).toEqual(range(300, 500))
    expect(afterZoom(trueScale, WHOLE, shown, 'right')).toEqual(range(500, 700))
    expect(afterZoom(trueScale, WHOLE, WHOLE, 'in')).toEqual(range(250, 750))
  })

  it('moving to an end of the timeline keeps the length of the shown range', () => {
    expect(afterZoom(trueScale, WHOLE, range(50, 250), 'left')).toEqual(range(0, 200))
    expect(afterZoom(trueScale, WHOLE, range(850, 950), 'right')).toEqual(range(900, 1_000))
    expect(afterZoom(trueScale, WHOLE, range(100, 800), 'out')).toBeNull()
    const shortest = { from: at(1), until: at(1) + 10 }
    expect(afterZoom(trueScale, WHOLE, shortest, 'in')).toEqual(shortest)
  })

  it('if a wait is shortened, zooming in enlarges the middle of the drawing, not the middle of the real time', () => {
    const shown = afterZoom(shortened, WHOLE, WHOLE, 'in')
    expect(shown?.from).toBeLessThan(at(100))
    expect(shown?.until).toBeGreaterThan(at(900))
  })

  it('the width of a bar is its share of the time, and a bar that would be too thin to see has a minimum width', () => {
    expect(barOf(trueScale, range(100, 300))).toEqual({ left: 0.1, width: expect.closeTo(0.2) })
    expect(barOf(trueScale, range(100, 100.1))).toEqual({ left: 0.1, width: 0.004 })
    expect(barOf(trueScale, range(1_000, 1_000))).toEqual({ left: 0.996, width: 0.004 })
    // Of a bar that begins before the shown range and ends after it, only the part in the range is drawn.
    expect(barOf(axisOfRange(trueScale, range(400, 500)), WHOLE)).toEqual({ left: 0, width: 1 })
  })

  it('the address has the shown range in milliseconds since the run was queued, and an invalid range is ignored', () => {
    expect(rangeText(range(200, 400), BEGIN)).toBe('200000-400000')
    expect(rangeOf('200000-400000', WHOLE)).toEqual(range(200, 400))
    expect(rangeOf('200000-99000000', WHOLE)).toEqual(range(200, 1_000))
    for (const text of [null, '', 'x', '5-', '400000-200000', '2000000-3000000', '-5-10'])
      expect(rangeOf(text, WHOLE)).toBeNull()
  })
})
