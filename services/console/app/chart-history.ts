/** The values that the page Charts has read while it is open, for an installation without Prometheus. */
import type { ChartSeries, ChartsView, ChartView } from '../src/contracts/charts.ts'

export interface Reading {
  /** The time of the values in epoch milliseconds. */
  readonly at: number
  readonly charts: ChartsView['Charts']
}

const MAX_READINGS = 400
/** A longer time between two readings is a gap, for example because another page was shown. */
const GAP_MS = 60_000

/** Returns the readings with a new one. Values that were read before are left out. */
export function withReading(
  readings: readonly Reading[],
  { At, Charts }: ChartsView,
): readonly Reading[] {
  const at = Date.parse(At)
  if (at <= (readings.at(-1)?.at ?? 0)) return readings
  return [...readings, { at, charts: Charts }].slice(-MAX_READINGS)
}

/** Returns the series of a chart, with a point for each reading. */
export function seriesIn(
  readings: readonly Reading[],
  { Id, Unit }: Pick<ChartView, 'Id' | 'Unit'>,
): readonly ChartSeries[] {
  const present = readings.map(
    ({ charts }) => charts.find((chart) => chart.Id === Id)?.Present ?? {},
  )
  const names = new Set(present.flatMap((of) => Object.values(of).flatMap(Object.keys)))
  return [...names].toSorted().map((Name) => ({
    Name,
    Points: readings.map(({ at }, index) => {
      const ms = at - (readings[index - 1]?.at ?? at)
      if (ms > GAP_MS) return null
      const values = present[index] ?? {}
      if (Unit === 'per_minute') return ratePerMinute(values, present[index - 1] ?? {}, Name, ms)
      // All replicas count the same runs. Of their times, the longest is shown.
      const all = Object.values(values).flatMap((of) => of[Name] ?? [])
      return all.length === 0 ? null : Math.max(...all)
    }),
  }))
}

type Values = ChartView['Present']

/** Returns the rate of a total over all replicas that were read twice; `null` if there is none. */
function ratePerMinute(values: Values, before: Values, name: string, ms: number): number | null {
  const increases = Object.entries(values).flatMap(([replica, now]) => {
    const earlier = before[replica]
    if (earlier === undefined) return []
    const increase = (now[name] ?? 0) - (earlier[name] ?? 0)
    // If a total has fallen, the replica was restarted and has counted from 0 since then.
    return increase < 0 ? (now[name] ?? 0) : increase
  })
  if (increases.length === 0) return null
  return (increases.reduce((sum, one) => sum + one, 0) * 60_000) / ms
}
