/**
 * The conditions that the console finds in the metrics of the services: the rules of deploy/prometheus/alerts.yml with the
 * same limits and times, and the words of docs/runbook.md.
 */
import { realmOf } from '@integration-host/shared/contracts/realm'
import { counted } from '../isomorphic/count-text.ts'
import { companyPage, pages } from '../isomorphic/pages.ts'
import { type AlertRule, exceeding, type Windows } from './alert-rule.ts'
import { companyName, type Condition, listed } from './condition.ts'
import type { FigureSource } from './figure-history.ts'
import type { Installation } from './installation.ts'
import { lateReason } from './late-runs.ts'
import { valueOf } from './metric-text.ts'
import type { Measured, MetricQuery } from './metric-query.ts'

/** The texts of a condition, which describe a series that exceeds the limit of the rule. */
type Words = Pick<Condition, 'title' | 'detail' | 'remedy' | 'page'> & {
  readonly affected?: number
}
export interface MetricCondition extends AlertRule {
  readonly words: (value: number, labels: readonly string[], installation: Installation) => Words
  /** Says whether another condition says all that this one would say. It needs the values of `query`, too. */
  readonly covered?: {
    readonly by: string
    readonly query: MetricQuery
    readonly when: (series: readonly Measured[]) => boolean
  }
}

const STEP = ['process', 'step'] as const
const percent = (share: number): string => `${Math.round(share * 100)} %`
const counter = (metric: string, where?: MetricQuery['where']): MetricQuery => ({
  kind: 'rate',
  metric,
  by: [],
  ...(where !== undefined && { where }),
})
const gauge = (metric: string, by: readonly string[] = []): MetricQuery => ({
  kind: 'gauge',
  metric,
  by,
})

/** The classes of failed refreshes that do not concern the grant of a company. */
const NOT_OF_GRANT = 'provider_.*|throttled|client_refused'

