/** Computes the geometry of a small chart without a browser. */
import type { ChartSeries, ChartsView, ChartView } from '../src/contracts/charts.ts'

const FACTORS = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10] as const

/** Returns the end of an axis: a round number that is at least `highest`. */
export function roundedMaximum(highest: number): number {
  if (!(highest > 0)) return 1
  const power = 10 ** Math.floor(Math.log10(highest))
  const factor = FACTORS.find((one) => one * power >= highest * (1 - 1e-9)) ?? 10
  return factor * power
}

/**
 * Returns the path of a line through the points at these times, in a drawing of this size. A gap interrupts the line. A
 * point between two gaps is drawn as a line without length; the round ends of the stroke show it as a dot.
 */
export function linePath(
  points: readonly (number | null)[],
  times: readonly number[],
  maximum: number,
  { width, height }: { readonly width: number; readonly height: number },
): string {
  const [from = 0] = times
  const length = Math.max(1, (times.at(-1) ?? from) - from)
  const x = (index: number): string => rounded((((times[index] ?? from) - from) / length) * width)
  const y = (value: number): string => rounded(height - (value / maximum) * height)
  let isOpen = false
  return points
    .map((value, index) => {
      if (value === null) {
        isOpen = false
        return ''
      }
      const point = `${x(index)} ${y(value)}`
      const part = isOpen
        ? `L${point}`
        : `M${point}${(points[index + 1] ?? null) === null ? `L${point}` : ''}`
      isOpen = true
      return part
    })
    .join('')
}

const rounded = (value: number): string => String(Math.round(value * 10) / 10)

const number = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 })

/** Returns a value with its unit, such as `12`, `3.5/min`, `40 ms` or `2.1 s`. */
export function valueText(value: number | null, unit: ChartView['Unit']): string {
  if (value === null) return '—'
  if (unit === 'count') return number.format(value)
  if (unit === 'per_minute') return `${number.format(value)}/min`
  if (value < 1) return `${number.format(value * 1_000)} ms`
  return value < 120 ? `${number.format(value)} s` : `${number.format(value / 60)} min`
}

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
