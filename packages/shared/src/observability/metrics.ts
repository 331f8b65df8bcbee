import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from '@prometheus-io/client'

/** The Prometheus registry of one service in this process: the embedded host has several. */
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
  /** Called before each scrape, for metrics that are read from elsewhere instead of counted. */
  beforeEach(collect: () => void): void
  /** All metrics in Prometheus' text format. */
  read(): Promise<string>
}

// Seconds; from a cache hit on loopback to a provider's deadline.
const LATENCY_BUCKETS = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120,
]

export function createMetrics(service: string): Metrics {
  const registry = new Registry()
  registry.setDefaultLabels({ service })
  collectDefaultMetrics({ register: registry })
  const registers = [registry]
  const collectors: (() => void)[] = []
  return {
    registry,
    counter: (name, help, labels = []) =>
      new Counter({ name, help, labelNames: [...labels], registers }),
    gauge: (name, help, labels = []) =>
      new Gauge({ name, help, labelNames: [...labels], registers }),
    histogram: (name, help, labels = [], buckets = LATENCY_BUCKETS) =>
      new Histogram({ name, help, labelNames: [...labels], buckets: [...buckets], registers }),
    beforeEach: (collect) => void collectors.push(collect),
    read() {
      for (const collect of collectors) collect()
      return registry.metrics()
    },
  }
}
