import { keepPreviousData, useQuery } from '@tanstack/react-query'
import type { ChartsView } from '../../src/contracts/charts.ts'
import { call } from '../api.ts'
import { type Reading, seriesIn, withReading } from '../chart-history.ts'
import { full } from '../clock.ts'
import { Chart } from '../parts/chart.tsx'
import { Link } from '../parts/link.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { useQueryText } from '../router.ts'

const RANGES = [
  { range: '1h', name: 'Last hour' },
  { range: '24h', name: '24 hours' },
  { range: '7d', name: '7 days' },
] as const
const READ_AGAIN_MS = 15_000

interface Charts {
  readonly view: ChartsView
  /** The values that were read so far; empty with Prometheus. */
  readonly readings: readonly Reading[]
}

/** Shows four charts. With Prometheus, the address contains the range. */
export default function ChartsPage() {
  const range = new URLSearchParams(useQueryText()).get('range') ?? '1h'
  const queryKey = ['charts', range]
  const charts = useQuery({
    queryKey,
    async queryFn({ client }): Promise<Charts> {
      const view = await call<ChartsView>('GET', `/charts?${new URLSearchParams({ range })}`)
      const before = client.getQueryData<Charts>(queryKey)?.readings ?? []
      return { view, readings: view.StepSeconds === null ? withReading(before, view) : [] }
    },
    refetchInterval: READ_AGAIN_MS,
    placeholderData: keepPreviousData,
    gcTime: Infinity,
  })
  return (
    <>
      <h1 tabIndex={-1}>Charts</h1>
      {charts.data !== undefined && <Source {...charts.data} />}
      <ReadProblem error={charts.error} hasData={charts.data !== undefined} />
      {charts.data !== undefined && <Plots {...charts.data} />}
    </>
  )
}

/** Says where the values come from, and links to the other ranges and to Grafana. */
function Source({ view, readings }: Charts) {
  const since = readings[0]?.at
  return (
    <>
      {(view.StepSeconds !== null || view.GrafanaUrl !== null) && (
        <nav aria-label="Range" className="chips">
          {view.StepSeconds !== null &&
            RANGES.map(({ range, name }) => (
              <Link
                key={range}
                to={range === '1h' ? '/charts' : `/charts?range=${range}`}
                isCurrent={view.Range === range}
              >
                {name}
              </Link>
            ))}
          {view.GrafanaUrl !== null && (
            <a href={view.GrafanaUrl} target="_blank" rel="noopener noreferrer">
              Grafana
            </a>
          )}
        </nav>
      )}
      {since !== undefined && (
        <p className="muted">
          Since this page was opened, {full(new Date(since).toISOString())}. With PROMETHEUS_URL it
          shows up to 7 days.
        </p>
      )}
    </>
  )
}

function Plots({ view, readings }: Charts) {
  const { At, StepSeconds } = view
  const timesOf = (count: number): readonly number[] =>
    Array.from(
      { length: count },
      (_, index) => Date.parse(At) - (count - 1 - index) * (StepSeconds ?? 0) * 1_000,
    )
  return (
    <div className="charts">
      {view.Charts.map((chart) => {
        const series = StepSeconds === null ? seriesIn(readings, chart) : chart.Series
        return (
          <Chart
            key={chart.Id}
            chart={chart}
            series={series}
            times={
              StepSeconds === null
                ? readings.map(({ at }) => at)
                : timesOf(series?.[0]?.Points.length ?? 0)
            }
          />
        )
      })}
    </div>
  )
}
