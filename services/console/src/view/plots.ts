/** The plots of the page Charts. */
import type { MetricsSummary } from '@integration-host/shared/contracts/metrics-summary'
import type { ChartView } from '../contracts/charts.ts'
import type { MissingService, ServicesView } from '../contracts/services.ts'
import type { Installation } from './installation.ts'

export interface PlotQuery {
  readonly promQl: string
  /** The name of the only series, or the label whose value is the name of a series. */
  readonly name: string | { readonly label: string }
}

export interface Plot {
  readonly id: string
  readonly title: string
  readonly unit: ChartView['Unit']
  readonly service: string
  readonly queries: readonly PlotQuery[]
  /** Returns the present value of each series in a replica: for a rate, its total since the start of the replica. */
  readonly valuesIn: (summary: MetricsSummary) => Readonly<Record<string, number>> | undefined
}

const quantile = (q: number): PlotQuery => ({
  promQl: `histogram_quantile(${q}, sum by (le) (rate(gateway_request_duration_seconds_bucket[5m])))`,
  name: `p${q * 100}`,
})

export const plots: readonly Plot[] = [
  {
    id: 'runs',
    title: 'Runs that have not completed',
    unit: 'count',
    service: 'coordinator',
    queries: [
      {
        promQl: 'max by (status) (coordinator_transactions{status!="Completed"})',
        name: { label: 'status' },
      },
    ],
    valuesIn({ Coordinator }) {
      const { Completed: _, ...runs } = Coordinator?.Runs ?? {}
      return runs
    },
  },
  {
    id: 'steps',
    title: 'Steps per minute',
    unit: 'per_minute',
    service: 'coordinator',
    queries: [
      {
        promQl: '60 * sum by (outcome) (rate(coordinator_steps_total[5m]))',
        name: { label: 'outcome' },
      },
    ],
    valuesIn: ({ Coordinator }) => Coordinator?.Steps,
  },
  {
    id: 'calls',
    title: 'Calls through the gateway per minute',
    unit: 'per_minute',
    service: 'accounting-gateway',
    queries: [
      {
        promQl:
          '60 * sum by (class) (label_replace(rate(gateway_requests_total[5m]), "class", "$1xx", "status", "(.).*"))',
        name: { label: 'class' },
      },
    ],
    valuesIn: ({ Gateway }) => Gateway?.Calls,
  },
  {
    id: 'call-times',
    title: 'Time of calls through the gateway',
    unit: 'seconds',
    service: 'accounting-gateway',
    queries: [quantile(0.5), quantile(0.95)],
    valuesIn({ Gateway }) {
      const times = Gateway?.CallTimes ?? null
      return times === null ? {} : { p50: times.P50Seconds, p95: times.P95Seconds }
    },
  },
]

/** Returns the present values of a plot by replica. */
export const presentValues = (
  { service, valuesIn }: Plot,
  { services }: Installation,
): ChartView['Present'] =>
  Object.fromEntries(
    services
      .filter(({ name }) => name === service)
      .flatMap(({ replicas }) => replicas)
      .flatMap(({ address, misses, summary }) =>
        misses > 0 || summary === null ? [] : [[address, valuesIn(summary) ?? {}]],
      ),
  )

/** Returns a service of which no replica responds; `null` if a replica responds, or if none is known. */
export function missingService({ Services }: ServicesView, service: string): MissingService | null {
  const replicas = Services.find(({ Name }) => Name === service)?.Replicas ?? []
  const last = replicas.toSorted((one, other) => one.Since.localeCompare(other.Since)).at(-1)
  if (last === undefined || replicas.some(({ State }) => State !== 'unreachable')) return null
  return {
    Service: service,
    Code: 'service_unavailable',
    Detail: `${service} does not respond (${last.Reason ?? 'no response'})`,
    Since: last.Since,
  }
}
