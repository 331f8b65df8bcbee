import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import type { ReadRange, TimeRange } from '../adapters/prometheus/range-reader.ts'
import { type FigureRange, FiguresQuery, FiguresView } from '../contracts/figures.ts'
import type { NowView } from '../contracts/now.ts'
import type { ServicesView } from '../contracts/services.ts'
import type { Sessions } from '../session/sessions.ts'
import { textOfActivity } from '../view/activity.ts'
import { charts } from '../view/charts.ts'
import type { FigureHistory } from '../view/figure-history.ts'
import { chartView, missingService, RANGES } from '../view/figures.ts'
import { needsRole } from './browser-guard.ts'
import { PEER_PROBLEMS } from './peer-problems.ts'

export interface FiguresRouteDeps {
  readonly sessions: Sessions
  readonly isHttps: boolean
  readonly figures: FigureHistory
  /** Reads series from Prometheus; `null` without `PROMETHEUS_URL`. */
  readonly readRange: ReadRange | null
  readonly grafanaUrl: string | null
  readonly now: () => NowView
  readonly services: () => ServicesView
}

/** How long the series of a range from Prometheus are reused. All browsers share them. */
const REUSED_MS = 30_000

/** `GET /figures`: the metrics of the last hour from memory, and of longer ranges from Prometheus. */
export function figuresRoutes(deps: FiguresRouteDeps): Hono {
  const { sessions, isHttps, figures, readRange } = deps
  const latest = new Map<
    FigureRange,
    { readonly at: number; readonly result: Promise<FiguresView['Charts']> }
  >()

  /** The points are at whole steps, so that a point does not move when the page is read again. */
  function timesOf(range: FigureRange): TimeRange {
    const { seconds, step } = RANGES[range]
    const end = Math.floor(Date.now() / 1_000 / step) * step
    return { start: end - seconds + step, end, step }
  }

  async function chartsOf(range: FigureRange): Promise<FiguresView['Charts']> {
    if (range === '1h' || readRange === null) {
      const services = deps.services()
      return charts.map((chart) =>
        chartView(
          chart,
          figures.series(chart, Date.now()),
          missingService(services, chart.service),
        ),
      )
    }
    const times = timesOf(range)
    return Promise.all(
      charts.map(async (chart) => {
        try {
          const series = await Promise.all(chart.queries.map((query) => readRange(query, times)))
          return chartView(chart, series.flat())
        } catch {
          // If the query of one chart fails, the other charts are still returned. The page says which chart is missing.
          return chartView(chart, null)
        }
      }),
    )
  }

  function reused(range: FigureRange): Promise<FiguresView['Charts']> {
    const known = latest.get(range)
    if (range !== '1h' && known !== undefined && Date.now() - known.at < REUSED_MS)
      return known.result
    const result = chartsOf(range)
    latest.set(range, { at: Date.now(), result })
    return result
  }

  function markersOf({ start, end, step }: TimeRange): FiguresView['Markers'] {
    const changes = deps.now().Changes.map((change) => ({
      At: change.At,
      Text: `${change.Who} ${textOfActivity(change)}${change.Times > 1 ? `, ${change.Times} times` : ''}`,
    }))
    const starts = deps.services().Services.flatMap(({ Name, Replicas }) =>
      Replicas.flatMap(({ StartedAt, Version }) =>
        StartedAt === null
          ? []
          : [
              {
                At: StartedAt,
                Text: `${Name} started${Version === null ? '' : ` (${Version})`}`,
              },
            ],
      ),
    )
    return [...changes, ...starts]
      .filter(({ At }) => {
        const at = Date.parse(At) / 1_000
        return at >= start && at <= end + step
      })
      .toSorted((one, other) => one.At.localeCompare(other.At))
  }

  return new Hono().get(
    '/figures',
    needsRole(sessions, 'viewer', isHttps),
    describeRoute({
      operationId: 'getFigures',
      tags: ['state'],
      summary: 'Eight charts of the last hour, day or week',
      responses: {
        200: jsonResponse('the charts', FiguresView),
        ...problemResponses(PEER_PROBLEMS),
      },
    }),
    validate('query', FiguresQuery),
    async (c) => {
      const asked = c.req.valid('query').range
      // Without Prometheus, only the last hour is available. It is shown even if the address requests another range.
      const range = readRange === null ? '1h' : asked
      const times = timesOf(range)
      return c.json({
        Range: range,
        Until: new Date(times.end * 1_000).toISOString(),
        StepSeconds: times.step,
        Charts: await reused(range),
        Markers: markersOf(times),
        Ranges: readRange === null ? ['1h'] : ['1h', '24h', '7d'],
        WatchedSince: deps.now().WatchedSince,
        GrafanaUrl: deps.grafanaUrl,
      } satisfies FiguresView)
    },
  )
}