export const metricConditions: readonly MetricCondition[] = [
  {
    name: 'TokenNearExpiry',
    severity: 'critical',
    service: 'token-service',
    query: { ...gauge('credential_nearest_expiry_seconds'), isLowest: true },
    limit: ['<', 120],
    forMinutes: 1,
    words: (seconds) => ({
      title: 'An access token is about to expire and was not refreshed',
      detail:
        seconds > 0
          ? `It expires in ${Math.round(seconds)} s, although refreshes start 10 minutes before.`
          : 'It has expired. Token-service is behind, or its refreshes fail.',
      remedy: 'Look at the other conditions first, then at the log of token-service.',
      page: pages.companies,
    }),
  },
  {
    name: 'EnvelopesRefused',
    severity: 'critical',
    service: 'token-service',
    query: counter('envelopes_refused_total'),
    minutes: 15,
    isIncrease: true,
    limit: ['>', 0],
    forMinutes: 0,
    words: (count) => ({
      title: 'Stored secrets cannot be decrypted',
      detail: `${counted(Math.round(count), 'time')} within 15 minutes.`,
      remedy:
        'Append the missing key to CREDENTIAL_KEYS. If the keys are right, another program has changed the data in Redis.',
      page: pages.health,
    }),
  },
  {
    name: 'RefreshesFailing',
    severity: 'warning',
    service: 'token-service',
    query: counter('credential_refreshes_total', { label: 'outcome', is: '=', value: 'failed' }),
    of: counter('credential_refreshes_total', { label: 'outcome', is: '!=', value: 'superseded' }),
    minutes: 15,
    limit: ['>', 0.2],
    // The cause has ended if no company has a fault any more. But a failure that does not concern the grant causes no
    // fault while the access token is valid, so that such failures count for some minutes.
    onlyWhile: [
      { query: gauge('credentials_faulted') },
      {
        query: counter('credential_refreshes_total', {
          label: 'class',
          is: '=~',
          value: NOT_OF_GRANT,
        }),
        minutes: 5,
      },
    ],
    forMinutes: 5,
    covered: {
      by: 'CredentialsFaulted',
      query: {
        ...counter('credential_refreshes_total', { label: 'outcome', is: '=', value: 'failed' }),
        by: ['class'],
      },
      // A failure that concerns the grant always causes a fault. Any other failure may concern all companies, although
      // few of them have a fault: while access tokens are valid, an outage of the provider causes none.
      when: (series) =>
        series.every(
          ({ labels: [name = ''], value }) =>
            value === 0 || !new RegExp(`^(?:${NOT_OF_GRANT})$`).test(name),
        ),
    },
    words(share, _, { faulted, companies }) {
      const { failing = 0, must_reconnect = 0 } = companies?.States ?? {}
      const count = Math.max(failing + must_reconnect, faulted.length)
      const [first] = faulted
      return {
        title: 'More than a fifth of the refreshes fail',
        detail: [
          `${percent(share)} within 15 minutes.`,
          ...(count === 0 ? [] : [`With a fault: ${listed(faulted.map(companyName), count)}.`]),
        ].join(' '),
        remedy:
          'The class of the faults shows the cause. Nothing has to be done for provider_unavailable and throttled.',
        page:
          first === undefined
            ? pages.charts
            : count === 1
              ? companyPage(realmOf(first.Name))
              : `${pages.companies}?state=${first.State}`,
      }
    },
  },
  {
    name: 'ProviderSlow',
    severity: 'warning',
    service: 'token-service',
    query: {
      kind: 'quantile',
      metric: 'provider_request_duration_seconds',
      by: ['call'],
      q: 0.95,
    },
    minutes: 10,
    limit: ['>', 5],
    forMinutes: 10,
    words: (seconds, [call = '']) => ({
      title: 'Calls to the provider take more than 5 s',
      detail: `${call}: ${seconds.toFixed(1)} s (95th percentile); they time out after 10 s.`,
      remedy: 'Look at the status page of the provider. Nothing has to be done here.',
      page: pages.charts,
    }),
  },
  {
    name: 'GatewayErrors',
    severity: 'warning',
    service: 'accounting-gateway',
    query: counter('gateway_requests_total', { label: 'status', is: '=~', value: '5..' }),
    of: counter('gateway_requests_total'),
    minutes: 5,
    limit: ['>', 0.05],
    forMinutes: 5,
    words: (share) => ({
      title: 'More than 5 % of the calls to the accounting API fail',
      detail: `${percent(share)} within 5 minutes.`,
      remedy:
        '502 and 504 come from the accounting API or the network to it, 503 from token-service, 500 from a defect of the gateway.',
      page: pages.charts,
    }),
  },
  {
    name: 'GatewayThrottling',
    severity: 'warning',
    service: 'accounting-gateway',
    query: counter('gateway_throttled_total'),
    minutes: 5,
    limit: ['>', 0],
    forMinutes: 15,
    words: () => ({
      title: 'Callers exceed the rate that the provider allows for a company',
      detail: 'The gateway has responded with 429 for 15 minutes.',
      remedy: 'Slow the caller down, or let it batch its calls.',
      page: pages.limits,
    }),
  },
  {
    name: 'RealmsOnHold',
    severity: 'warning',
    service: 'accounting-gateway',
    query: gauge('gateway_realms_on_hold'),
    limit: ['>', 0],
    forMinutes: 15,
    words: (count) => ({
      title: `${counted(count, 'company is', 'companies are')} in cool-down`,
      detail:
        'The provider keeps responding with 429, although the gateway keeps within its limits.',
      remedy: 'Look for another program that calls the API with the same application.',
      affected: count,
      page: pages.limits,
    }),
  },
  {
    name: 'BooksOutOfBalance',
    severity: 'critical',
    service: 'coordinator',
    query: gauge('coordinator_violations', ['kind']),
    limit: ['>', 0],
    forMinutes: 3,
    words: (count, [kind = '']) => ({
      title: 'The tables of the runs contradict each other',
      detail: `${kind} ${count}`,
      remedy: 'Follow the section BooksOutOfBalance of the runbook.',
      affected: count,
      page: pages.health,
    }),
  },
  {
    name: 'RunsNotTaken',
    severity: 'critical',
    service: 'coordinator',
    query: gauge('coordinator_due_runs', STEP),
    limit: ['>', 0],
    unless: { query: { kind: 'rate', metric: 'coordinator_steps_total', by: STEP }, minutes: 10 },
    forMinutes: 10,
    words(count, labels, installation) {
      const known = lateReason(installation, labels[0] ?? '')
      return {
        title: `${counted(count, 'run is', 'runs are')} due at ${labels.join('.')}, and no worker claims ${count === 1 ? 'it' : 'them'}`,
        detail: known?.reason ?? 'No worker has finished this step for 10 minutes.',
        remedy: known?.remedy ?? `Look at the queue steps.${labels.join('.')}: has it consumers?`,
        affected: count,
        page: pages.processes,
      }
    },
  },
  {
    name: 'RunsLate',
    severity: 'warning',
    service: 'coordinator',
    query: gauge('coordinator_oldest_due_seconds', STEP),
    limit: ['>', 300],
    forMinutes: 5,
    words(seconds, labels, installation) {
      const known = lateReason(installation, labels[0] ?? '')
      return {
        title: `Runs at ${labels.join('.')} are late`,
        detail:
          `The oldest has been due for ${Math.round(seconds / 60)} minutes. ${known?.reason ?? ''}`.trim(),
        remedy:
          known?.remedy ??
          'Nothing has to be done if the number of due runs falls. Otherwise add a coordinator, or raise PREFETCH.',
        page: pages.processes,
      }
    },
  },
  {
    name: 'DeadMessages',
    severity: 'warning',
    service: 'coordinator',
    query: gauge('coordinator_dead_messages', ['process']),
    limit: ['>', 0],
    forMinutes: 0,
    words: (count, [process = '']) => ({
      title: `${counted(count, 'dead letter')} of ${process}`,
      detail: 'Messages that no coordinator could read or assign to a run.',
      remedy:
        count === 1
          ? 'Requeue it when its cause is removed, or discard it.'
          : 'Requeue them when their cause is removed, or discard them.',
      affected: count,
      page: pages.processes,
    }),
  },
  {
    name: 'LeasesLost',
    severity: 'warning',
    service: 'coordinator',
    query: counter('coordinator_steps_total', {
      label: 'outcome',
      is: '=~',
      value: 'lost|fenced',
    }),
    minutes: 15,
    isIncrease: true,
    limit: ['>', 5],
    forMinutes: 0,
    words: (count) => ({
      title: 'Workers lost the leases of their steps',
      detail: `${Math.round(count)} within 15 minutes. Another worker ran these steps as well, and only one result was recorded.`,
      remedy: 'Give the coordinator and Postgres more resources, or lower PREFETCH.',
      page: pages.charts,
    }),
  },
  {
    name: 'SweepsMany',
    severity: 'warning',
    service: 'coordinator',
    query: counter('coordinator_sweep_publishes_total'),
    minutes: 15,
    limit: ['>', 1],
    forMinutes: 15,
    words: (perSecond) => ({
      title: 'Messages get lost, or the workers are far behind',
      detail: `The sweeper re-publishes ${perSecond.toFixed(1)} messages a second.`,
      remedy:
        'Remove a policy of the broker that deletes messages of steps.*, or add a coordinator.',
      page: pages.processes,
    }),
  },
]

