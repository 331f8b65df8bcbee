import type { RunView } from '../../src/contracts/runs.ts'
import { counted } from '../../src/isomorphic/texts.ts'
import { duration, fullMs, useSeconds } from '../clock.ts'
import { visible } from '../visible.ts'
import { barOf, type SegmentKind, waterfall } from '../waterfall.ts'
import { Outside } from './elements.tsx'

/** The width of the drawing in its own units. The browser stretches the drawing. */
const WIDTH = 1_000

/** Shows the steps of a run as lanes of bars. The table of the attempts has the same content as text. */
export function Timeline({ run }: { readonly run: RunView }) {
  const isActive = run.CompletedAt === null
  const seconds = useSeconds()
  const whole = waterfall(run, isActive ? seconds * 1_000 : 0)
  const { from, until, lanes, now: present } = whole
  const now = present === null ? null : barOf(whole, { from: present, until: present }).left * WIDTH
  return (
    <figure className="timeline">
      <ol>
        {lanes.map(({ step, segments, omitted, without }) => (
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
                  ? without
                  : visible(segments.map(({ text }) => text).join(', ')) +
                    (omitted > 0 ? `, and ${counted(omitted, 'more attempt')}` : '')
              }
            >
              <line x1="0" x2={WIDTH} y1="10" y2="10" className="lane" />
              {segments.map((segment) => {
                const { left, width } = barOf(whole, segment)
                return (
                  <g key={`${segment.kind} ${segment.from} ${segment.until}`}>
                    <title>{`${visible(segment.text)}, ${exact(segment.until - segment.from)}`}</title>
                    <Bar kind={segment.kind} x={left * WIDTH} width={width * WIDTH} middle={10} />
                  </g>
                )
              })}
              {now !== null && <line className="now" x1={now} x2={now} y1="0" y2="20" />}
            </svg>
            <span className="muted">
              {omitted > 0
                ? `+${omitted} more`
                : segments.length === 0
                  ? without
                  : (ENDS.get(segments.at(-1)?.kind) ?? exact(timeOfAttempts(segments)))}
            </span>
          </li>
        ))}
      </ol>
      <figcaption>
        <Time ms={from} />
        <span>
          {exact((present ?? until) - from)}
          {isActive && ' since it was queued'}
        </span>
      </figcaption>
      <TimelineLegend
        kinds={new Set(lanes.flatMap(({ segments }) => segments.map(({ kind }) => kind)))}
        hasNow={present !== null}
      />
    </figure>
  )
}

/** The texts of the lanes whose last bar has no length to show. */
const ENDS: ReadonlyMap<SegmentKind | undefined, string> = new Map([
  ['next', 'waits'],
  ['doubt', 'in doubt'],
])

const KINDS: readonly (readonly [SegmentKind, string])[] = [
  ['queued', 'queued'],
  ['completed', 'completed attempt'],
  ['failed', 'failed attempt'],
  ['doubt', 'attempt without a recorded end'],
  ['running', 'attempt in flight'],
  ['wait', 'time between attempts'],
  ['next', 'waits'],
]

interface TimelineLegendProps {
  readonly kinds: ReadonlySet<SegmentKind>
  readonly hasNow: boolean
}

/** The legend, which explains the kinds of bars that occur in the shown timeline. */
function TimelineLegend({ kinds, hasNow }: TimelineLegendProps) {
  return (
    <ul className="legend muted" aria-label="Legend">
      {KINDS.filter(([kind]) => kinds.has(kind)).map(([kind, name]) => (
        <li key={kind}>
          <svg viewBox="0 0 24 20" aria-hidden="true">
            <Bar kind={kind} x={1} width={22} middle={10} />
          </svg>
          {name}
        </li>
      ))}
      {hasNow && (
        <li>
          <svg viewBox="0 0 24 20" aria-hidden="true">
            <line className="now" x1="12" x2="12" y1="0" y2="20" />
          </svg>
          now
        </li>
      )}
    </ul>
  )
}

interface BarProps {
  readonly kind: SegmentKind
  readonly x: number
  readonly width: number
  /** The vertical middle of the bar. */
  readonly middle: number
}

/**
 * Draws the bar of a segment. The bars of two kinds never differ only in their colour: a failed attempt has a line
 * along its middle, and the stylesheet fills or outlines the others in different ways.
 */
function Bar({ kind, x, width, middle }: BarProps) {
  const height = isThin(kind) ? 4 : 16
  return (
    <>
      <rect className={kind} x={x} width={width} y={middle - height / 2} height={height} />
      {kind === 'failed' && (
        <line className="stripe" x1={x} x2={x + width} y1={middle} y2={middle} />
      )}
    </>
  )
}

/**
 * Returns whether a segment is drawn as a thin bar. Attempts are thick bars; the time between attempts is a thin bar.
 */
const isThin = (kind: SegmentKind): boolean =>
  kind === 'wait' || kind === 'queued' || kind === 'next'

function Time({ ms }: { readonly ms: number }) {
  const iso = new Date(ms).toISOString()
  return <time dateTime={iso}>{fullMs(iso)}</time>
}

const timeOfAttempts = (
  segments: readonly { readonly kind: string; readonly from: number; readonly until: number }[],
): number =>
  segments
    .filter(({ kind }) => kind === 'completed' || kind === 'failed' || kind === 'running')
    .reduce((sum, { from, until }) => sum + until - from, 0)

/** Returns a duration as text, such as `120 ms`, `2.4 s` or `9 min 48 s`. From one hour on, seconds are left out. */
export function exact(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`
  if (ms < 59_950) return `${(ms / 1_000).toFixed(1)} s`
  const seconds = Math.round(ms / 1_000)
  if (seconds >= 3_600) return duration(seconds)
  const rest = seconds % 60
  return `${Math.floor(seconds / 60)} min${rest === 0 ? '' : ` ${rest} s`}`
}
