import { describe, expect, it } from 'vitest'
import type { ChartsView, ChartView } from '../src/contracts/charts.ts'
import { type Reading, seriesIn, withReading } from './chart-history.ts'

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
