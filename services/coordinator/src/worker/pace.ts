/**
 * Limits the number of actions that start in any period of one second, and spreads the actions evenly over each second.
 */
export interface Pace {
  /** Returns how many milliseconds to wait before the next `count` actions; `count` is at most `perSecond`. */
  delayMs(count: number): number
  /** Must be called when an action starts. */
  started(): void
}

/** @param now returns milliseconds of a monotonic clock */
export function createPace(perSecond: number, now: () => number): Pace {
  /** The start times of the latest actions, oldest first. At least the latest `perSecond` start times are kept. */
  let starts: number[] = []
  let nextAt = Number.NEGATIVE_INFINITY
  return {
    delayMs(count) {
      // At most `perSecond` actions start within a second, including the next `count` actions. So only `perSecond -
      // count` earlier starts can be less than a second ago, and the start before them must be at least a second ago.
      const blocking = starts.at(-(perSecond - count + 1))
      const at = now()
      const startAt = Math.max(at, nextAt, blocking === undefined ? 0 : blocking + 1_000)
      nextAt = startAt + (count / perSecond) * 1_000
      return startAt - at
    },
    started() {
      starts.push(now())
      if (starts.length > 2 * perSecond) starts = starts.slice(-perSecond)
    },
  }
}
