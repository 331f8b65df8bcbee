import { hostname } from 'node:os'
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from '@prometheus-io/client'
import installation from '../../../../package.json' with { type: 'json' }
import type { MetricsSummary, ServiceSummary } from '../contracts/metrics-summary.ts'

/** The Prometheus registry of one service. The embedded host runs several services, and so has several registries. */
export interface Metrics {
  readonly registry: Registry
  counter<Label extends string>(
    name: string,
    help: string,
    labels?: readonly Label[],
  ): Counter<Label>
  gauge<Label extends string>(name: string, help: string, labels?: readonly Label[]): Gauge<Label>
  histogram<Label extends string>(
    name: string,
    help: string,
    labels?: readonly Label[],
    buckets?: readonly number[],
  ): Histogram<Label>
  /** Registers a function that runs before each scrape and sets metrics whose values are not counted continuously. */
  beforeEach(collect: () => void): void
  /** Returns all metrics in Prometheus' text format. */
  read(): Promise<string>
  /**
   * Returns the result of `read`. If the metrics are requested more than four times a second, the result may be up to
   * 250 ms old. This limits the load that clients without a key can cause, because one computation takes 2 to 4 ms.
   */
  readForScrape(): Promise<string>
  /** Registers the function that returns this service's part of the summary. */
  summarize(part: () => ServiceSummary): void
  /** Returns the summary. Its rate is limited as that of `readForScrape`. */
  summary(): Promise<MetricsSummary>
}

// The histogram buckets in seconds. The smallest bucket is for a cache hit over loopback, the largest for the deadline
// of a call to the provider.
const LATENCY_BUCKETS = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120,
]

/**
 * The metrics of the OS process. All services of a process share them, because the library measures them with a timer
 * and observers that never end.
 */
let processMetrics: Registry | undefined

function measureProcess(): Registry {
  const register = new Registry()
  collectDefaultMetrics({ register })
  return register
}

export function createMetrics(service: string): Metrics {
  const registry = Registry.merge([(processMetrics ??= measureProcess())])
  registry.setDefaultLabels({ service })
  new Gauge({
    name: 'service_info',
    help: '1; the labels name the version and the OS process of the service',
    labelNames: ['version', 'instance'],
    registers: [registry],
  }).set({ version: installation.version, instance: `${hostname()}:${process.pid}` }, 1)
  const registers = [registry]
  const collectors: (() => void)[] = []
  const read = (): Promise<string> => {
    for (const collect of collectors) collect()
    return registry.metrics()
  }
  let partOfService = (): ServiceSummary => ({})
  const summary = async (): Promise<MetricsSummary> => ({
    Version: installation.version,
    StartedAt: new Date(Math.round(performance.timeOrigin)).toISOString(),
    LagMs: Math.round((await eventLoopLag(registry)) * 1_000),
    MemoryBytes: process.memoryUsage.rss(),
    ...partOfService(),
  })
  return {
    registry,
    counter: (name, help, labels = []) =>
      new Counter({ name, help, labelNames: [...labels], registers }),
    gauge: (name, help, labels = []) =>
      new Gauge({ name, help, labelNames: [...labels], registers }),
    histogram: (name, help, labels = [], buckets = LATENCY_BUCKETS) =>
      new Histogram({ name, help, labelNames: [...labels], buckets: [...buckets], registers }),
    beforeEach: (collect) => void collectors.push(collect),
    read,
    readForScrape: limitRate(read),
    summarize: (part) => void (partOfService = part),
    summary: limitRate(summary),
  }
}

/** Returns the 99th percentile of the delay of the event loop in seconds, and begins a new measurement. */
async function eventLoopLag(registry: Registry): Promise<number> {
  // Reading the first metric sets the others.
  await registry.getSingleMetric('nodejs_eventloop_lag_seconds')?.get()
  const lag = await registry.getSingleMetric('nodejs_eventloop_lag_p99_seconds')?.get()
  return lag?.values[0]?.value ?? 0
}

/**
 * How many times in a row the metrics may be computed without a pause. Tests read metrics several times in quick
 * succession, so one time would not be enough.
 */
const BURST = 20
const INTERVAL_MS = 250

/**
 * Returns a function that calls `compute` at most once per 250 ms. The first 20 calls in quick succession are exempt
 * from this limit. A limited call gets the last result.
 */
function limitRate<Result>(compute: () => Promise<Result>): () => Promise<Result> {
  let last: Promise<Result> | undefined
  let isAllowedFrom = Number.NEGATIVE_INFINITY
  return () => {
    const now = performance.now()
    if (last !== undefined && isAllowedFrom > now) return last
    isAllowedFrom = Math.max(isAllowedFrom, now - BURST * INTERVAL_MS) + INTERVAL_MS
    last = compute()
    return last
  }
}
