/**
 * A rule of deploy/prometheus/alerts.yml that the console also evaluates, on the metrics that the console has read
 * itself. The same definition yields the expression in PromQL, so that a test can compare this expression with the
 * file.
 */
import { type Installation, type Replica, responding } from './installation.ts'
import { gaugeValues, type Measured, type MetricQuery, promQl } from './metric-query.ts'

/** A gauge, or a counter whose rate is taken over the last `minutes`. */
export interface TimedQuery {
  readonly query: MetricQuery
  readonly minutes?: number
}

export interface AlertRule {
  readonly name: string
  readonly severity: 'critical' | 'warning'
  readonly service: string
  readonly query: MetricQuery
  /** The length of the window of a counter or of a histogram. */
  readonly minutes?: number
  /**
   * True if the rule compares the increase of a counter in the window with the limit. Otherwise it compares the rate
   * per second.
   */
  readonly isIncrease?: boolean
  /** If it is set, the limit applies to a share: the result of `query` divided by the result of this query. */
  readonly of?: MetricQuery
  readonly limit: readonly [operator: '>' | '<', value: number]
  /** Excludes a series from the rule if this counter of the series has grown in the last `minutes`. */
  readonly unless?: TimedQuery
  /** If it is set, the rule applies only while one of these values, each of a query without labels, is above 0. */
  readonly onlyWhile?: readonly TimedQuery[]
  /** How long the condition must last. */
  readonly forMinutes: number
}

/** Returns the values of a counter or of a histogram over the last minutes. */
export type Windows = (query: MetricQuery, minutes: number) => readonly Measured[]

/**
 * Returns the replicas whose gauges count. While no replica responds, returns all replicas with their last values, so
 * that a condition does not disappear because its service is unavailable.
 */
function knownReplicas(installation: Installation, service: string): readonly Replica[] {
  const up = responding(installation, service)
  return up.length > 0
    ? up
    : installation.services.flatMap(({ name, replicas }) => (name === service ? replicas : []))
}

/** Returns the series that exceed the limit of a rule, with their values. */
export function exceeding(
  rule: AlertRule,
  installation: Installation,
  windows: Windows,
): readonly Measured[] {
  const { limit, unless, onlyWhile, service } = rule
  const [operator, value] = limit
  const applies =
    onlyWhile?.some((one) =>
      valuesOf({ ...one, service }, installation, windows).some((series) => series.value > 0),
    ) ?? true
  if (!applies) return []
  const active = new Set(
    unless === undefined
      ? []
      : valuesOf({ ...unless, service }, installation, windows)
          .filter((series) => series.value > 0)
          .map(({ labels }) => JSON.stringify(labels)),
  )
  return valuesOf(rule, installation, windows).filter(
    (series) =>
      (operator === '>' ? series.value > value : series.value < value) &&
      !active.has(JSON.stringify(series.labels)),
  )
}

function valuesOf(
  {
    query,
    minutes = 0,
    isIncrease,
    of,
    service,
  }: Pick<AlertRule, 'query' | 'minutes' | 'isIncrease' | 'of' | 'service'>,
  installation: Installation,
  windows: Windows,
): readonly Measured[] {
  if (query.kind === 'gauge')
    return gaugeValues(
      query,
      knownReplicas(installation, service).map(({ samples }) => samples),
    )
  const values = windows(query, minutes)
  if (of !== undefined) {
    const total = windows(of, minutes)[0]?.value ?? 0
    return total > 0 ? values.map(({ labels, value }) => ({ labels, value: value / total })) : []
  }
  return query.kind === 'rate' && isIncrease !== true
    ? values.map(({ labels, value }) => ({ labels, value: value / (minutes * 60) }))
    : values
}

/** Returns the expression of a rule in PromQL. */
export function expressionOf(rule: AlertRule): string {
  const { query, minutes = 0, isIncrease, of, limit, unless, onlyWhile } = rule
  const counter = isIncrease === true ? 'increase' : 'rate'
  const value = [query, ...(of === undefined ? [] : [of])]
    .map((part) => promQl(part, `${minutes}m`, counter))
    .join(' / ')
  const exception =
    unless === undefined ? '' : ` unless on (${unless.query.by.join(', ')}) ${aboveZero(unless)}`
  const requirement =
    onlyWhile === undefined ? '' : ` and on () (${onlyWhile.map(aboveZero).join(' or ')})`
  return `${value} ${limit.join(' ')}${exception}${requirement}`
}

const aboveZero = ({ query, minutes = 0 }: TimedQuery): string =>
  `${promQl(query, `${minutes}m`)} > 0`
