import { describe, expect, it } from 'vitest'
import { type ChartDefinition, chartPromQl, charts } from './charts.ts'
import { createFigureHistory } from './figure-history.ts'
import type { Replica, ServiceState } from './installation.ts'
import { parseMetrics } from './metric-text.ts'
import { quantileOf } from './quantile.ts'

const START = 1_000 * 60_000
function chartOf(id: string): ChartDefinition {
  const found = charts.find((chart) => chart.id === id)
  if (found === undefined) throw new Error(`there is no chart ${id}`)
  return found
}

const replica = (address: string, text: string, misses = 0): Replica => ({
  address,
  misses,
  since: 0,
  reason: null,
  report: null,
  samples: parseMetrics(text),
  clockOffsetMs: 0,
})
const service = (name: string, ...replicas: readonly Replica[]): readonly ServiceState[] => [
  { name, replicas },
]
const steps = (count: number) => `coordinator_steps_total{outcome="completed"} ${count}`

describe('the figure history: the metrics of the last hour', () => {
  it('the figure history adds the increases of the counters of all replicas, minute by minute', () => {
    const history = createFigureHistory(charts)
    for (const [second, one, two] of [
      [0, 100, 7],
      [30, 110, 8],
      [60, 130, 8],
    ] as const)
      history.add(
        START + second * 1_000,
        service('coordinator', replica('a', steps(one)), replica('b', steps(two))),
      )
    const [series] = history.series(chartOf('steps'), START + 61_000)
    expect(series?.name).toBe('completed')
    expect(series?.points.slice(-2)).toEqual([11, 20])
    expect(series?.points).toHaveLength(60)
  })

  it('if a counter falls, the figure history assumes a restart after which the counter began at 0', () => {
    const history = createFigureHistory(charts)
    for (const [second, count] of [
      [0, 100],
      [10, 105],
      [20, 3],
    ] as const)
      history.add(START + second * 1_000, service('coordinator', replica('a', steps(count))))
    expect(history.series(chartOf('steps'), START + 20_000)[0]?.points.at(-1)).toBe(8)
  })

  it('a minute in which no replica responded is a gap in the figure history, and its events are not counted later', () => {
    const history = createFigureHistory(charts)
    history.add(START, service('coordinator', replica('a', steps(1))))
    history.add(START + 10_000, service('coordinator', replica('a', steps(5))))
    history.add(START + 70_000, service('coordinator', replica('a', steps(5), 3)))
    history.add(START + 150_000, service('coordinator', replica('a', steps(900))))
    history.add(START + 160_000, service('coordinator', replica('a', steps(901))))
    expect(history.series(chartOf('steps'), START + 160_000)[0]?.points.slice(-3)).toEqual([
      4,
      null,
      1,
    ])
  })

  it('in the figure history, the value of a gauge in a minute is the highest value of the replicas at the end of the minute', () => {
    const history = createFigureHistory(charts)
    const text = (failed: number) =>
      `coordinator_transactions{status="Failed"} ${failed}\ncoordinator_transactions{status="Completed"} 900`
    history.add(START, service('coordinator', replica('a', text(9)), replica('b', text(9))))
    history.add(START + 9_000, service('coordinator', replica('a', text(2)), replica('b', text(3))))
    expect(history.series(chartOf('runs'), START + 10_000)).toMatchObject([{ name: 'Failed' }])
    expect(history.series(chartOf('runs'), START + 10_000)[0]?.points.at(-1)).toBe(3)
  })

  it('the figure history computes the quantiles of a minute only from the calls in this minute, and has none for a minute without calls', () => {
    const history = createFigureHistory(charts)
    const text = (fast: number, slow: number) =>
      [
        `gateway_request_duration_seconds_bucket{le="0.1"} ${fast}`,
        `gateway_request_duration_seconds_bucket{le="1"} ${fast + slow}`,
        `gateway_request_duration_seconds_bucket{le="+Inf"} ${fast + slow}`,
      ].join('\n')
    history.add(START, service('accounting-gateway', replica('a', text(1_000, 0))))
    history.add(START + 9_000, service('accounting-gateway', replica('a', text(1_010, 90))))
    history.add(START + 60_000, service('accounting-gateway', replica('a', text(1_010, 90))))
    const [p50, p95] = history.series(chartOf('call-times'), START + 60_000)
    expect([p50?.name, p95?.name]).toEqual(['p50', 'p95'])
    expect(p50?.points.slice(-2)).toEqual([expect.closeTo(0.5), null])
    expect(p95?.points.at(-2)).toBeCloseTo(0.95)
  })

  it('the figure history keeps the series of 60 minutes and drops older values', () => {
    const history = createFigureHistory(charts)
    for (let minute = 0; minute < 130; minute += 1)
      history.add(START + minute * 60_000, service('coordinator', replica('a', steps(minute))))
    const [series] = history.series(chartOf('steps'), START + 129 * 60_000)
    expect(series?.points).toEqual(Array.from({ length: 60 }, () => 1))
  })
})

describe('quantiles of histograms', () => {
  it('a quantile of a histogram counts observations beyond the largest bound as the largest bound', () => {
    expect(
      quantileOf(0.99, [
        { le: 1, count: 1 },
        { le: Infinity, count: 10 },
      ]),
    ).toBe(1)
    expect(quantileOf(0.5, [{ le: 1, count: 0 }])).toBeNull()
    expect(quantileOf(0.5, [])).toBeNull()
  })
})

describe('the queries for Prometheus', () => {
  it('the queries for Prometheus come from the same table as the charts of the last hour', () => {
    expect(charts.flatMap(({ queries }) => queries.map(chartPromQl))).toEqual([
      'max by (status) (coordinator_transactions{status!="Completed"})',
      '60 * sum by (outcome) (rate(coordinator_steps_total[5m]))',
      'histogram_quantile(0.95, sum by (le, process, step) (rate(coordinator_step_duration_seconds_bucket[5m])))',
      'max by (process, step) (coordinator_oldest_due_seconds)',
      '60 * sum by (class) (label_replace(rate(gateway_requests_total[5m]), "class", "$1xx", "status", "(.).*"))',
      'histogram_quantile(0.5, sum by (le) (rate(gateway_request_duration_seconds_bucket[5m])))',
      'histogram_quantile(0.95, sum by (le) (rate(gateway_request_duration_seconds_bucket[5m])))',
      'histogram_quantile(0.99, sum by (le) (rate(gateway_request_duration_seconds_bucket[5m])))',
      '60 * sum by (outcome) (rate(credential_refreshes_total[5m]))',
      'histogram_quantile(0.95, sum by (le, call) (rate(provider_request_duration_seconds_bucket[5m])))',
    ])
  })
})
