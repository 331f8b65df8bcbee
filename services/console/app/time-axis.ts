/**
 * The time axis of a timeline. A long wait is shortened, so that the attempts before and after it remain visible.
 */
import type { Waterfall } from './waterfall.ts'

export interface Break {
  /** The time in epoch milliseconds. */
  readonly from: number
  readonly until: number
}

export interface TimeAxis {
  /** The waits that are shortened. */
  readonly breaks: readonly Break[]
  /** Returns the place of a time on the axis, from 0 to 1. */
  readonly at: (ms: number) => number
}

/** A wait is shortened if it takes more than this share of the whole time. */
const LONGEST_WAIT = 1 / 4
/** A wait that is shorter than this is never shortened. */
const SHORTEST_BREAK_MS = 1_000
/** The length of a shortened wait, as a share of the time that is not shortened. */
const BREAK = 1 / 10

const IDLE = ['queued', 'wait', 'next']

/** Returns the axis of a timeline. With `isTrueScale` nothing is shortened. */
export function timeAxis({ from, until, lanes }: Waterfall, isTrueScale: boolean): TimeAxis {
  const total = until - from
  const busy = lanes
    .flatMap(({ segments }) => segments)
    .filter(({ kind }) => !IDLE.includes(kind))
    .toSorted((one, other) => one.from - other.from)
  const breaks: Break[] = []
  let end = from
  for (const next of [...busy, { from: until, until }]) {
    const wait = next.from - end
    if (wait > total * LONGEST_WAIT && wait > SHORTEST_BREAK_MS)
      breaks.push({ from: end, until: next.from })
    end = Math.max(end, next.until)
  }
  // A lane has a gap where attempts are left out. This gap is not a wait.
  const isWhole = isTrueScale || lanes.some(({ omitted }) => omitted > 0)
  const shown = isWhole ? [] : breaks
  const kept = total - shown.reduce((sum, one) => sum + one.until - one.from, 0)
  const width = Math.max(1, kept * BREAK)
  const length = kept + shown.length * width
  return {
    breaks: shown,
    at(ms) {
      let place = ms - from
      for (const one of shown) {
        const inside = Math.min(Math.max(ms - one.from, 0), one.until - one.from)
        place -= inside * (1 - width / (one.until - one.from))
      }
      return place / length
    },
  }
}
