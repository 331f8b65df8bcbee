/**
 * The figures of the last hour, minute by minute, from the metrics that the console reads every few seconds. The charts
 * show each minute; the conditions use the sum of the last minutes.
 *
 * H1  A minute in which no replica of a service was read is a gap. No line connects the minutes around a gap.
 * H2  If a counter has fallen, its process was restarted, and since then the counter has counted from 0.
 * H3  If a replica was not read for a minute, the increase of its counters during that time is not counted later.
 */
import type { ServiceState } from './installation.ts'
import type { ChartDefinition } from './charts.ts'
import {
  gaugeValues,
  isMatch,
  type Measured,
  type MetricQuery,
  seriesLabels,
} from './metric-query.ts'
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
  /**
   * Returns the values of a query over the last `minutes` minutes, including the current minute: the increase of each
   * series of a counter, or the quantile of each series of a histogram.
   */
  over(query: MetricQuery, minutes: number, now: number): readonly Measured[]
}

/** The queries whose values are kept, by the service that has their metrics. */
export interface FigureSource {
  readonly service: string
  readonly queries: readonly MetricQuery[]
}

/**
 * The values of a minute for a query: a value for each series or, for a histogram, a value for each bucket of each
 * series.
 */
type Collected = Map<string, number>

interface Minute {
  /** The services of which at least one replica was read. */
  readonly services: Set<string>
  readonly collected: Map<MetricQuery, Collected>
}

const minuteOf = (ms: number): number => Math.floor(ms / MINUTE_MS)

export function createFigureHistory(sources: readonly FigureSource[]): FigureHistory {
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

  function collect(minute: Minute, query: MetricQuery, samples: Samples, last: Samples): void {
    const values = minute.collected.get(query) ?? new Map<string, number>()
    minute.collected.set(query, values)
    const metric = query.kind === 'quantile' ? `${query.metric}_bucket` : query.metric
    const before = valuesOf(last.get(metric))
    for (const sample of samples.get(metric) ?? []) {
      if (!isMatch(query, sample)) continue
      const key = keyOf(query, sample)
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
        const queries = sources.flatMap((source) =>
          source.service === service.name ? source.queries : [],
        )
        if (queries.length === 0) continue
        const readable = service.replicas.filter(({ misses }) => misses === 0)
        // A gauge keeps the last value of its minute. All replicas are read at the same time.
        for (const query of queries)
          if (query.kind === 'gauge')
            minute.collected.set(
              query,
              new Map(
                gaugeValues(
                  query,
                  readable.map(({ samples }) => samples),
                ).map(({ labels, value }) => [JSON.stringify(labels), value]),
              ),
            )
        for (const { address, samples } of readable) {
          if (samples === null) continue
          minute.services.add(service.name)
          const replica = `${service.name} ${address}`
          const last = counters.get(replica)
          if (last !== undefined && at - last.at <= MINUTE_MS)
            // If the last read of the replica is more than a minute ago, the increase since then is not counted (H3).
            for (const query of queries)
              if (query.kind !== 'gauge') collect(minute, query, samples, last.samples)
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
      return chart.queries.flatMap((query) =>
        seriesKeys(shown.flatMap((minute) => minute?.collected.get(query) ?? [])).map((key) => ({
          name: query.name ?? labelsOf(key).join('.'),
          points: shown.map((minute) =>
            minute === undefined || !minute.services.has(chart.service)
              ? null // H1
              : valueOf(query, key, minute.collected.get(query) ?? new Map()),
          ),
        })),
      )
    },
    over(query, length, now) {
      const sum: Collected = new Map()
      for (const [index, { collected }] of minutes)
        if (index > minuteOf(now) - length)
          for (const [key, value] of collected.get(query) ?? [])
            sum.set(key, (sum.get(key) ?? 0) + value)
      return seriesKeys([sum]).flatMap((key) => {
        const value = valueOf(query, key, sum)
        return value === null ? [] : [{ labels: labelsOf(key), value }]
      })
    },
  }
}

/**
 * Returns the key under which the value of a sample is kept: the labels of its series and, for a histogram, also the
 * bound of the bucket.
 */
const keyOf = (query: MetricQuery, { labels }: Sample): string => {
  const series = JSON.stringify(seriesLabels(query, labels))
  return query.kind === 'quantile' ? `${series} ${labels['le'] ?? ''}` : series
}

/** Returns the part of a value's key that identifies the series: the key without the bound of the bucket. */
const seriesKey = (key: string): string => key.slice(0, key.lastIndexOf(']') + 1)

/** Returns the keys of the series that have values. */
const seriesKeys = (collected: readonly Collected[]): readonly string[] => [
  ...new Set(collected.flatMap((values) => [...values.keys()].map(seriesKey))),
]

const labelsOf = (key: string): readonly string[] => JSON.parse(key) as readonly string[]

const valuesOf = (samples: readonly Sample[] = []): ReadonlyMap<string, number> =>
  new Map(samples.map(({ labels, value }) => [JSON.stringify(labels), value]))

function valueOf(query: MetricQuery, series: string, collected: Collected): number | null {
  if (query.kind !== 'quantile') {
    const value = collected.get(series)
    return value ?? (query.kind === 'rate' ? 0 : null)
  }
  const buckets = [...collected].flatMap(([key, count]) => {
    if (seriesKey(key) !== series) return []
    const le = key.slice(series.length + 1)
    return [{ le: le === '+Inf' ? Infinity : Number(le), count }]
  })
  return quantileOf(query.q ?? 0.95, buckets)
}
