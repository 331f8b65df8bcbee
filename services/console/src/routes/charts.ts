import { Hono } from 'hono'
import type { ReadRange, TimeRange } from '../adapters/prometheus/range-reader.ts'
import { type ChartRange, type ChartSeries, ChartsQuery, ChartsView } from '../contracts/charts.ts'
import type { ServicesView } from '../contracts/services.ts'
import type { Installation } from '../view/installation.ts'
import { missingService, type Plot, plots, presentValues } from '../view/plots.ts'
import { type GuardDeps, guardedRoutes } from './guarded-route.ts'

export interface ChartRouteDeps extends GuardDeps {
  /** Reads series from Prometheus; `null` without `PROMETHEUS_URL`. */
  readonly readRange: ReadRange | null
  readonly grafanaUrl: string | null
  readonly installation: () => Installation
  readonly services: () => ServicesView
}

/** The length and the step of each range, in seconds. */
const RANGES: Readonly<Record<ChartRange, { readonly length: number; readonly step: number }>> = {
  '1h': { length: 3_600, step: 60 },
  '24h': { length: 86_400, step: 600 },
  '7d': { length: 604_800, step: 3_600 },
}
/** How long the series from Prometheus are reused. All browsers share them. */
const REUSED_MS = 30_000

/** `GET /charts`: the charts from Prometheus, or their present values from what the console has read. */
export function chartRoutes(deps: ChartRouteDeps): Hono {
  const routes = guardedRoutes(deps, 'state')
  const { readRange, grafanaUrl } = deps
  const latest = new Map<
    ChartRange,
    { readonly at: number; readonly result: Promise<ChartsView> }
  >()

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
    read: ReadRange,
    { queries }: Plot,
    times: TimeRange,
  ): Promise<ChartSeries[] | null> {
    try {
      const series = await Promise.all(
        queries.map(async ({ promQl, name }) =>
          (await read(promQl, times)).map(({ labels, points }) => ({
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

  async function recordedCharts(read: ReadRange, range: ChartRange): Promise<ChartsView> {
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
          Series: await seriesOf(read, plot, times),
          Present: {},
          Unavailable: null,
        })),
      ),
      GrafanaUrl: grafanaUrl,
    }
  }

  function reused(read: ReadRange, range: ChartRange): Promise<ChartsView> {
    const known = latest.get(range)
    if (known !== undefined && Date.now() - known.at < REUSED_MS) return known.result
    const result = recordedCharts(read, range)
    latest.set(range, { at: Date.now(), result })
    return result
  }

  return new Hono().get(
    '/charts',
    ...routes.read({
      operationId: 'getCharts',
      summary:
        'Four charts: of the last hour, day or week with Prometheus, or their present values',
      query: ChartsQuery,
      view: ['the charts', ChartsView],
      respond: ({ query: { range } }) =>
        readRange === null ? presentCharts() : reused(readRange, range),
    }),
  )
}
