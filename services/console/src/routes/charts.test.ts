import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type ConsoleFixture, startConsoleFixture } from '../../test-support/console-fixture.ts'
import { type FakeService, startFakeService } from '../../test-support/fake-service.ts'
import type { ChartsView } from '../contracts/charts.ts'

describe('the page Charts', () => {
  let prometheus: FakeService
  let isDown = false
  let withPrometheus: ConsoleFixture
  let gateway: FakeService
  let without: ConsoleFixture

  beforeAll(async () => {
    prometheus = await startFakeService(({ url: { pathname, searchParams } }) => {
      if (pathname !== '/api/v1/query_range' || isDown) return { status: 503, body: 'overloaded' }
      const end = Number(searchParams.get('end'))
      const step = Number(searchParams.get('step'))
      const query = searchParams.get('query') ?? ''
      const result = query.includes('coordinator_steps_total')
        ? ['completed', 'failed'].map((outcome, index) => ({
            metric: { outcome },
            values: [
              [end - 2 * step, String(index + 1)],
              [end, 'NaN'],
            ],
          }))
        : query.startsWith('histogram_quantile(0.95')
          ? [{ metric: {}, values: [[end, '0.25']] }]
          : []
      return { body: { status: 'success', data: { resultType: 'matrix', result } } }
    })
    gateway = await startFakeService(({ url: { pathname } }) =>
      pathname === '/health/ready'
        ? { body: { status: 'ready', dependencies: {} } }
        : pathname === '/metrics/summary'
          ? {
              body: {
                Version: '1.2.3',
                StartedAt: '2026-11-24T03:00:00.000Z',
                LagMs: 11,
                MemoryBytes: 100,
                Gateway: {
                  Calls: { '2xx': 5, '5xx': 1 },
                  CallTimes: { P50Seconds: 0.1, P95Seconds: 0.25 },
                  CoolingDown: 0,
                  MeteredCalls: null,
                  MonthlyBudget: null,
                },
              },
            }
          : undefined,
    )
    withPrometheus = await startConsoleFixture({
      PROMETHEUS_URL: prometheus.url,
      GRAFANA_URL: 'https://grafana.example.com',
    })
    without = await startConsoleFixture({ GATEWAY_URL: gateway.url })
  })
  afterAll(async () => {
    for (const one of [withPrometheus, without, prometheus, gateway])
      await one?.[Symbol.asyncDispose]()
  })

  async function read(at: ConsoleFixture, query: string): Promise<ChartsView> {
    const cookie = await at.signIn({ Link: at.signInLink().split('#')[1] })
    const response = await at.request(`/api/charts?${query}`, { cookie })
    expect(response.status).toBe(200)
    return (await response.json()) as ChartsView
  }
  const chart = ({ Charts }: ChartsView, id: string) => Charts.find(({ Id }) => Id === id)

  it('without Prometheus, GET /api/charts returns the present values of each replica, and names a service that does not respond', async () => {
    await expect
      .poll(async () => chart(await read(without, ''), 'calls')?.Present)
      .toEqual({ [new URL(gateway.url).host]: { '2xx': 5, '5xx': 1 } })
    const view = await read(without, 'range=7d')
    expect(view).toMatchObject({ Range: '1h', StepSeconds: null, GrafanaUrl: null })
    expect(Object.values(chart(view, 'call-times')?.Present ?? {})).toEqual([
      { p50: 0.1, p95: 0.25 },
    ])
    expect(chart(view, 'calls')?.Unavailable).toBeNull()
    expect(chart(view, 'runs')).toMatchObject({
      Series: [],
      Present: {},
      Unavailable: { Service: 'coordinator' },
    })
  })

  it('with Prometheus, GET /api/charts returns the series of a range with their gaps', async () => {
    const view = await read(withPrometheus, 'range=24h')
    expect(view).toMatchObject({
      Range: '24h',
      StepSeconds: 600,
      GrafanaUrl: 'https://grafana.example.com',
    })
    expect(view.Charts).toHaveLength(4)
    const [completed, failed] = chart(view, 'steps')?.Series ?? []
    expect([completed?.Name, failed?.Name]).toEqual(['completed', 'failed'])
    expect(completed?.Points).toHaveLength(144)
    expect(failed?.Points.slice(-3)).toEqual([2, null, null])
    expect(chart(view, 'call-times')?.Series).toMatchObject([{ Name: 'p95' }])
  })

  it('the console reads a range from Prometheus only once for several browsers, and sends only the queries of the charts', async () => {
    const since = prometheus.requests.length
    await Promise.all([1, 2, 3].map(() => read(withPrometheus, 'range=7d')))
    expect(prometheus.requests.length - since).toBe(5)
  })

  it('GET /api/charts names the charts for which Prometheus has not responded', async () => {
    isDown = true
    await using at = await startConsoleFixture({ PROMETHEUS_URL: prometheus.url })
    const view = await read(at, 'range=24h')
    isDown = false
    expect(view.Charts.map(({ Series }) => Series)).toEqual([null, null, null, null])
  })

  it('GET /api/charts rejects an unknown range, and a PromQL query from the browser, with 400', async () => {
    const cookie = await without.signIn({ Link: without.signInLink().split('#')[1] })
    for (const query of ['range=1y', 'query=up'])
      expect((await without.request(`/api/charts?${query}`, { cookie })).status).toBe(400)
  })
})
