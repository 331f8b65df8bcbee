import { describe, expect, it } from 'vitest'
import { linePath, roundedMaximum, valueText } from './chart.ts'

const SIZE = { width: 30, height: 10 }

describe('the geometry of the charts in the console', () => {
  it.each([
    [0, 1],
    [-1, 1],
    [NaN, 1],
    [1, 1],
    [1.2, 1.5],
    [4, 4],
    [7, 8],
    [0.03, 0.03],
    [1_000, 1_000],
    [1_001, 1_500],
  ])('the axis for values up to %d ends at %d', (highest, end) => {
    expect(roundedMaximum(highest)).toBeCloseTo(end)
  })

  it('a gap interrupts the line of a chart, and a single point is drawn as a dot', () => {
    expect(linePath([0, 5, null, 10], [0, 10, 20, 30], 10, SIZE)).toBe('M0 10L10 5M30 0L30 0')
    expect(linePath([null, null], [0, 1], 10, SIZE)).toBe('')
    expect(linePath([5], [7], 10, SIZE)).toBe('M0 5L0 5')
  })

  it('the distance of two points of a chart is the time between them', () => {
    expect(linePath([0, 0, 0], [100, 110, 130], 10, SIZE)).toBe('M0 10L10 10L30 10')
  })

  it('valueText() returns a value with its unit, and returns no unit for a gap', () => {
    expect(valueText(null, 'seconds')).toBe('—')
    expect(valueText(0.04, 'seconds')).toBe('40 ms')
    expect(valueText(2.14, 'seconds')).toBe('2.1 s')
    expect(valueText(300, 'seconds')).toBe('5 min')
    expect(valueText(3.5, 'per_minute')).toBe('3.5/min')
    expect(valueText(12, 'count')).toBe('12')
  })
})
