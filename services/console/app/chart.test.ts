import { describe, expect, it } from 'vitest'
import {
  linePath,
  type Reading,
  roundedMaximum,
  seriesIn,
  valueText,
  withReading,
} from './chart.ts'
import type { ChartsView, ChartView } from '../src/contracts/charts.ts'

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

const START = Date.parse('2026-11-24T03:00:00.000Z')
const view = (
  seconds: number,
  Present: ChartView['Present'],
  Unit: ChartView['Unit'],
): ChartsView => ({
  At: new Date(START + seconds * 1_000).toISOString(),
  StepSeconds: null,
  Range: '1h',
  Charts: [{ Id: 'x', Title: 'x', Unit, Series: [], Present, Unavailable: null }],
  GrafanaUrl: null,
})
const points = (unit: ChartView['Unit'], ...read: readonly [number, ChartView['Present']][]) => {
  let readings: readonly Reading[] = []
  for (const [seconds, present] of read)
    readings = withReading(readings, view(seconds, present, unit))
  return seriesIn(readings, { Id: 'x', Unit: unit }).map(({ Name, Points }) => [Name, Points])
}

describe('the values that the page Charts collects', () => {
  it('a rate is the increase of the totals of all replicas between two readings, per minute', () => {
    expect(
      points(
        'per_minute',
        [0, { a: { done: 100 }, b: { done: 5 } }],
        [30, { a: { done: 110 }, b: { done: 10, failed: 1 } }],
      ),
    ).toEqual([
      ['done', [null, 30]],
      ['failed', [null, 2]],
    ])
  })

  it('a restarted replica counts from 0, and one that was not read before does not count', () => {
    expect(
      points(
        'per_minute',
        [0, { a: { done: 100 } }],
        [60, { a: { done: 7 }, b: { done: 900 } }],
        [120, { b: { done: 901 } }],
        [180, {}],
      ),
    ).toEqual([['done', [null, 7, 1, null]]])
  })

  it('of counts and times, the highest value of all replicas is shown', () => {
    expect(points('count', [0, { a: { Failed: 3 }, b: { Failed: 4 } }], [9, {}])).toEqual([
      ['Failed', [4, null]],
    ])
  })

  it('values that were read before are left out, and a long time between two readings is a gap', () => {
    expect(
      points(
        'count',
        [0, { a: { n: 1 } }],
        [0, { a: { n: 2 } }],
        [9, { a: { n: 3 } }],
        [99, { a: { n: 4 } }],
      ),
    ).toEqual([['n', [1, 3, null]]])
  })
})
