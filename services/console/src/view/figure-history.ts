/**
 * The figures of the last hour, minute by minute, from the metrics that the console reads every few seconds.
 *
 * H1  A minute in which no replica of a service was read is a gap. No line connects the minutes around a gap.
 * H2  If a counter has fallen, its process was restarted, and since then the counter has counted from 0.
 * H3  If a replica was not read for a minute, the increase of its counters during that time is not counted later.
 */
import type { ServiceState } from './installation.ts'
import { type ChartDefinition, type ChartQuery, charts, seriesName } from './charts.ts'
import type { Sample, Samples } from './metric-text.ts'
import { quantileOf } from './quantile.ts'

const MINUTES = 60
const MINUTE_MS = 60_000

export interface FigureSeries {
  readonly name: string
  /** The value of each minute, oldest first; `null` is a gap. */
  readonly points: readonly (number | null)[]
}

export interface FigureHistory {
  /** Adds the values that were just read from the replicas. */
  add(at: number, services: readonly ServiceState[]): void
  /** Returns the series of a chart for the last 60 minutes. */
  series(chart: ChartDefinition, now: number): readonly FigureSeries[]
}

/** The values of a minute for a query: one for each series, or one for each bucket of each series. */
type Collected = Map<string, number>

interface Minute {
  /** The services of which at least one replica was read. */
  readonly services: Set<string>
  readonly collected: Map<ChartQuery, Collected>
}

const minuteOf = (ms: number): number => Math.floor(ms / MINUTE_MS)

export function createFigureHistory(): FigureHistory {
  const minutes = new Map<number, Minute>()
  /** The last counter values of each replica. */
  let counters = new Map<string, { readonly at: number; readonly samples: Samples }>()

  function minuteAt(at: number): Minute {
    const index = minuteOf(at)
    for (const old of minutes.keys()) if (old <= index - MINUTES) minutes.delete(old)
    const known = minutes.get(index)
    if (known !== undefined) return known
    const minute: Minute = { services: new Set(), collected: new Map() }
    minutes.set(index, minute)
    return minute
  }

  function collect(
    minute: Minute,
    query: ChartQuery,
    samples: Samples,
    last: Samples | null,
  ): void {
    const values = minute.collected.get(query) ?? new Map<string, number>()
    minute.collected.set(query, values)
    const metric = query.kind === 'quantile' ? `${query.metric}_bucket` : query.metric
    const before = query.kind === 'gauge' ? new Map<string, number>() : valuesOf(last?.get(metric))
    for (const sample of samples.get(metric) ?? []) {
      if (isLeftOut(query, sample)) continue
      const key = keyOf(query, sample)
      if (query.kind === 'gauge') {
        values.set(key, Math.max(values.get(key) ?? 0, sample.value))
        continue
      }
      if (last === null) continue
      const earlier = before.get(JSON.stringify(sample.labels)) ?? 0
      const increase = sample.value >= earlier ? sample.value - earlier : sample.value // H2
      values.set(key, (values.get(key) ?? 0) + increase)
    }
  }

  return {
    add(at, services) {
      const minute = minuteAt(at)
      const read = new Map<string, { readonly at: number; readonly samples: Samples }>()
      for (const service of services) {
        const queries = charts.filter((chart) => chart.service === service.name)
        if (queries.length === 0) continue
        // A gauge keeps the last value of its minute. All replicas are read at the same time.
        for (const query of queries.flatMap((chart) => chart.queries))
          if (query.kind === 'gauge') minute.collected.delete(query)
        for (const { address, misses, samples } of service.replicas) {
          if (misses > 0 || samples === null) continue
          minute.services.add(service.name)
          const replica = `${service.name} ${address}`
          const last = counters.get(replica)
          const isRecent = last !== undefined && at - last.at <= MINUTE_MS // H3
          for (const query of queries.flatMap((chart) => chart.queries))
            collect(minute, query, samples, isRecent ? last.samples : null)
          read.set(replica, { at, samples })
        }
      }
      counters = new Map([...counters, ...read])
      for (const [replica, { at: readAt }] of counters)
        if (at - readAt > MINUTE_MS) counters.delete(replica)
    },
    series(chart, now) {
      const last = minuteOf(now)
      const shown = Array.from({ length: MINUTES }, (_, index) =>
        minutes.get(last - MINUTES + 1 + index),
      )
      return chart.queries.flatMap((query) => {
        const names = new Set(
          shown.flatMap((minute) =>
            [...(minute?.collected.get(query)?.keys() ?? [])].map((key) => nameOf(key)),
          ),
        )
        return [...names].map((name) => ({
          name,
          points: shown.map((minute) =>
            minute === undefined || !minute.services.has(chart.service)
              ? null // H1
              : valueOf(query, name, minute.collected.get(query) ?? new Map()),
          ),
        }))
      })
    },
  }
}

const isLeftOut = ({ without }: ChartQuery, { labels }: Sample): boolean =>
  without !== undefined && labels[without.label] === without.value

/** Returns the key of a series. For a histogram, the key also contains the bound of the bucket. */
const keyOf = (query: ChartQuery, { labels }: Sample): string =>
  JSON.stringify([
    seriesName(query, labels),
    ...(query.kind === 'quantile' ? [labels['le'] ?? ''] : []),
  ])

const nameOf = (key: string): string => (JSON.parse(key) as readonly [string])[0]

const valuesOf = (samples: readonly Sample[] = []): ReadonlyMap<string, number> =>
  new Map(samples.map(({ labels, value }) => [JSON.stringify(labels), value]))

function valueOf(query: ChartQuery, name: string, collected: Collected): number | null {
  if (query.kind !== 'quantile') {
    const value = collected.get(JSON.stringify([name]))
    return value ?? (query.kind === 'rate' ? 0 : null)
  }
  const buckets = [...collected].flatMap(([key, count]) => {
    const [series, le] = JSON.parse(key) as readonly [string, string]
    return series === name ? [{ le: le === '+Inf' ? Infinity : Number(le), count }] : []
  })
  return quantileOf(query.q ?? 0.95, buckets)
}
