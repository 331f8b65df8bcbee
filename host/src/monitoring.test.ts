/**
 * Checks that the Grafana dashboard and the Prometheus alert rules in deploy/ use metrics that the services export, and
 * that the runbook explains each alert.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readEmbeddedConfig as readGatewayConfig } from '@integration-host/accounting-gateway/config'
import { startAccountingGateway } from '@integration-host/accounting-gateway/service'
import { readEmbeddedConfig as readCoordinatorConfig } from '@integration-host/coordinator/config'
import { createMemoryTransactionSource } from '@integration-host/coordinator/memory-transaction-source'
import { startCoordinator } from '@integration-host/coordinator/service'
import { readConfig as readDemoApiConfig } from '@integration-host/demo-api/config'
import { startDemoApi } from '@integration-host/demo-api/service'
import { generateKeyRing } from '@integration-host/shared/secrets/envelope'
import { createHealth } from '@integration-host/shared/observability/health'
import { createInProcessBus } from '@integration-host/shared/messaging/in-process/message-bus'
import { createLogger } from '@integration-host/shared/observability/logger'
import { createMetrics, type Metrics } from '@integration-host/shared/observability/metrics'
import { readEmbeddedConfig as readTokenConfig } from '@integration-host/token-service/config'
import { createFileCredentialStore } from '@integration-host/token-service/file-credential-store'
import { countDecryptionFailures } from '@integration-host/token-service/metrics'
import { startTokenService } from '@integration-host/token-service/service'
import { readEmbeddedConfig as readReceiverConfig } from '@integration-host/webhook-receiver/config'
import { startWebhookReceiver } from '@integration-host/webhook-receiver/service'
import { parser } from '@prometheus-io/lezer-promql'
import { beforeAll, describe, expect, it } from 'vitest'
import { parse } from 'yaml'

/** The label names of each exported time series, by the name of the series. */
type Exported = ReadonlyMap<string, ReadonlySet<string>>

/** The labels of every series. Prometheus adds `job` and `instance`; createMetrics adds `service`. */
const EVERYWHERE = ['job', 'instance', 'service']

/**
 * A time series that a node of RabbitMQ 4.1 or newer exports at `/metrics/detailed`, for each queue with a member on
 * the node. It is exported only if one of QUEUE_FAMILIES is requested (rabbitmq/rabbitmq-server#13583).
 */
const QUEUE_INFO = 'rabbitmq_detailed_queue_info'
const QUEUE_FAMILIES = ['queue_coarse_metrics', 'queue_consumer_count', 'queue_metrics']

/**
 * Returns a metrics object for a service. The object records the name and the labels of each registered metric in
 * `into`.
 */
function recorded(service: string, into: Map<string, Set<string>>): Metrics {
  const metrics = createMetrics(service)
  const note = (name: string, labels: readonly string[] = []): void =>
    void into.set(name, new Set([...EVERYWHERE, ...labels]))
  for (const { name } of metrics.registry.getMetricsAsArray()) note(name)
  return {
    ...metrics,
    counter(name, help, labels) {
      note(name, labels)
      return metrics.counter(name, help, labels)
    },
    gauge(name, help, labels) {
      note(name, labels)
      return metrics.gauge(name, help, labels)
    },
    histogram(name, help, labels = [], buckets) {
      note(`${name}_bucket`, [...labels, 'le'])
      for (const part of ['sum', 'count']) note(`${name}_${part}`, labels)
      return metrics.histogram(name, help, labels, buckets)
    },
  }
}

/**
 * Starts every service that Prometheus scrapes, without Redis, PostgreSQL and RabbitMQ, and returns all metrics that
 * the services registered.
 */
