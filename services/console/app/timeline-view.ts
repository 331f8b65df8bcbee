/** The part of a timeline that is shown, and how a person moves and enlarges it. */
import type { TimeAxis } from './time-axis.ts'

/** A time range in epoch milliseconds. */
export interface TimeRange {
  readonly from: number
  readonly until: number
}

/** The shortest range that can be shown. */
const SHORTEST_MS = 10
/** Dragging over less than this share of the drawing is a click. */
const SHORTEST_DRAG = 0.01

/**
 * Returns the axis of a part of a timeline: 0 is the beginning of the range, and 1 its end. Times outside of the range
 * are below 0 or above 1.
 */
export function axisOfRange({ breaks, at }: TimeAxis, { from, until }: TimeRange): TimeAxis {
  const start = at(from)
  const width = at(until) - start
  return { breaks, at: (ms) => (at(ms) - start) / width }
}

/** The width of the shortest bar, as a share of the drawing: about 3 pixels, so that it can still be seen. */
const SHORTEST_BAR = 0.004

/** Returns the left end and the width of a bar, from 0 to 1. `axis` is the axis of the shown range. */
export function barOf(
  { at }: TimeAxis,
  { from, until }: TimeRange,
): { left: number; width: number } {
  const left = Math.max(0, at(from))
  const width = Math.max(SHORTEST_BAR, Math.min(1, at(until)) - left)
  return { left: Math.min(left, 1 - width), width }
}

/**
 * Returns the time at a place of an axis, in whole milliseconds. A place outside of the timeline is moved to the nearer
 * end of the timeline.
 */
export function timeAt({ at }: TimeAxis, whole: TimeRange, place: number): number {
  let { from, until } = whole
  // Each pass halves the range. After 35 passes, a range of one year is shorter than a millisecond.
  for (let pass = 0; pass < 40; pass += 1) {
    const middle = (from + until) / 2
    if (at(middle) < place) from = middle
    else until = middle
  }
  return Math.round((from + until) / 2)
}

/**
 * Returns the range between two places of the axis of the shown range. Returns `null` for the whole timeline, and for a
 * range that is too short.
 */
export function rangeBetween(
  axis: TimeAxis,
  whole: TimeRange,
  one: number,
  other: number,
): TimeRange | null {
  const from = timeAt(axis, whole, Math.min(one, other))
  const until = timeAt(axis, whole, Math.max(one, other))
  if (until - from < SHORTEST_MS) return null
  return from <= whole.from && until >= whole.until ? null : { from, until }
}

export const isDrag = (one: number, other: number): boolean => Math.abs(one - other) > SHORTEST_DRAG

export type Zoom = 'in' | 'out' | 'left' | 'right'

/**
 * For each button of the timeline, the range that is shown after a click. On the axis of the previous range, 0 is the
 * begin of that range, and 1 is its end. The two numbers are the begin and the end of the new range on this axis.
 */
const PLACES: Readonly<Record<Zoom, readonly [number, number]>> = {
  in: [0.25, 0.75],
  out: [-0.5, 1.5],
  left: [-0.5, 0.5],
  right: [0.5, 1.5],
}

/**
 * Returns the range to show after a click on a button of the timeline. `shown` is the range before the click. Returns
 * `null` if the new range is the whole timeline.
 */
export function afterZoom(
  axis: TimeAxis,
  whole: TimeRange,
  shown: TimeRange,
  zoom: Zoom,
): TimeRange | null {
  const part = axisOfRange(axis, shown)
  let [one, other] = PLACES[zoom]
  if (zoom === 'left' || zoom === 'right') {
    // At an end of the timeline, the length of the range stays the same.
    const shift = Math.min(part.at(whole.until), Math.max(part.at(whole.from) + 1, other)) - 1
    one = shift
    other = shift + 1
  }
  const next = rangeBetween(part, whole, one, other)
  // The range already has its shortest length, so it stays the same.
  return next === null && zoom === 'in' ? shown : next
}

/** Returns the range in the address, such as `1200-5400`, in milliseconds since the run was queued. */
export const rangeText = ({ from, until }: TimeRange, queued: number): string =>
  `${Math.round(from - queued)}-${Math.round(until - queued)}`

/** Reads a range from the address. Returns `null` if the text does not name a part of the timeline. */
export function rangeOf(text: string | null, whole: TimeRange): TimeRange | null {
  const [, first, second] = /^(\d{1,12})-(\d{1,12})$/.exec(text ?? '') ?? []
  if (first === undefined || second === undefined) return null
  const from = whole.from + Number(first)
  const until = Math.min(whole.until, whole.from + Number(second))
  return until - from < SHORTEST_MS ? null : { from, until }
}