/**
 * The counters and histograms whose values the console must keep for some minutes, because the conditions are computed
 * over the last minutes.
 */
export const conditionSources: readonly FigureSource[] = metricConditions.map(
  ({ service, query, of, unless, onlyWhile = [], covered }) => ({
    service,
    queries: [
      query,
      of,
      unless?.query,
      ...onlyWhile.map((one) => one.query),
      covered?.query,
    ].flatMap((one) => (one === undefined || one.kind === 'gauge' ? [] : [one])),
  }),
)

/**
 * The rule for the delay of an event loop. The rule is separate from the other rules, because every replica of every
 * service is compared with the limit.
 */
export const eventLoopLag = {
  name: 'EventLoopLag',
  severity: 'warning',
  metric: 'nodejs_eventloop_lag_p99_seconds',
  limit: 0.25,
  forMinutes: 10,
} as const

/**
 * Returns the conditions that the metrics show now. `forMs` is the time that a condition must last before it is shown.
 */
export function* conditionsOfMetrics(
  installation: Installation,
  windows: Windows,
): Generator<Condition> {
  for (const rule of metricConditions)
    for (const { labels, value } of exceeding(rule, installation, windows)) {
      const { affected = 1, ...words } = rule.words(value, labels, installation)
      const { covered } = rule
      const isCovered = covered?.when(windows(covered.query, rule.minutes ?? 0)) ?? false
      yield {
        key: [rule.name, ...(labels.length === 0 ? [] : [JSON.stringify(labels)])].join(' '),
        name: rule.name,
        severity: rule.severity,
        ...words,
        affected: Math.max(0, Math.round(affected)),
        knownSince: null,
        forMs: rule.forMinutes * 60_000,
        ...(isCovered && covered !== undefined && { coveredBy: covered.by }),
        labels: Object.fromEntries(
          rule.query.by.map((label, index) => [label, labels[index] ?? '']),
        ),
      }
    }
  for (const { name: service, replicas } of installation.services)
    for (const { address, misses, samples } of replicas) {
      const lag = misses === 0 ? valueOf(samples, eventLoopLag.metric) : null
      if (lag === null || !(lag > eventLoopLag.limit)) continue
      yield {
        key: `${eventLoopLag.name} ${service} ${address}`,
        name: eventLoopLag.name,
        severity: eventLoopLag.severity,
        title: `${service} responds late because it is busy`,
        detail: `${address}: the delay of its event loop is ${Math.round(lag * 1_000)} ms (99th percentile).`,
        remedy: 'Add a replica, or give the process a whole core.',
        affected: 1,
        knownSince: null,
        forMs: eventLoopLag.forMinutes * 60_000,
        labels: { service },
        page: pages.health,
      }
    }
}
