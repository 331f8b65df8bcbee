/** The charts of the console, and how their values are computed from the metrics of the services. */

/** How the series of a chart are computed from a metric. */
export interface ChartQuery {
  /**
   * `gauge`: the highest value of all replicas, because they read the same tables. `rate`: the increase per minute,
   * summed over the replicas. `quantile`: a quantile of a histogram.
   */
  readonly kind: 'gauge' | 'rate' | 'quantile'
  readonly metric: string
  /** The labels that distinguish the series. Samples that differ only in other labels are added up. */
  readonly by: readonly string[]
  /** The quantile, such as 0.95, if `kind` is `quantile`. */
  readonly q?: number
  /** Samples are left out if a label has one of these values. */
  readonly without?: { readonly label: string; readonly value: string }
  /** Whether the label `status` is replaced by its class, such as `5xx`. */
  readonly byStatusClass?: boolean
  /** The name of the only series of a query without labels. */
  readonly name?: string
}

export interface ChartDefinition {
  readonly id: string
  readonly title: string
  readonly unit: 'count' | 'per_minute' | 'seconds'
  readonly service: string
  readonly queries: readonly ChartQuery[]
}

const latency = (q: number): ChartQuery => ({
  kind: 'quantile',
  metric: 'gateway_request_duration_seconds',
  by: [],
  q,
  name: `p${q * 100}`,
})

export const charts: readonly ChartDefinition[] = [
  {
    id: 'runs',
    title: 'Runs that have not completed',
    unit: 'count',
    service: 'coordinator',
    queries: [
      {
        kind: 'gauge',
        metric: 'coordinator_transactions',
        by: ['status'],
        without: { label: 'status', value: 'Completed' },
      },
    ],
  },
  {
    id: 'steps',
    title: 'Steps per minute',
    unit: 'per_minute',
    service: 'coordinator',
    queries: [{ kind: 'rate', metric: 'coordinator_steps_total', by: ['outcome'] }],
  },
  {
    id: 'step-times',
    title: 'Time of steps, 95 %',
    unit: 'seconds',
    service: 'coordinator',
    queries: [
      {
        kind: 'quantile',
        metric: 'coordinator_step_duration_seconds',
        by: ['process', 'step'],
        q: 0.95,
      },
    ],
  },
  {
    id: 'oldest-due',
    title: 'Oldest due run',
    unit: 'seconds',
    service: 'coordinator',
    queries: [{ kind: 'gauge', metric: 'coordinator_oldest_due_seconds', by: ['process', 'step'] }],
  },
  {
    id: 'calls',
    title: 'Calls through the gateway per minute',
    unit: 'per_minute',
    service: 'accounting-gateway',
    queries: [
      { kind: 'rate', metric: 'gateway_requests_total', by: ['status'], byStatusClass: true },
    ],
  },
  {
    id: 'call-times',
    title: 'Time of calls through the gateway',
    unit: 'seconds',
    service: 'accounting-gateway',
    queries: [latency(0.5), latency(0.95), latency(0.99)],
  },
  {
    id: 'refreshes',
    title: 'Refreshes per minute',
    unit: 'per_minute',
    service: 'token-service',
    queries: [{ kind: 'rate', metric: 'credential_refreshes_total', by: ['outcome'] }],
  },
  {
    id: 'provider',
    title: 'Time of requests to the provider, 95 %',
    unit: 'seconds',
    service: 'token-service',
    queries: [
      { kind: 'quantile', metric: 'provider_request_duration_seconds', by: ['call'], q: 0.95 },
    ],
  },
]

/** Returns the query in PromQL. It contains no text from a request. */
export function promQl({ kind, metric, by, q = 0.95, without, byStatusClass }: ChartQuery): string {
  const selector = without === undefined ? '' : `{${without.label}!="${without.value}"}`
  const labels = byStatusClass === true ? ['class'] : by
  switch (kind) {
    case 'gauge':
      return `max by (${labels.join(', ')}) (${metric}${selector})`
    case 'rate': {
      const rate = `rate(${metric}${selector}[5m])`
      const relabelled =
        byStatusClass === true ? `label_replace(${rate}, "class", "$1xx", "status", "(.).*")` : rate
      return `60 * sum by (${labels.join(', ')}) (${relabelled})`
    }
    case 'quantile':
      return `histogram_quantile(${q}, sum by (${['le', ...labels].join(', ')}) (rate(${metric}_bucket${selector}[5m])))`
  }
}

/** Returns the name of the series with these labels. */
export function seriesName(
  { by, byStatusClass, name }: ChartQuery,
  labels: Readonly<Record<string, string>>,
): string {
  if (byStatusClass === true) return labels['class'] ?? `${labels['status']?.charAt(0) ?? '?'}xx`
  return name ?? by.map((label) => labels[label] ?? '').join('.')
}
