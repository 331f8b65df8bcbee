import { useState } from 'react'
import type { RunView } from '../../src/contracts/runs.ts'
import { duration, fullMs, useSeconds } from '../clock.ts'
import { timeAxis } from '../time-axis.ts'
import { visible } from '../visible.ts'
import { waterfall } from '../waterfall.ts'
import { Outside } from './text.tsx'

/** The width of the drawing in its own units. The browser stretches the drawing. */
const WIDTH = 1_000
/** The shortest bar that can still be seen. */
const MIN_WIDTH = 4

/**
 * Shows the steps of a run as lanes of bars. The table of the attempts has the same content as text.
 */
export function Timeline({ run }: { readonly run: RunView }) {
  const isActive = run.CompletedAt === null
  const seconds = useSeconds()
  const [isTrueScale, setTrueScale] = useState(false)
  const shown = waterfall(run, isActive ? seconds * 1_000 : 0)
  const { from, until, lanes } = shown
  const total = until - from
  const { breaks, at } = timeAxis(shown, isTrueScale)
  const x = (ms: number): number => at(ms) * WIDTH
  return (
    <figure className="timeline">
      <ol>
        {lanes.map(({ step, segments, omitted }) => (
          <li key={step}>
            <span className="step">
              <Outside text={step} />
            </span>
            <svg
              viewBox={`0 0 ${WIDTH} 20`}
              preserveAspectRatio="none"
              role="img"
              aria-label={
                segments.length === 0
                  ? 'not reached'
                  : visible(segments.map(({ text }) => text).join(', ')) +
                    (omitted > 0 ? `, and ${omitted} more attempts` : '')
              }
            >
              <line x1="0" x2={WIDTH} y1="10" y2="10" className="lane" />
              {segments.map((segment) => {
                const isThin =
                  segment.kind === 'wait' || segment.kind === 'queued' || segment.kind === 'next'
                const width = Math.max(MIN_WIDTH, x(segment.until) - x(segment.from))
                return (
                  <rect
                    key={`${segment.kind} ${segment.from} ${segment.until}`}
                    className={segment.kind}
                    x={Math.min(x(segment.from), WIDTH - MIN_WIDTH)}
                    width={width}
                    y={isThin ? 8 : 2}
                    height={isThin ? 4 : 16}
                  >
                    <title>{`${visible(segment.text)}, ${exact(segment.until - segment.from)}`}</title>
                  </rect>
                )
              })}
              {breaks.map((one) => (
                <path
                  key={one.from}
                  className="break"
                  d={`M${(x(one.from) + x(one.until)) / 2 - 5} 17l6 -14m4 0l-6 14`}
                >
                  <title>{`${exact(one.until - one.from)}, shortened`}</title>
                </path>
              ))}
            </svg>
            <span className="muted">
              {omitted > 0
                ? `+${omitted} more`
                : segments.length === 0
                  ? 'not reached'
                  : exact(timeOfAttempts(segments))}
            </span>
          </li>
        ))}
      </ol>
      <figcaption>
        <time dateTime={run.CreatedAt}>{fullMs(run.CreatedAt)}</time>
        <span>{isActive ? `${exact(total)} so far` : exact(total)}</span>
      </figcaption>
      {(breaks.length > 0 || isTrueScale) && (
        <p className="scale">
          {breaks.length > 0 && (
            <span className="muted">
              Shortened: {breaks.map((one) => exact(one.until - one.from)).join(', ')} without an
              attempt.
            </span>
          )}{' '}
          <label>
            <input
              type="checkbox"
              checked={isTrueScale}
              onChange={({ currentTarget }) => setTrueScale(currentTarget.checked)}
            />
            True scale
          </label>
        </p>
      )}
    </figure>
  )
}

const timeOfAttempts = (
  segments: readonly { readonly kind: string; readonly from: number; readonly until: number }[],
): number =>
  segments
    .filter(({ kind }) => kind === 'completed' || kind === 'failed' || kind === 'running')
    .reduce((sum, { from, until }) => sum + until - from, 0)

/** Returns `120 ms`, `2.4 s`, or the duration in larger units. */
export const exact = (ms: number): string =>
  ms < 1_000
    ? `${Math.round(ms)} ms`
    : ms < 60_000
      ? `${(ms / 1_000).toFixed(1)} s`
      : duration(ms / 1_000)
