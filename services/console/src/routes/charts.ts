import type { Hono } from 'hono'
import type { ReadRange, TimeRange } from '../adapters/prometheus/prometheus.ts'
import { type ChartRange, type ChartSeries, ChartsQuery, ChartsView } from '../contracts/charts.ts'
import { missingService, type Plot, plots, presentValues } from '../view/plots.ts'
import { reused } from '../reused.ts'
import { guardedRoutes, type RouteDeps } from './guarded-route.ts'

/** The length and the step of each range, in seconds. */
const RANGES: Readonly<Record<ChartRange, { readonly length: number; readonly step: number }>> = {
  '1h': { length: 3_600, step: 60 },
  '24h': { length: 86_400, step: 600 },
  '7d': { length: 604_800, step: 3_600 },
}
/** How long the series from Prometheus are reused. All browsers share them. */
const REUSED_MS = 30_000

/** `GET /charts`: the charts from Prometheus, or their present values from what the console has read. */
export function chartRoutes(deps: RouteDeps): Hono {
  const { read, routes } = guardedRoutes(deps, 'state')
  const { readRange, grafanaUrl } = deps

  function presentCharts(): ChartsView {
    const installation = deps.installation()
    const services = deps.services()
    return {
      At: new Date(installation.metricsAt ?? Date.now()).toISOString(),
      StepSeconds: null,
      Range: '1h',
      Charts: plots.map((plot) => ({
        Id: plot.id,
        Title: plot.title,
        Unit: plot.unit,
        Series: [],
        Present: presentValues(plot, installation),
        Unavailable: missingService(services, plot.service),
      })),
      GrafanaUrl: grafanaUrl,
    }
  }

  async function seriesOf(
    readSeries: ReadRange,
    { queries }: Plot,
    times: TimeRange,
  ): Promise<ChartSeries[] | null> {
    try {
      const series = await Promise.all(
        queries.map(async ({ promQl, name }) =>
          (await readSeries(promQl, times)).map(({ labels, points }) => ({
            Name: typeof name === 'string' ? name : (labels[name.label] ?? ''),
            Points: points,
          })),
        ),
      )
      return series.flat()
    } catch {
      // If the query of one chart fails, the other charts are still returned. The page says which chart is missing.
      return null
    }
  }

  async function recordedCharts(readSeries: ReadRange, range: ChartRange): Promise<ChartsView> {
    const { length, step } = RANGES[range]
    // The points are at whole steps, so that a point does not move when the page is read again.
    const end = Math.floor(Date.now() / 1_000 / step) * step
    const times = { start: end - length + step, end, step }
    return {
      At: new Date(end * 1_000).toISOString(),
      StepSeconds: step,
      Range: range,
      Charts: await Promise.all(
        plots.map(async (plot) => ({
          Id: plot.id,
          Title: plot.title,
          Unit: plot.unit,
          Series: await seriesOf(readSeries, plot, times),
          Present: {},
          Unavailable: null,
        })),
      ),
      GrafanaUrl: grafanaUrl,
    }
  }

  const shared = (range: ChartRange) =>
    reused(REUSED_MS, (readSeries: ReadRange) => recordedCharts(readSeries, range))
  const recorded = { '1h': shared('1h'), '24h': shared('24h'), '7d': shared('7d') }

  read('/charts', {
    operationId: 'getCharts',
    summary: 'Four charts: of the last hour, day or week with Prometheus, or their present values',
    query: ChartsQuery,
    view: ['the charts', ChartsView],
    respond: ({ query: { range } }) =>
      readRange === null ? presentCharts() : recorded[range](readRange),
  })
  return routes
}
