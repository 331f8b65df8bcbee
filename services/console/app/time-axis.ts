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

/** Only a wait that takes more than this share of the whole time is shortened. */
const LONG = 1 / 4
/** No wait is drawn shorter than this. */
const SHORTEST_WAIT_MS = 1_000
/** Waits are shortened only if the timeline becomes shorter than this share of its true length. */
const WORTH_IT = 1 / 2

const IDLE = ['queued', 'wait', 'next']

const lengthOf = ({ from, until }: Break): number => until - from

/**
 * Returns the axis of a timeline. With `isTrueScale` nothing is shortened. Everything else is drawn on one scale, and
 * a shortened wait is as long as the longest attempt or the longest other wait. Therefore a short attempt never looks
 * longer than a long wait.
 */
export function timeAxis({ from, until, lanes }: Waterfall, isTrueScale: boolean): TimeAxis {
  const total = until - from
  const busy = lanes
    .flatMap(({ segments }) => segments)
    .filter(({ kind }) => !IDLE.includes(kind))
    .toSorted((one, other) => one.from - other.from)
  const waits: Break[] = []
  let end = from
  for (const next of [...busy, { from: until, until }]) {
    if (next.from > end) waits.push({ from: end, until: next.from })
    end = Math.max(end, next.until)
  }
  const isLong = (wait: Break): boolean => lengthOf(wait) > total * LONG
  const width = Math.max(
    SHORTEST_WAIT_MS,
    ...[...busy, ...waits.filter((wait) => !isLong(wait))].map(lengthOf),
  )
  const long = waits.filter((wait) => isLong(wait) && lengthOf(wait) > width)
  const saved = long.reduce((sum, wait) => sum + lengthOf(wait) - width, 0)
  // A lane has a gap where attempts are left out. This gap is not a wait.
  const isWhole = isTrueScale || lanes.some(({ omitted }) => omitted > 0)
  const breaks = isWhole || total - saved > total * WORTH_IT ? [] : long
  const length = breaks.length === 0 ? total : total - saved
  return {
    breaks,
    at(ms) {
      let place = ms - from
      for (const one of breaks) {
        const inside = Math.min(Math.max(ms - one.from, 0), lengthOf(one))
        place -= inside * (1 - width / lengthOf(one))
      }
      return place / length
    },
  }
}
