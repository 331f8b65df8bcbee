import { type PointerEvent, useId, useState } from 'react'
import type { ChartView } from '../../src/contracts/figures.ts'
import { linePath, roundedMaximum, valueText } from '../chart.ts'
import { inList } from '../clock.ts'
import { Since } from './problem.tsx'
import { Outside } from './text.tsx'

const SIZE = { width: 600, height: 120 } as const

export interface ChartProps {
  readonly chart: ChartView
  /** The times of the points, in epoch ms. */
  readonly times: readonly number[]
  /** The times at which something changed, each as a share of the chart's width. */
  readonly markers: readonly { readonly share: number; readonly text: string }[]
  /** The point at the cross-hair of all charts; `null` if there is no cross-hair. */
  readonly chosen: number | null
  readonly onChoose: (index: number | null) => void
}

/** Shows a small chart of lines, the values at the cross-hair, and a table with the same values. */
export function Chart({ chart, times, markers, chosen, onChoose }: ChartProps) {
  const { Title, Unit, Series } = chart
  const title = useId()
  const highest = Math.max(0, ...Series.flatMap(({ Points }) => Points.map((point) => point ?? 0)))
  const maximum = roundedMaximum(highest)
  const shown = chosen ?? times.length - 1
  const ends = [times[0], times.at(-1)].map((time) =>
    time === undefined ? '' : inList(new Date(time).toISOString()),
  )
  const choose = (event: PointerEvent<SVGSVGElement>): void => {
    const { left, width } = event.currentTarget.getBoundingClientRect()
    const share = (event.clientX - left) / width
    onChoose(Math.max(0, Math.min(times.length - 1, Math.round(share * (times.length - 1)))))
  }
  return (
    <section className="panel figure" aria-labelledby={title}>
      <h2 id={title}>{Title}</h2>
      {chart.Unavailable !== null && (
        <p className="failure">
          <Outside text={chart.Unavailable.Detail} />
          {chart.Unavailable.Since !== null && <Since time={chart.Unavailable.Since} />} Newer
          values are missing.
        </p>
      )}
      {Series.length === 0 ? (
        <p className="muted empty">
          {chart.Failed ? 'Prometheus has not responded.' : 'Nothing in this time.'}
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
              onPointerMove={choose}
              onPointerLeave={() => onChoose(null)}
            >
              <path
                className="grid"
                d={`M0 0H${SIZE.width}M0 60H${SIZE.width}M0 120H${SIZE.width}`}
              />
              {markers.map(({ share, text }) => (
                <line
                  key={`${share} ${text}`}
                  className="marker"
                  x1={share * SIZE.width}
                  x2={share * SIZE.width}
                  y1="0"
                  y2={SIZE.height}
                />
              ))}
              {Series.map(({ Name, Points }, index) => (
                <path
                  key={Name}
                  className={`line series-${index}`}
                  d={linePath(Points, maximum, SIZE)}
                />
              ))}
              {chosen !== null && (
                <line
                  className="hair"
                  x1={(chosen / (times.length - 1)) * SIZE.width}
                  x2={(chosen / (times.length - 1)) * SIZE.width}
                  y1="0"
                  y2={SIZE.height}
                />
              )}
            </svg>
            <p className="ends" aria-hidden="true">
              <span>{ends[0]}</span>
              <span>{ends[1]}</span>
            </p>
          </div>
          <ul className="legend">
            {Series.map(({ Name, Points }, index) => (
              <li key={Name}>
                <svg viewBox="0 0 20 8" aria-hidden="true">
                  <path className={`line series-${index}`} d="M1 4H19" />
                </svg>
                <Outside text={Name} /> <strong>{valueText(Points[shown] ?? null, Unit)}</strong>
              </li>
            ))}
            {chart.Omitted > 0 && <li className="muted">and {chart.Omitted} lower ones</li>}
          </ul>
          <Values chart={chart} times={times} />
        </>
      )}
    </section>
  )
}

/** Shows the values as a table, which is created only when a person opens it. */
function Values({
  chart,
  times,
}: {
  readonly chart: ChartView
  readonly times: readonly number[]
}) {
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
              {chart.Series.map(({ Name }) => (
                <th key={Name} scope="col" className="outside">
                  <Outside text={Name} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {times
              .map((time, index) => (
                <tr key={time}>
                  <td>{inList(new Date(time).toISOString())}</td>
                  {chart.Series.map(({ Name, Points }) => (
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