async function exportedNames(): Promise<Exported> {
  const names = new Map<string, Set<string>>([
    ['up', new Set(['job', 'instance'])],
    [QUEUE_INFO, new Set(['job', 'instance', 'vhost', 'queue', 'queue_type', 'membership'])],
  ])
  const dataDir = await mkdtemp(join(tmpdir(), 'monitoring-'))
  await using opened = new AsyncDisposableStack()
  opened.defer(() => rm(dataDir, { recursive: true, force: true }))
  const logger = createLogger('monitoring', 'silent')
  const bus = opened.use(createInProcessBus(logger))
  const deps = (service: string) => ({
    logger,
    health: createHealth(logger),
    metrics: recorded(service, names),
    bus,
  })
  const env = {
    MONTHLY_BUDGET: '500000',
    PORT: '0',
    SERVICE_API_KEY: 'monitoring-test-key-0123456789-0123456789',
    DATA_DIR: dataDir,
    DISCOVERY_URL: 'http://127.0.0.1:1/discovery',
    ACCOUNTING_URL: 'http://127.0.0.1:1',
    CLIENT_ID: 'client',
    CLIENT_SECRET: 'secret',
    REDIRECT: 'http://127.0.0.1:1/callback',
    CREDENTIAL_KEYS: generateKeyRing().reveal(),
    SERVICE_KEYS_FILE: join(dataDir, 'keys.json'),
    WEBHOOKS_FILE: join(dataDir, 'webhooks.json'),
    WEBHOOK_VERIFIER_TOKENS: 'monitoring-verifier-token',
  }
  for (const file of [env.SERVICE_KEYS_FILE, env.WEBHOOKS_FILE]) await writeFile(file, '[]')
  const tokenConfig = readTokenConfig(env)
  const tokenDeps = deps('token-service')
  const keys = countDecryptionFailures(tokenConfig.CREDENTIAL_KEYS, tokenDeps.metrics)
  const store = opened.use(await createFileCredentialStore(dataDir, keys))
  opened.use(await startTokenService(tokenConfig, { ...tokenDeps, store }))
  opened.use(await startAccountingGateway(readGatewayConfig(env), deps('accounting-gateway')))
  const openSource = () => createMemoryTransactionSource(dataDir)
  opened.use(
    await startCoordinator(readCoordinatorConfig(env), { ...deps('coordinator'), openSource }),
  )
  opened.use(await startWebhookReceiver(readReceiverConfig(env), deps('webhook-receiver')))
  opened.use(await startDemoApi(readDemoApiConfig(env), deps('demo-api')))
  return names
}

const GRAFANA_INTERVAL = '$__rate_interval'

/**
 * Returns the faults of a PromQL query: syntax errors, series that no service exports, and labels that the selected
 * series do not have.
 */
function faultsOf(query: string, exported: Exported): string[] {
  const text = query.replaceAll(GRAFANA_INTERVAL, '5m')
  const tree = parser.parse(text)
  const faults: string[] = []
  const within = (node: { from: number; to: number }): string => text.slice(node.from, node.to)
  /** Returns the names of the series that the query selects between two character offsets of its text. */
  const namesIn = (from: number, to: number): string[] => {
    const names: string[] = []
    tree.iterate({
      from,
      to,
      enter(node) {
        if (node.name !== 'VectorSelector' || node.from < from || node.to > to) return
        const name = node.node.getChild('Identifier')
        names.push(name === null ? '' : within(name))
      },
    })
    return names
  }
  tree.iterate({
    enter({ node, type, name }) {
      if (type.isError) faults.push(`is not PromQL at ${node.from}`)
      if (name === 'VectorSelector') {
        const [series = ''] = namesIn(node.from, node.to)
        const labels = exported.get(series)
        if (labels === undefined) faults.push(`${series} is not exported`)
      }
      if (name !== 'LabelName') return
      // A label in a matcher belongs to the selected series. A label in `by` or `on` belongs to every series of the
      // expression.
      let scope = node.parent
      while (
        scope !== null &&
        !['VectorSelector', 'AggregateExpr', 'BinaryExpr'].includes(scope.name)
      )
        scope = scope.parent
      for (const series of scope === null ? [] : namesIn(scope.from, scope.to))
        if (exported.get(series)?.has(within(node)) === false)
          faults.push(`${series} has no label ${within(node)}`)
    },
  })
  return [...new Set(faults)]
}

interface Alert {
  readonly alert: string
  readonly expr: string
  readonly annotations: { readonly summary: string; readonly runbook: string }
}
interface Dashboard {
  readonly panels: readonly {
    readonly id: number
    readonly title: string
    readonly description?: string
    readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[]
  }[]
}

const read = (path: string): Promise<string> =>
  readFile(new URL(`../../${path}`, import.meta.url), 'utf8')

let exported: Exported
let alerts: readonly Alert[]
let dashboard: Dashboard
beforeAll(async () => {
  exported = await exportedNames()
  const rules = parse(await read('deploy/prometheus/alerts.yml')) as {
    groups: { rules: Alert[] }[]
  }
  alerts = rules.groups.flatMap((group) => group.rules)
  dashboard = JSON.parse(await read('deploy/grafana/integration-host.json')) as Dashboard
})

