/** The charts of the console. */
import { type MetricQuery, promQl } from './metric-query.ts'

export interface ChartDefinition {
  readonly id: string
  readonly title: string
  readonly unit: 'count' | 'per_minute' | 'seconds'
  readonly service: string
  readonly queries: readonly MetricQuery[]
}

const latency = (q: number): MetricQuery => ({
  kind: 'quantile',
  metric: 'gateway_request_duration_seconds',
  by: [],
  q,
  name: `p${q * 100}`,
})

/** The duration of the attempts of each step, as the 95th percentile. */
export const stepTimes: MetricQuery = {
  kind: 'quantile',
  metric: 'coordinator_step_duration_seconds',
  by: ['process', 'step'],
  q: 0.95,
}

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
        where: { label: 'status', is: '!=', value: 'Completed' },
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
    queries: [stepTimes],
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

/** Returns the query of a chart in PromQL. Rates are per minute. */
export const chartPromQl = (query: MetricQuery): string =>
  `${query.kind === 'rate' ? '60 * ' : ''}${promQl(query, '5m')}`
