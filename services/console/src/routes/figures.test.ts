import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type ConsoleFixture, startConsoleFixture } from '../../test-support/console-fixture.ts'
import { type FakeService, startFakeService } from '../../test-support/fake-service.ts'
import type { FiguresView } from '../contracts/figures.ts'

describe('the metrics of the page Charts', () => {
  let prometheus: FakeService
  let isDown = false
  let withPrometheus: ConsoleFixture
  let without: ConsoleFixture

  beforeAll(async () => {
    prometheus = await startFakeService(({ url: { pathname, searchParams } }) => {
      if (pathname !== '/api/v1/query_range' || isDown) return { status: 503, body: 'overloaded' }
      const end = Number(searchParams.get('end'))
      const step = Number(searchParams.get('step'))
      const isSteps = searchParams.get('query')?.includes('coordinator_steps_total') === true
      const isLatency = searchParams.get('query')?.startsWith('histogram_quantile(0.99') === true
      const result = isSteps
        ? Array.from({ length: 8 }, (_, index) => ({
            metric: { outcome: `outcome-${index}` },
            values: [
              [end - 2 * step, String(index)],
              [end, 'NaN'],
            ],
          }))
        : isLatency
          ? [{ metric: {}, values: [[end, '0.25']] }]
          : []
      return { body: { status: 'success', data: { resultType: 'matrix', result } } }
    })
    withPrometheus = await startConsoleFixture({
      PROMETHEUS_URL: prometheus.url,
      GRAFANA_URL: 'https://grafana.example.com',
    })
    without = await startConsoleFixture()
  })
  afterAll(async () => {
    for (const one of [withPrometheus, without, prometheus]) await one?.[Symbol.asyncDispose]()
  })

  async function read(at: ConsoleFixture, query: string): Promise<FiguresView> {
    const cookie = await at.signIn({ Link: at.signInLink().split('#')[1] })
    const response = await at.request(`/api/figures?${query}`, { cookie })
    expect(response.status).toBe(200)
    return (await response.json()) as FiguresView
  }

  it('GET /api/figures serves the last hour without Prometheus', async () => {
    const view = await read(without, '')
    expect(view).toMatchObject({ Range: '1h', Ranges: ['1h'], StepSeconds: 60, GrafanaUrl: null })
    expect(view.Charts).toHaveLength(8)
    expect(await read(without, 'range=7d')).toMatchObject({ Range: '1h' })
  })

  it('GET /api/figures reads longer ranges from Prometheus, keeps gaps, and returns the six highest series of a chart', async () => {
    const view = await read(withPrometheus, 'range=24h')
    expect(view).toMatchObject({
      Range: '24h',
      Ranges: ['1h', '24h', '7d'],
      StepSeconds: 600,
      GrafanaUrl: 'https://grafana.example.com',
    })
    const steps = view.Charts.find(({ Id }) => Id === 'steps')
    expect(steps?.Series.map(({ Name }) => Name)).toEqual(
      [2, 3, 4, 5, 6, 7].map((index) => `outcome-${index}`),
    )
    expect(steps?.Omitted).toBe(2)
    expect(steps?.Series[0]?.Points).toHaveLength(144)
    expect(steps?.Series[0]?.Points.slice(-3)).toEqual([2, null, null])
    expect(view.Charts.find(({ Id }) => Id === 'call-times')?.Series).toMatchObject([
      { Name: 'p99' },
    ])
  })

  it('the console reads a range from Prometheus only once for several browsers, and sends only the queries of the charts', async () => {
    const since = prometheus.requests.length
    await Promise.all([1, 2, 3].map(() => read(withPrometheus, 'range=7d')))
    expect(prometheus.requests.length - since).toBe(10)
  })

  it('GET /api/figures names the charts for which Prometheus has not responded', async () => {
    isDown = true
    await using at = await startConsoleFixture({ PROMETHEUS_URL: prometheus.url })
    const view = await read(at, 'range=24h')
    isDown = false
    expect(view.Charts.every(({ Failed }) => Failed)).toBe(true)
  })

  it('GET /api/figures rejects an unknown range, and a PromQL query from the browser, with 400', async () => {
    const cookie = await without.signIn({ Link: without.signInLink().split('#')[1] })
    for (const query of ['range=1y', 'query=up'])
      expect((await without.request(`/api/figures?${query}`, { cookie })).status).toBe(400)
  })
})