describe('the alert rules', () => {
  it('alert rules query only metrics and labels that the services export', () => {
    const faults = alerts.flatMap(({ alert, expr }) =>
      faultsOf(expr, exported).map((fault) => `${alert}: ${fault}`),
    )
    expect(faults).toEqual([])
    expect(alerts.length).toBeGreaterThan(10)
  })

  it('the shipped scrape job for RabbitMQ requests the series that the alert rules query', async () => {
    const { scrape_configs: jobs } = parse(await read('deploy/prometheus/rabbitmq.yml')) as {
      scrape_configs: { job_name: string; metrics_path: string; params: { family: string[] } }[]
    }
    expect(jobs).toMatchObject([{ job_name: 'rabbitmq', metrics_path: '/metrics/detailed' }])
    for (const { params } of jobs)
      expect(params.family.some((family) => QUEUE_FAMILIES.includes(family))).toBe(true)
    const broker = alerts.filter(({ expr }) => expr.includes(QUEUE_INFO))
    expect(broker.map(({ alert }) => alert)).toEqual(['QueueMembersMissing', 'QueueUnavailable'])
    for (const { expr } of broker) expect(expr).toContain('job="rabbitmq"')
  })

  it('the runbook has exactly one section for each alert rule', async () => {
    const [, runbook = ''] = (await read('docs/runbook.md')).split('\n## Alerts\n')
    const [alertSections = ''] = runbook.split('\n## ')
    const sections = [...alertSections.matchAll(/^### ([A-Z]\w+)$/gm)].map(([, name = '']) => name)
    expect(sections.toSorted()).toEqual(alerts.map(({ alert }) => alert).toSorted())
    for (const { alert, annotations } of alerts)
      expect(annotations.runbook).toBe(`docs/runbook.md#${alert.toLowerCase()}`)
  })

  it('the summary of an alert uses only labels that the query of the alert returns', () => {
    for (const { alert, expr, annotations } of alerts) {
      for (const [, label = ''] of annotations.summary.matchAll(/\$labels\.(\w+)/g)) {
        const isAggregated = /\b(?:sum|max|min)\b/.test(expr)
        const kept = [...expr.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, list = '']) =>
          list.split(',').map((name) => name.trim()),
        )
        expect(!isAggregated || kept.includes(label), `${alert} loses ${label}`).toBe(true)
      }
    }
  })
})

describe('the Grafana dashboard', () => {
  it('the panels of the Grafana dashboard query only metrics and labels that the services export', () => {
    const faults = dashboard.panels.flatMap(({ title, targets = [] }) =>
      targets.flatMap(({ expr }) => faultsOf(expr, exported).map((fault) => `${title}: ${fault}`)),
    )
    expect(faults).toEqual([])
    expect(dashboard.panels.flatMap(({ targets = [] }) => targets).length).toBeGreaterThan(30)
  })

  it('the panels of the Grafana dashboard have unique ids, and each panel with a query has a description', () => {
    const { panels } = dashboard
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length)
    for (const { title, targets, description } of panels)
      if (targets !== undefined) expect(description, title).toMatch(/\.$/)
  })

  it('the descriptions in the Grafana dashboard refer only to existing alert rules', () => {
    const names = new Set(alerts.map(({ alert }) => alert))
    const named = dashboard.panels.flatMap(({ description = '' }) =>
      [...description.matchAll(/Runbook: (\w+)/g)].map(([, name = '']) => name),
    )
    expect(named.filter((name) => !names.has(name))).toEqual([])
    expect(named).not.toEqual([])
  })
})

describe('the check of PromQL queries', () => {
  const some: Exported = new Map([['a_total', new Set(['kind'])]])
  it.each([
    ['sum(rate(b_total[5m]))', 'b_total is not exported'],
    ['sum by (realm) (rate(a_total[5m]))', 'a_total has no label realm'],
    ['a_total{realm="1"}', 'a_total has no label realm'],
    ['a_total unless on (realm) a_total', 'a_total has no label realm'],
    ['sum(rate(a_total[5m])', /is not PromQL/],
  ])('faultsOf() reports the fault of the query %s', (query, fault) => {
    expect(faultsOf(query, some)).toEqual([
      typeof fault === 'string' ? fault : expect.stringMatching(fault),
    ])
  })

  it('faultsOf() reports no fault for a valid query', () => {
    expect(
      faultsOf('sum by (kind) (rate(a_total{kind!="x"}[$__rate_interval])) > 0', some),
    ).toEqual([])
  })
})
