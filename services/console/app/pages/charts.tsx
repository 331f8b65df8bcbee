import { keepPreviousData, useQuery } from '@tanstack/react-query'
import type { ChartSeries, ChartsView, ChartView } from '../../src/contracts/charts.ts'
import { call } from '../api.ts'
import {
  linePath,
  type Reading,
  roundedMaximum,
  seriesIn,
  valueText,
  withReading,
} from '../chart.ts'
import { full, inList } from '../clock.ts'
import { Link } from '../parts/link.tsx'
import { ReadProblem, Since } from '../parts/problem.tsx'
import { useQueryText } from '../router.ts'
import { useId, useState } from 'react'
import { Outside } from '../parts/elements.tsx'

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
export function ChartsPage() {
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

const SIZE = { width: 600, height: 120 } as const
/** The maximum number of lines, so that they can be told apart. */
const MAX_LINES = 6

interface ChartProps {
  readonly chart: ChartView
  /** The lines of the chart; `null` if they could not be read. */
  readonly series: readonly ChartSeries[] | null
  /** The times of the points, in epoch ms. */
  readonly times: readonly number[]
}

/** The names of series that do not explain themselves. */
const NAMES: Readonly<Record<string, string>> = {
  later: 'asks again',
  held: 'in a cool-down',
  p50: 'median',
  p95: '95th percentile',
}

const highestOf = (...series: readonly ChartSeries[]): number =>
  Math.max(0, ...series.flatMap(({ Points }) => Points.map((point) => point ?? 0)))

/** Shows a small chart of lines with their newest values, and a table with the same values. */
function Chart({ chart, series, times }: ChartProps) {
  const { Title, Unit, Unavailable } = chart
  const title = useId()
  const all = (series ?? []).filter(({ Points }) => Points.some((point) => point !== null))
  // Lines that stay at zero say nothing beside others.
  const present = all.filter((one) => highestOf(one) > 0)
  const known = present.length > 0 ? present : all
  const lines = known
    .toSorted((one, other) => highestOf(other) - highestOf(one))
    .slice(0, MAX_LINES)
    .toSorted((one, other) => one.Name.localeCompare(other.Name))
  const highest = highestOf(...lines)
  const maximum = roundedMaximum(highest)
  const ends = [times[0], times.at(-1)].map((time) =>
    time === undefined ? '' : inList(new Date(time).toISOString()),
  )
  return (
    <section className="panel figure" aria-labelledby={title}>
      <h2 id={title}>{Title}</h2>
      {Unavailable !== null && (
        <p className="failure">
          <Outside text={Unavailable.Detail} />
          {Unavailable.Since !== null && <Since time={Unavailable.Since} />} Newer values are
          missing.
        </p>
      )}
      {lines.length === 0 ? (
        <p className="muted empty">
          {series === null ? 'Prometheus has not responded.' : 'Nothing in this time.'}
        </p>
      ) : (
        <>
          <div className="plot">
            <span className="axis">{valueText(maximum, Unit)}</span>
            <svg
              viewBox={`0 0 ${SIZE.width} ${SIZE.height}`}
              preserveAspectRatio="none"
              role="img"
              aria-label={`${Title}, at most ${valueText(highest, Unit)}. The table below has the values.`}
            >
              <path
                className="grid"
                d={`M0 0H${SIZE.width}M0 60H${SIZE.width}M0 120H${SIZE.width}`}
              />
              {lines.map(({ Name, Points }, index) => (
                <path
                  key={Name}
                  className={`line series-${index}`}
                  d={linePath(Points, times, maximum, SIZE)}
                />
              ))}
            </svg>
            <p className="ends" aria-hidden="true">
              <span>{ends[0]}</span>
              <span>{ends[1]}</span>
            </p>
          </div>
          <ul className="legend">
            {lines.map(({ Name, Points }, index) => (
              <li key={Name}>
                <svg viewBox="0 0 20 8" aria-hidden="true">
                  <path className={`line series-${index}`} d="M1 4H19" />
                </svg>
                <Outside text={NAMES[Name] ?? Name} />{' '}
                <strong>{valueText(Points.at(-1) ?? null, Unit)}</strong>
              </li>
            ))}
            {known.length > lines.length && (
              <li className="muted">and {known.length - lines.length} lower ones</li>
            )}
          </ul>
          <Values chart={chart} lines={lines} times={times} />
        </>
      )}
    </section>
  )
}

interface ValuesProps extends Pick<ChartProps, 'chart' | 'times'> {
  readonly lines: readonly ChartSeries[]
}

/** Shows the values as a table, which is created only when a person opens it. */
function Values({ chart, lines, times }: ValuesProps) {
  const [isOpen, setOpen] = useState(false)
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        Values<span className="unseen"> of {chart.Title}</span>
      </summary>
      {isOpen && (
        <table>
          <thead>
            <tr>
              <th scope="col">Time</th>
              {lines.map(({ Name }) => (
                <th key={Name} scope="col" className="outside">
                  <Outside text={NAMES[Name] ?? Name} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {times
              .map((time, index) => (
                <tr key={time}>
                  <td>{inList(new Date(time).toISOString())}</td>
                  {lines.map(({ Name, Points }) => (
                    <td key={Name}>{valueText(Points[index] ?? null, chart.Unit)}</td>
                  ))}
                </tr>
              ))
              .toReversed()}
          </tbody>
        </table>
      )}
    </details>
  )
}
