/** How a value is computed from a metric of the services, for charts and for conditions. */
import type { Sample, Samples } from './metric-text.ts'

export interface MetricQuery {
  /**
   * `gauge`: the highest value of all replicas, because all replicas read the same tables. `rate`: the increase of a
   * counter, summed over the replicas. `quantile`: a quantile of a histogram.
   */
  readonly kind: 'gauge' | 'rate' | 'quantile'
  readonly metric: string
  /** The labels that distinguish the series. Samples that differ only in other labels are added up. */
  readonly by: readonly string[]
  /** The quantile, such as 0.95, if `kind` is `quantile`. */
  readonly q?: number
  /** Only samples that fulfil this condition are used. */
  readonly where?: LabelMatcher
  /** Whether the label `status` is replaced by its class, such as `5xx`. */
  readonly byStatusClass?: boolean
  /** True if the lowest value of all replicas is used for a gauge. Otherwise the highest value is used. */
  readonly isLowest?: boolean
  /** The name of the only series of a query without labels. */
  readonly name?: string
}

/** A condition for a label, with the operators of PromQL. */
export interface LabelMatcher {
  readonly label: string
  readonly is: '=' | '!=' | '=~'
  readonly value: string
}

/** A series with its value. `labels` are the values of the labels in `by`, in the same order. */
export interface Measured {
  readonly labels: readonly string[]
  readonly value: number
}

/** Returns whether the query uses this sample. */
export function isMatch({ where }: MetricQuery, { labels }: Sample): boolean {
  if (where === undefined) return true
  const value = labels[where.label] ?? ''
  switch (where.is) {
    case '=':
      return value === where.value
    case '!=':
      return value !== where.value
    case '=~':
      return new RegExp(`^(?:${where.value})$`).test(value)
  }
}

/** Returns the values of the labels that distinguish the series of a sample. */
export function seriesLabels(
  { by, byStatusClass }: MetricQuery,
  labels: Readonly<Record<string, string>>,
): readonly string[] {
  if (byStatusClass === true) return [labels['class'] ?? `${labels['status']?.charAt(0) ?? '?'}xx`]
  return by.map((label) => labels[label] ?? '')
}

/** Returns the name of the series with these labels. */
export const seriesName = (query: MetricQuery, labels: Readonly<Record<string, string>>): string =>
  query.name ?? seriesLabels(query, labels).join('.')

/**
 * Returns one value for each series of a gauge, computed over all replicas. Samples whose value is not a number are
 * left out.
 */
export function gaugeValues(
  query: MetricQuery,
  replicas: readonly (Samples | null)[],
): readonly Measured[] {
  const values = new Map<string, Measured>()
  for (const sample of replicas.flatMap((samples) => samples?.get(query.metric) ?? [])) {
    if (!isMatch(query, sample) || Number.isNaN(sample.value)) continue
    const labels = seriesLabels(query, sample.labels)
    const key = JSON.stringify(labels)
    const known = values.get(key)?.value ?? sample.value
    const value =
      query.isLowest === true ? Math.min(known, sample.value) : Math.max(known, sample.value)
    values.set(key, { labels, value })
  }
  return [...values.values()]
}

/**
 * Returns the query in PromQL. Counters and histograms are evaluated over the last `window`. The query contains no text
 * from a request.
 */
export function promQl(
  { kind, metric, by, q = 0.95, where, byStatusClass, isLowest }: MetricQuery,
  window: string,
  counter: 'rate' | 'increase' = 'rate',
): string {
  const selector = where === undefined ? '' : `{${where.label}${where.is}"${where.value}"}`
  const labels = byStatusClass === true ? ['class'] : by
  const over = (operator: string, names: readonly string[], inner: string): string =>
    names.length === 0 ? `${operator}(${inner})` : `${operator} by (${names.join(', ')}) (${inner})`
  switch (kind) {
    case 'gauge':
      return over(isLowest === true ? 'min' : 'max', labels, metric + selector)
    case 'rate': {
      const rate = `${counter}(${metric}${selector}[${window}])`
      return over(
        'sum',
        labels,
        byStatusClass === true
          ? `label_replace(${rate}, "class", "$1xx", "status", "(.).*")`
          : rate,
      )
    }
    case 'quantile':
      return `histogram_quantile(${q}, ${over('sum', ['le', ...labels], `rate(${metric}_bucket${selector}[${window}])`)})`
  }
}
