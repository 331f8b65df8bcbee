import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import type { FiguresView } from '../../src/contracts/figures.ts'
import { call } from '../api.ts'
import { full, inList } from '../clock.ts'
import { Chart } from '../parts/chart.tsx'
import { Link } from '../parts/link.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { Outside } from '../parts/text.tsx'
import { useQueryText } from '../router.ts'

const RANGES = [
  { range: '1h', name: 'Last hour' },
  { range: '24h', name: '24 hours' },
  { range: '7d', name: '7 days' },
] as const
const READ_AGAIN_MS = 15_000

/** Shows eight charts that share one cross-hair. The address contains the range. */
export default function ChartsPage() {
  const range = new URLSearchParams(useQueryText()).get('range') ?? '1h'
  const figures = useQuery({
    queryKey: ['figures', range],
    queryFn: () => call<FiguresView>('GET', `/figures?${new URLSearchParams({ range })}`),
    refetchInterval: READ_AGAIN_MS,
    placeholderData: keepPreviousData,
  })
  const view = figures.data
  return (
    <>
      <h1 tabIndex={-1}>Charts</h1>
      {view !== undefined && <Ranges view={view} />}
      <ReadProblem error={figures.error} hasData={view !== undefined} />
      {view !== undefined && <Charts view={view} />}
    </>
  )
}

/** A vertical line for the legend, drawn like the vertical lines of the charts. */
function Mark({ name }: { readonly name: 'marker' | 'hair' }) {
  return (
    <svg viewBox="0 0 4 14" className="upright" aria-hidden="true">
      <line className={name} x1="2" x2="2" y1="0" y2="14" />
    </svg>
  )
}

function Ranges({ view }: { readonly view: FiguresView }) {
  const isMemoryOnly = view.Ranges.length === 1
  return (
    <>
      <nav aria-label="Range" className="chips">
        {RANGES.filter(({ range }) => view.Ranges.includes(range)).map(({ range, name }) => (
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
      {view.Range === '1h' && (
        <p className="muted">
          From the memory of the console, since {full(view.WatchedSince)}. Each point is a minute;
          the coordinator counts its runs once a minute, and Now shows newer numbers.
          {isMemoryOnly && ' Longer ranges need PROMETHEUS_URL.'}
        </p>
      )}
    </>
  )
}

function Charts({ view }: { readonly view: FiguresView }) {
  const [chosen, setChosen] = useState<number | null>(null)
  const count = view.Charts.find(({ Series }) => Series.length > 0)?.Series[0]?.Points.length ?? 60
  const until = Date.parse(view.Until)
  const stepMs = view.StepSeconds * 1_000
  const times = Array.from({ length: count }, (_, index) => until - (count - 1 - index) * stepMs)
  const from = times[0] ?? until
  const markers = view.Markers.map(({ At, Text }) => ({
    at: At,
    text: Text,
    share: Math.max(0, Math.min(1, (Date.parse(At) - from) / (until - from))),
  }))
  const index = chosen ?? count - 1
  const time = new Date(times[index] ?? until).toISOString()
  return (
    <>
      <label className="hair-time">
        <span>
          Values at <strong>{inList(time)}</strong>
        </span>
        <input
          type="range"
          min={0}
          max={count - 1}
          value={index}
          aria-valuetext={full(time)}
          onChange={(event) => setChosen(Number(event.target.value))}
        />
      </label>
      <ul className="legend muted" aria-label="Marks in all charts">
        {markers.length > 0 && (
          <li>
            <Mark name="marker" /> a change, see the list below
          </li>
        )}
        <li>
          <Mark name="hair" /> the chosen time
        </li>
      </ul>
      <div className="charts">
        {view.Charts.map((chart) => (
          <Chart
            key={chart.Id}
            chart={chart}
            times={times}
            markers={markers}
            chosen={chosen}
            onChoose={setChosen}
          />
        ))}
      </div>
      <section className="panel" aria-labelledby="markers">
        <h2 id="markers">What changed in this time</h2>
        {markers.length === 0 ? (
          <p className="muted">Nothing, as far as the newest entries of the logs say.</p>
        ) : (
          <ol className="changes">
            {markers.toReversed().map(({ at, text }) => (
              <li key={`${at} ${text}`}>
                <time dateTime={at} title={full(at)}>
                  {inList(at)}
                </time>
                <Outside text={text} />
              </li>
            ))}
          </ol>
        )}
        <p className="after">
          <Link to="/activity">All activity</Link>
        </p>
      </section>
    </>
  )
}
